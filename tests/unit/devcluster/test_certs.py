"""The keys of a cluster: whom each token names, and that the authority signed what the API server shows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from berth.devcluster import certs


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("pki")
    return folder, certs.write(folder)


@pytest.fixture(scope="module")
def pki(written: tuple[Path, dict[str, str]]) -> Path:
    return written[0]


def certificate(pki: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((pki / f"{name}.crt").read_bytes())


@pytest.mark.parametrize(
    ("name", "user", "groups"),
    [
        ("admin", "berth-admin", ["system:masters"]),
        ("scheduler", "system:kube-scheduler", []),
        ("controller-manager", "system:kube-controller-manager", []),
        ("kwok", "berth:kwok", []),
    ],
)
def test_a_token_is_the_user_that_roles_name(
    written: tuple[Path, dict[str, str]], name: str, user: str, groups: list[str]
) -> None:
    folder, tokens = written
    with (folder / "tokens.csv").open() as lines:
        users = {
            token: (known, [group for group in held.split(",") if group]) for token, known, _, held in csv.reader(lines)
        }
    assert users[tokens[name]] == (user, groups)


def test_no_two_users_share_a_token(written: tuple[Path, dict[str, str]]) -> None:
    assert len(set(written[1].values())) == len(certs.CLIENTS)


def test_the_server_answers_for_the_loopback_address_and_the_service(pki: Path) -> None:
    found = certificate(pki, "apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(address) for address in found.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "10.96.0.1"}
    assert "kubernetes.default.svc" in found.get_values_for_type(x509.DNSName)


def test_the_authority_signed_the_server_and_only_it_may_sign(pki: Path) -> None:
    found, authority = certificate(pki, "apiserver"), certificate(pki, "ca")
    found.verify_directly_issued_by(authority)
    assert found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is True


def test_tokens_are_signed_by_a_key_whose_public_half_is_beside_it(pki: Path) -> None:
    private = load_pem_private_key((pki / "sa.key").read_bytes(), None)
    public = load_pem_public_key((pki / "sa.pub").read_bytes())
    assert isinstance(private, rsa.RSAPrivateKey)
    assert isinstance(public, rsa.RSAPublicKey)
    assert private.public_key().public_numbers() == public.public_numbers()


def test_keys_and_tokens_are_for_their_owner_only(pki: Path) -> None:
    assert {path.stat().st_mode & 0o777 for path in [*pki.glob("*.key"), pki / "tokens.csv"]} == {0o600}

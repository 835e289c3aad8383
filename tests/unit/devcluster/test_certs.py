"""The keys of a cluster: who each certificate says it is, and that one authority signed them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from berth.devcluster import certs


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    certs.write(folder)
    return folder


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
def test_a_client_is_the_user_that_roles_name(pki: Path, name: str, user: str, groups: list[str]) -> None:
    found = certificate(pki, name)
    assert [entry.value for entry in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [user]
    assert [entry.value for entry in found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == groups
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_the_server_answers_for_the_loopback_address_and_the_service(pki: Path) -> None:
    found = certificate(pki, "apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(address) for address in found.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "10.96.0.1"}
    assert "kubernetes.default.svc" in found.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize("name", ["apiserver", *certs.CLIENTS])
def test_the_authority_signed_it_and_only_it_may_sign(pki: Path, name: str) -> None:
    found, authority = certificate(pki, name), certificate(pki, "ca")
    found.verify_directly_issued_by(authority)
    assert found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is True


def test_tokens_are_signed_by_a_key_whose_public_half_is_beside_it(pki: Path) -> None:
    private = load_pem_private_key((pki / "sa.key").read_bytes(), None)
    public = load_pem_public_key((pki / "sa.pub").read_bytes())
    assert isinstance(private, rsa.RSAPrivateKey)
    assert isinstance(public, rsa.RSAPublicKey)
    assert private.public_key().public_numbers() == public.public_numbers()


def test_keys_are_for_their_owner_only(pki: Path) -> None:
    assert {path.stat().st_mode & 0o777 for path in pki.glob("*.key")} == {0o600}

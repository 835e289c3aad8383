"""The keys of one cluster: an authority, a serving certificate, and a token per component.

Components get the names that Kubernetes' own RBAC bindings expect, so that authorization is the real one from
the first request. They show tokens because the API server verifies a client certificate anew with each request,
which on a small machine is a measurable part of what the requests of a simulated fleet cost it.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from berth.devcluster.simulation import KWOK_USER

_VALID = datetime.timedelta(days=365)
_SKEW = datetime.timedelta(minutes=5)

SERVER_NAMES = (
    "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)  # fmt: skip
SERVER_ADDRESSES = ("127.0.0.1", "10.96.0.1")

CLIENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "admin": ("berth-admin", ("system:masters",)),
    "scheduler": ("system:kube-scheduler", ()),
    "controller-manager": ("system:kube-controller-manager", ()),
    "kwok": (KWOK_USER, ()),
}
"""Name of the kubeconfig to user name and groups."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority that exists only in memory and in the cluster's own folder."""

    def __init__(self, common_name: str = "berth-devcluster") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(common_name)
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pair(self) -> Pair:
        """The authority's own certificate and key."""
        return Pair(self._certificate.public_bytes(serialization.Encoding.PEM), _pem(self._key))

    def server(self, names: Sequence[str] = SERVER_NAMES, addresses: Sequence[str] = SERVER_ADDRESSES) -> Pair:
        """A serving certificate for DNS ``names`` and IP ``addresses``."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        key = ec.generate_private_key(ec.SECP256R1())
        signed = (
            _builder(_name("kube-apiserver"), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Pair(signed.public_bytes(serialization.Encoding.PEM), _pem(key))


def write(directory: Path) -> dict[str, str]:
    """Write every file a control plane needs into ``directory`` and return the token of each of :data:`CLIENTS`.

    Files are ``ca`` and ``apiserver`` (``.crt``, ``.key``), ``sa.pub`` and ``sa.key`` for service account tokens, and
    ``tokens.csv``; keys and tokens have mode 0600.
    """
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority()
    for name, pair in {"ca": authority.pair, "apiserver": authority.server()}.items():
        (directory / f"{name}.crt").write_bytes(pair.certificate)
        _write_secret(directory / f"{name}.key", pair.key)
    signing = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_secret(directory / "sa.key", _pem(signing))
    (directory / "sa.pub").write_bytes(
        signing.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    tokens = {name: secrets.token_urlsafe(32) for name in CLIENTS}
    lines = (f'{tokens[name]},{user},{user},"{",".join(groups)}"\n' for name, (user, groups) in CLIENTS.items())
    _write_secret(directory / "tokens.csv", "".join(lines).encode())
    return tokens


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=authority, crl_sign=authority, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

"""Who we are, where from, and that nobody notices when the token changes."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from berth.cluster.errors import Unauthorized
from berth.cluster.kinds import PODS
from berth.cluster.session import Token, TokenFile, connect, from_kubeconfig, in_cluster
from berth.values import ConfigProblem
from tests.unit.cluster.fakes import FakeClock, Server, client_of, failure, listening


class Guard(Server):
    """Lets in who carries the current token."""

    def __init__(self) -> None:
        super().__init__()
        self.token = "first"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return await failure(401, "Unauthorized")(request)
        return web.json_response({})


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


def mount(directory: Path, token: str, certificate: Path) -> Path:
    """A service account as the kubelet mounts it."""
    directory.mkdir(exist_ok=True)
    (directory / "ca.crt").write_bytes(certificate.read_bytes())
    (directory / "namespace").write_text("berth-system")
    rotate(directory, token)
    return directory


def rotate(directory: Path, token: str) -> None:
    fresh = directory / "..token"
    fresh.write_text(token + "\n")
    fresh.rename(directory / "token")


async def test_a_pod_uses_its_service_account(
    tmp_path: Path, certificate: tuple[Path, Path], hasty: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)
    guard = Guard()
    async with listening(guard, tls):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", guard.url.rpartition(":")[2])
        connection = in_cluster(mount(tmp_path / "sa", "first", certificate[0]))
        assert connection.namespace == "berth-system"
        await client_of(connection, hasty).get(PODS, "p", "n")
        await connection.close()


async def test_a_rotated_token_is_picked_up(tmp_path: Path, certificate: tuple[Path, Path], hasty: FakeClock):
    guard = Guard()
    directory = mount(tmp_path / "sa", "first", certificate[0])
    async with listening(guard) as connection:
        connection.token = TokenFile(directory / "token")
        client = client_of(connection, hasty)
        await client.get(PODS, "p", "n")
        rotate(directory, "second")
        guard.token = "second"
        await client.create(PODS, {}, "n")
    assert len(guard.seen) == 2, "nobody had to be refused for it"


async def test_a_token_refused_is_read_again_once(hasty: FakeClock):
    """nolar/kopf#1031, #1109: the refusal is not seen by the caller, even of a create."""
    guard = Guard()
    tokens = iter(["first", "second", "second"])
    async with listening(guard) as connection:
        connection.token = Token(lambda: next(tokens))
        client = client_of(connection, hasty)
        await client.get(PODS, "p", "n")
        guard.token = "second"
        await client.create(PODS, {"spec": {}}, "n")
        assert guard.seen[-1].json == {"spec": {}}
        guard.token = "third"
        with pytest.raises(Unauthorized):
            await client.get(PODS, "p", "n")
    assert len(guard.seen) == 4


async def test_kopf_shares_the_session(server: Server):
    shared = server.connection.for_kopf()
    assert (shared.server, shared.aiohttp_session) == (server.url, server.connection.session())


def test_outside_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigProblem, match="not a pod"):
        in_cluster()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ConfigProblem, match="no usable service account"):
        in_cluster(tmp_path)


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: dev
contexts:
- {name: dev, context: {cluster: dev, user: me, namespace: research}}
- {name: other, context: {cluster: other, user: me}}
clusters:
- {name: dev, cluster: {server: SERVER, insecure-skip-tls-verify: true}}
- {name: other, cluster: {server: "https://other:6443", insecure-skip-tls-verify: true}}
users:
- {name: me, user: {token: first}}
"""


async def test_a_kubeconfig_names_server_token_and_namespace(tmp_path: Path, hasty: FakeClock):
    guard = Guard()
    async with listening(guard):
        path = tmp_path / "config"
        path.write_text(KUBECONFIG.replace("SERVER", guard.url))
        connection = connect(path)
        assert (connection.server, connection.namespace) == (guard.url, "research")
        await client_of(connection, hasty).get(PODS, "p", "n")
        await connection.close()
        other = from_kubeconfig(path, "other")
        assert (other.server, other.namespace) == ("https://other:6443", "default")


@pytest.mark.parametrize("text", ["", "current-context: nowhere", "{"])
def test_a_broken_kubeconfig_is_named(tmp_path: Path, text: str):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigProblem, match=str(path)):
        from_kubeconfig(path)

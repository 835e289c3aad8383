"""How to reach the API server and who we are, from a kubeconfig or from the pod's service account.

One aiohttp session serves our client and kopf alike. Tokens live in files that the kubelet rewrites every hour, so
the token is not a header of the session but put on each request, read again when its file has changed and once more
when the server answers 401: a rotation is never seen by a caller. kopf closes the session that it was given when it
ends or when it thinks the login stale; :meth:`Connection.session` then opens a new one.

Kubeconfigs are read by the ``kubernetes`` package, which knows every form of credentials; it costs nothing here
because kopf has imported it already (34 MB otherwise, so it is imported only when needed).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import yaml
from aiohttp.client_middlewares import ClientHandlerType

from berth.values import ConfigProblem

if TYPE_CHECKING:
    import kopf

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_READ_BUFFER: Final = 1 << 18  # bytes that a stream may buffer before the server is made to wait
_KEEP_ALIVE: Final = 30.0  # seconds; well under the 90 s after which API servers and their balancers hang up


class Token:
    """A bearer token that changes under way. ``read`` returns the current one, empty for none."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read, self._value, self._known = read, "", False

    def value(self) -> str:
        """The token last read."""
        if not self._known:
            self.renew()
        return self._value

    def renew(self) -> bool:
        """Read again; whether the token is another one now."""
        fresh = self._read()
        changed, self._value, self._known = fresh != self._value, fresh, True
        return changed


class TokenFile(Token):
    """A token in a file, read again whenever the file was replaced."""

    def __init__(self, path: Path) -> None:
        super().__init__(lambda: path.read_text("ascii").strip())
        self._path, self._stamp = path, (0, 0)

    def value(self) -> str:
        """The token in the file."""
        found = self._path.stat()
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp != self._stamp:
            self._stamp = stamp
            self.renew()
        return super().value()


NO_TOKEN: Final = Token(lambda: "")


@dataclass(slots=True)
class Connection:
    """The server's URL, how to trust it, and who we are. ``namespace`` is where we are at home."""

    server: str
    tls: ssl.SSLContext | bool = True
    token: Token = NO_TOKEN
    headers: dict[str, str] = field(default_factory=dict)
    namespace: str = "default"
    _session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """The shared session; a new one when there is none or it was closed. Needs a running event loop."""
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self.tls, keepalive_timeout=_KEEP_ALIVE),
                headers=self.headers,
                middlewares=(self._authorize,),
                read_bufsize=_READ_BUFFER,
                auto_decompress=True,
            )
        return self._session

    def for_kopf(self) -> kopf.AiohttpSession:
        """What an ``@kopf.on.login`` handler returns to have kopf share the session."""
        import kopf  # noqa: PLC0415 - 50 MB that only the operator pays

        return kopf.AiohttpSession(server=self.server, aiohttp_session=self.session(), default_namespace=self.namespace)

    async def close(self) -> None:
        """Close the session; a later :meth:`session` opens another."""
        if self._session is not None:
            await self._session.close()

    async def _authorize(self, request: aiohttp.ClientRequest, send: ClientHandlerType) -> aiohttp.ClientResponse:
        """Put the token on the request; on 401 read it again and, if it changed, try once more."""
        token = self.token.value()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        response = await send(request)
        if response.status == 401 and token and self.token.renew():
            response.release()
            request.headers["Authorization"] = f"Bearer {self.token.value()}"
            response = await send(request)
        return response


def connect(kubeconfig: Path | None = None) -> Connection:
    """A connection from ``kubeconfig``; without one from the pod's service account, else from ``$KUBECONFIG`` or home.

    Raises:
        ConfigProblem: there is no usable configuration.
    """
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster()
    return from_kubeconfig(kubeconfig)


def in_cluster(directory: Path = SERVICE_ACCOUNT) -> Connection:
    """A connection with the service account that the kubelet mounted at ``directory``. Raises: ConfigProblem."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigProblem("KUBERNETES_SERVICE_HOST is not set: this is not a pod", source="environment")
    host = f"[{host}]" if ":" in host else host
    try:
        tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        token = TokenFile(directory / "token")
        token.value()
        namespace = (directory / "namespace").read_text("utf-8").strip()
    except (OSError, ssl.SSLError) as problem:
        raise ConfigProblem(f"no usable service account: {problem}", source=str(directory)) from problem
    return Connection(f"https://{host}:{port}", tls, token, namespace=namespace or "default")


def from_kubeconfig(path: Path | None = None, context: str | None = None) -> Connection:
    """A connection from a kubeconfig file and one of its contexts. Raises: ConfigProblem."""
    from kubernetes import client, config  # noqa: PLC0415 - 34 MB unless kopf has paid for it

    stated = client.Configuration()
    source = str(path) if path else os.environ.get("KUBECONFIG", "~/.kube/config")
    try:
        read: Any = config  # the package is untyped
        read.load_kube_config(str(path) if path else None, context, stated, persist_config=False)
        contexts, current = read.list_kube_config_contexts(str(path) if path else None)
        tls = _tls(stated)
    except (config.ConfigException, yaml.YAMLError, OSError, ssl.SSLError) as problem:
        raise ConfigProblem(f"not usable as a kubeconfig: {problem}", source=source) from problem
    if context is not None:
        current = next(each for each in contexts if each["name"] == context)
    namespace = str(current.get("context", {}).get("namespace") or "default")
    headers = {}
    if stated.username and stated.password:
        headers["Authorization"] = aiohttp.encode_basic_auth(stated.username, stated.password)
    return Connection(str(stated.host).rstrip("/"), tls, Token(lambda: _bearer(stated)), headers, namespace)


def _bearer(stated: Any) -> str:
    """The token of a kubeconfig; asking for it runs the refresh of credentials that expire."""
    header = stated.get_api_key_with_prefix("BearerToken") or stated.get_api_key_with_prefix("authorization") or ""
    return str(header).removeprefix("Bearer ")


def _tls(stated: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=stated.ssl_ca_cert)
    if stated.cert_file:
        context.load_cert_chain(stated.cert_file, stated.key_file)
    if not stated.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

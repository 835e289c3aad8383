"""A small synchronous JSON client for set-up, tests and benchmarks.

It stands apart from the operator's own client on purpose: what checks the operator must not share its mistakes.
One connection per thread, so that a pool of threads creates ten thousand nodes quickly; answers are read by msgspec,
since what watches a benchmark takes its CPU from what is measured.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import yaml

from berth.devcluster.problems import ApiRefused, DevClusterProblem

Json = dict[str, Any]

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch: ``kind`` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    object: Json


class Api:
    """Requests by path, with the credentials of one kubeconfig.

    Every method raises :class:`ApiRefused` for an answer of 400 and above. Safe to use from several threads.
    """

    def __init__(self, server: str, context: ssl.SSLContext | None, token: str = "") -> None:
        parts = urlsplit(server)
        self.server = server
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 443
        self._context = context
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._local = threading.local()
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Api:
        """A client for the current context of the kubeconfig at ``path``."""
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        tls = trusting(base64.b64decode(cluster["certificate-authority-data"]))
        if "client-certificate-data" in user:
            with tempfile.TemporaryDirectory() as scratch:
                pem = Path(scratch) / "client.pem"
                pem.touch(mode=0o600)
                pem.write_bytes(
                    base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"])
                )
                tls.load_cert_chain(pem)
        return cls(cluster["server"], tls, user.get("token", ""))

    # -- verbs ---------------------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> Json:
        """GET one object, or a list object."""
        return self.call("GET", path, query=query)

    def list(self, path: str, **query: Any) -> list[Json]:
        """Every item of a collection, read in pages."""
        items: list[Json] = []
        while True:
            page = self.call("GET", path, query={"limit": 2000, **query})
            items += page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return items
            query["continue"] = token

    def post(self, path: str, body: Json, **query: Any) -> Json:
        """Create an object in the collection ``path``."""
        return self.call("POST", path, body, query=query)

    def put(self, path: str, body: Json, **query: Any) -> Json:
        """Replace the object at ``path``."""
        return self.call("PUT", path, body, query=query)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Json:
        """Patch the object at ``path``; by default a JSON merge patch."""
        return self.call("PATCH", path, body, content_type=content_type, query=query)

    def delete(self, path: str, body: Json | None = None, **query: Any) -> Json:
        """Delete an object or a collection; ``body`` are DeleteOptions."""
        return self.call("DELETE", path, body, query=query)

    def exists(self, path: str) -> bool:
        """Whether there is an object at ``path``."""
        try:
            self.get(path)
        except ApiRefused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def text(self, path: str) -> str:
        """GET a page that is no JSON, such as /metrics or /readyz."""
        return self.exchange("GET", path).decode()

    def watch(
        self, path: str, *, resource_version: str = "", timeout_seconds: int = 60, **query: Any
    ) -> Iterator[Event]:
        """Events of a collection until the server closes after ``timeout_seconds``; on a connection of its own."""
        query |= {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": timeout_seconds}
        if resource_version:
            query["resourceVersion"] = resource_version
        connection = self._connect(timeout_seconds + 30)
        try:
            connection.request("GET", _with_query(path, query), headers=self._headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise _refusal(response.status, response.read())
            for line in response:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise _refusal(int(event["object"].get("code", 500)), json.dumps(event["object"]).encode())
                yield Event(event["type"], event["object"])
        finally:
            connection.close()

    # -- manifests -----------------------------------------------------------------------------------------------

    def create(self, manifest: Json, **query: Any) -> Json:
        """Create ``manifest`` where its kind and namespace say."""
        return self.post(self.path_of(manifest, collection=True), manifest, **query)

    def apply(self, manifest: Json, manager: str = "berth-dev", **query: Any) -> Json:
        """Server-side apply of ``manifest``, forced."""
        return self.patch(self.path_of(manifest), manifest, APPLY, fieldManager=manager, force="true", **query)

    def path_of(self, manifest: Json, *, collection: bool = False) -> str:
        """The path of the object that ``manifest`` describes, its plural found by discovery."""
        group_version, kind, meta = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        root = f"/api/{group_version}" if "/" not in group_version else f"/apis/{group_version}"
        if (group_version, kind) not in self._plurals:
            for entry in self.get(root)["resources"]:
                if "/" not in entry["name"]:
                    self._plurals[group_version, entry["kind"]] = (entry["name"], entry["namespaced"])
        if (group_version, kind) not in self._plurals:
            raise DevClusterProblem(f"the API server serves no {kind} in {group_version}")
        plural, namespaced = self._plurals[group_version, kind]
        base = f"{root}/namespaces/{meta.get('namespace', 'default')}" if namespaced else root
        return f"{base}/{plural}" if collection else f"{base}/{plural}/{meta['name']}"

    # -- transport -----------------------------------------------------------------------------------------------

    def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = JSON, query: Mapping[str, Any] = {}
    ) -> Json:
        """One request with a JSON body and a JSON answer."""
        data = None if body is None else json.dumps(body).encode()
        answer: Json = msgspec.json.decode(self.exchange(method, _with_query(path, query), data, content_type))
        return answer

    def exchange(self, method: str, path: str, data: bytes | None = None, content_type: str = JSON) -> bytes:
        """One request; a kept connection that the server had closed is opened anew once."""
        for last in (False, True):
            connection = getattr(self._local, "connection", None)
            if fresh := connection is None:
                connection = self._local.connection = self._connect(60)
            try:
                connection.request(method, path, data, {**self._headers, "Content-Type": content_type})
                response = connection.getresponse()
                content = response.read()
            except (http.client.HTTPException, OSError) as problem:
                connection.close()
                self._local.connection = None
                if last or fresh or isinstance(problem, TimeoutError):
                    raise
                continue
            if response.status >= 400:
                raise _refusal(response.status, content)
            return content
        raise AssertionError("unreachable")

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._context)


def trusting(authority: bytes) -> ssl.SSLContext:
    """A TLS context that trusts this authority (PEM) only, without a client certificate."""
    return ssl.create_default_context(cadata=authority.decode())


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    return f"{path}{'&' if '?' in path else '?'}{urlencode(query)}" if query else path


def _named(entries: list[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


def _refusal(status: int, content: bytes) -> ApiRefused:
    try:
        answer = json.loads(content)
        return ApiRefused(status, str(answer.get("reason", "")), str(answer.get("message", "")))
    except (ValueError, AttributeError):
        return ApiRefused(status, http.client.responses.get(status, ""), content.decode(errors="replace")[:500])

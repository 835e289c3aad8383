"""A thin client of the Kubernetes API: verbs in, typed structs or typed errors out.

It exists beside the client libraries because decoding a pod into their models costs fifty times what Berth can
spend on it, and because all our requests must pass the same gates; see :mod:`berth.cluster.transport`. Every method
may raise a :class:`~berth.cluster.errors.ClusterError`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from berth.cluster import wire
from berth.cluster.errors import NotFound, Unreadable
from berth.cluster.kinds import Kind, Page, WatchEvent
from berth.cluster.stream import read_events
from berth.cluster.transport import Request, Transport

T = TypeVar("T", bound=wire.Object)
R = TypeVar("R")

PAGE: Final = 500  # objects of a list page; one page of pods is about 3 MB and 15 ms of decoding
WATCH_SECONDS: Final = (
    240.0,
    300.0,
)  # how long a server may keep one watch open; spread, so that they do not end at once
DISCOVERY: Final = "discovery"
"""What questions about the server itself are reported as; users name the groups of some."""
SILENCE_SECONDS: Final = 90.0  # bookmarks come once a minute
_APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML
_PATCH: Final = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A whole list and the resourceVersion that it shows."""

    items: list[T]
    resource_version: str


class _Resource(msgspec.Struct):
    name: str
    kind: str = ""


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


class _GroupVersion(msgspec.Struct):
    version: str


class _Group(msgspec.Struct, rename="camel"):
    versions: list[_GroupVersion] = []


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class ApiClient:
    """The verbs. Safe to share between the tasks of one event loop."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None, *, urgent: bool = False) -> T:
        """One object, as new as etcd has it."""
        request = Request("get", kind.plural, "GET", kind.path(namespace, name), urgent=urgent, timeout=_limit(urgent))
        return _read(kind.decode, await self.transport.send(request))

    async def find(self, kind: Kind[T], name: str, namespace: str | None = None) -> T | None:
        """One object, or None when there is none of that name."""
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def list(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
    ) -> Listing[T]:
        """Everything of a kind, in one namespace or in all, read page by page."""
        items: list[T] = []
        version = ""
        async for page in self.pages(
            kind, namespace, label_selector=label_selector, field_selector=field_selector, limit=limit
        ):
            items.extend(page.items or ())
            version = page.metadata.resource_version
        return Listing(items, version)

    async def pages(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
        attempts: int | None = None,
    ) -> AsyncGenerator[Page[T], None]:
        """The pages of a list, all showing the same resourceVersion; ``limit`` 0 asks for a single page.

        Raises:
            Expired: the continue token aged under way; the pages seen belong to no complete list.
        """
        params = _selectors(label_selector, field_selector) | ({"limit": str(limit)} if limit else {})
        while True:
            request = Request("list", kind.plural, "GET", kind.path(namespace), params, timeout=60.0)
            page = _read(kind.decode_page, await self.transport.send(request, attempts))
            yield page
            if not page.metadata.continue_token:
                return
            params = params | {"continue": page.metadata.continue_token}

    async def watch(
        self,
        kind: Kind[T],
        resource_version: str,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        seconds: float | None = None,
        silence: float = SILENCE_SECONDS,
        on_bytes: Callable[[], object] | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes since ``resource_version`` until the server ends the stream after ``seconds``.

        Bookmarks are asked for and yielded, so that ``silence`` seconds without a byte mean a dead connection.
        ``on_bytes`` is called when the stream stands and at each piece of it. Reconnecting is the caller's.

        Raises:
            Unreachable: the stream broke.
            ApiError: what an ERROR event states, usually Expired.
        """
        seconds = seconds or random.uniform(*WATCH_SECONDS)  # noqa: S311 - spreads load, guards nothing
        params = _selectors(label_selector, field_selector) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(seconds)),
        }
        request = Request("watch", kind.plural, "GET", kind.path(namespace), params, timeout=seconds + 30)
        async with self.transport.stream(request, silence) as source:
            if on_bytes is not None:
                on_bytes()
            async for event in read_events(kind, source, on_bytes):
                yield event

    async def create(
        self, kind: Kind[T], body: Any, namespace: str | None = None, *, dry_run: bool = False, urgent: bool = False
    ) -> T:
        """Create an object; ``body`` is a struct, plain dicts or JSON bytes. ``dry_run``: the server only judges it.

        Raises:
            AlreadyExists: the name is taken.
            Unreachable: it may or may not exist now.
        """
        request = Request(
            "create",
            kind.plural,
            "POST",
            kind.path(namespace),
            _writing(dry_run),
            wire.encode(body),
            writes=True,
            repeatable=dry_run,
            urgent=urgent,
            timeout=_limit(urgent),
        )
        return _read(kind.decode, await self.transport.send(request))

    async def apply(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        manager: str,
        subresource: str = "",
        force: bool = True,
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: ``body`` is everything that ``manager`` wants; a field that it leaves out is given up.

        The server wants ``body`` to state apiVersion, kind and metadata.name itself.

        Raises:
            Conflict: another manager owns a field and ``force`` is off; the causes name the fields.
        """
        params = {"fieldManager": manager, "force": "true" if force else "false"} | _writing(dry_run)
        return await self._patch(kind, namespace, name, subresource, params, body, _APPLY)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        how: Literal["merge", "json"] = "merge",
        subresource: str = "",
    ) -> T:
        """A merge patch or JSON patch, for what an apply cannot express."""
        return await self._patch(kind, namespace, name, subresource, _writing(), body, _PATCH[how])

    async def update(
        self, kind: Kind[T], name: str, body: Any, namespace: str | None = None, *, urgent: bool = False
    ) -> T:
        """Replace an object. Raises: Conflict when ``body`` has a resourceVersion that is not the current one."""
        request = Request(
            "update",
            kind.plural,
            "PUT",
            kind.path(namespace, name),
            {},
            wire.encode(body),
            writes=True,
            urgent=urgent,
            timeout=_limit(urgent),
        )
        return _read(kind.decode, await self.transport.send(request))

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str,
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
    ) -> bool:
        """Delete the object with this ``uid``, only at ``resource_version`` if given; whether it was still there.

        Raises:
            Conflict: the name belongs to another object now, or this one has changed.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        options: dict[str, Any] = {"preconditions": preconditions, "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = kind.path(namespace, name)
        request = Request("delete", kind.plural, "DELETE", path, {}, wire.encode(options), writes=True)
        try:
            await self.transport.send(request)
        except NotFound:
            return False
        return True

    async def resources(self, group: str, version: str) -> frozenset[str]:
        """Plurals (and ``plural/subresource``) served under a version of a group; empty when it is not served."""
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            data = await self.transport.send(Request("get", DISCOVERY, "GET", path))
        except NotFound:
            return frozenset()
        return frozenset(resource.name for resource in _read(_RESOURCES.decode, data).resources)

    async def versions(self, group: str) -> tuple[str, ...]:
        """Versions of an API group, the preferred order of the server; empty when it is not served."""
        try:
            data = await self.transport.send(Request("get", DISCOVERY, "GET", f"/apis/{group}"))
        except NotFound:
            return ()
        return tuple(entry.version for entry in _read(_GROUP.decode, data).versions)

    async def kinds(self, group: str, version: str) -> tuple[tuple[str, str], ...]:
        """(plural, kind) of what is served under a version of a group, subresources left out."""
        path = f"/apis/{group}/{version}"
        try:
            data = await self.transport.send(Request("get", DISCOVERY, "GET", path))
        except NotFound:
            return ()
        found = _read(_RESOURCES.decode, data).resources
        return tuple((entry.name, entry.kind) for entry in found if "/" not in entry.name)

    async def serves(self, kind: Kind[Any]) -> bool:
        """Whether the server serves ``kind`` in its version."""
        return kind.plural in await self.resources(kind.group, kind.version)

    async def server_version(self) -> str:
        """The server's version, such as ``v1.37.2``."""
        data = await self.transport.send(Request("get", DISCOVERY, "GET", "/version"))
        return _read(_VERSION.decode, data).git_version

    async def _patch(
        self,
        kind: Kind[T],
        namespace: str | None,
        name: str,
        subresource: str,
        params: dict[str, str],
        body: Any,
        content_type: str,
    ) -> T:
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        path = kind.path(namespace, name, subresource)
        request = Request("patch", resource, "PATCH", path, params, wire.encode(body), content_type, writes=True)
        return _read(kind.decode, await self.transport.send(request))


_RESOURCES: Final = msgspec.json.Decoder(_Resources)
_GROUP: Final = msgspec.json.Decoder(_Group)
_VERSION: Final = msgspec.json.Decoder(_Version)


def _read(decode: Callable[[bytes], R], data: bytes) -> R:
    try:
        return decode(data)
    except msgspec.MsgspecError as problem:
        raise Unreadable(f"the server's answer cannot be read: {problem}") from problem


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    named = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: text for name, text in named.items() if text}


def _writing(dry_run: bool = False) -> dict[str, str]:
    """What goes with a body of ours: no search for repeated and unknown fields, whose warnings nobody would read.

    The search was a quarter of what a status apply costs the API server. Schema and rules hold without it.
    """
    return {"dryRun": "All"} if dry_run else {"fieldValidation": "Ignore"}


def _limit(urgent: bool) -> float:
    """Seconds for one request; an urgent one gets half the renew deadline of a lease."""
    return 5.0 if urgent else 30.0

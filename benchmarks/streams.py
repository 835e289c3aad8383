"""Watches of one's own, with the time each event was received.

Benchmarks and invariants see the cluster through these and through nothing of the operator's. One thread per
collection; consumers are called in the order of the server, from that thread.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from berth.devcluster.api import Api
from berth.devcluster.problems import ApiRefused

Consumer = Callable[[str, Mapping[str, Any], float], None]
"""Called with ADDED, MODIFIED or DELETED, the object, and ``time.monotonic()`` of its receipt."""

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/events"
JOBS = "/apis/berth.dev/v1alpha1/trainingjobs"
POOLS = "/apis/berth.dev/v1alpha1/acceleratorpools"

_WATCH_SECONDS = 45
_RETRY_SECONDS = 0.3


class Stream(threading.Thread):
    """Lists and then watches the collection at ``path`` until :meth:`stop`.

    A break is mended by listing again; what has vanished meanwhile is reported as DELETED, with its metadata only. A
    collection that is not served yet (a CRD still to be installed) is waited for.
    """

    def __init__(self, api: Api, path: str, *consumers: Consumer, **query: str) -> None:
        super().__init__(name=f"stream {path}", daemon=True)
        self.path = path
        self._api, self._query = api, query
        self._consumers = list(consumers)
        self._known: dict[str, Mapping[str, Any]] = {}
        self._stopped = threading.Event()
        self._listed = threading.Event()

    def stop(self) -> None:
        """Deliver nothing more; the thread ends with its connection."""
        self._stopped.set()

    def wait_listed(self, seconds: float) -> bool:
        """Whether the first list has been delivered, waited for at most ``seconds``."""
        return self._listed.wait(seconds)

    def run(self) -> None:
        """The thread's body."""
        while not self._stopped.is_set():
            try:
                version = self._list()
                self._listed.set()
                while not self._stopped.is_set():
                    version = self._watch(version)
            except (ApiRefused, OSError, http.client.HTTPException, msgspec.DecodeError):
                self._stopped.wait(_RETRY_SECONDS)

    def _list(self) -> str:
        items: list[Mapping[str, Any]] = []
        token = ""
        while True:
            page = self._api.get(self.path, limit=2000, **self._query, **({"continue": token} if token else {}))
            items += page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                break
        seen = {item["metadata"]["uid"] for item in items}
        for uid, thing in [(uid, thing) for uid, thing in self._known.items() if uid not in seen]:
            self._deliver("DELETED", uid, thing)
        for item in items:
            uid = item["metadata"]["uid"]
            self._deliver("MODIFIED" if uid in self._known else "ADDED", uid, item)
        return str(page["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        events = self._api.watch(self.path, resource_version=version, timeout_seconds=_WATCH_SECONDS, **self._query)
        for event in events:
            if self._stopped.is_set():
                break
            version = event.object["metadata"]["resourceVersion"]
            if event.kind != "BOOKMARK":
                self._deliver(event.kind, event.object["metadata"]["uid"], event.object)
        return version

    def _deliver(self, change: str, uid: str, thing: Mapping[str, Any]) -> None:
        at = time.monotonic()
        if change == "DELETED":
            self._known.pop(uid, None)
        else:
            kept = {name: value for name, value in thing["metadata"].items() if name != "managedFields"}
            self._known[uid] = {"metadata": kept}
        for consumer in self._consumers:
            consumer(change, thing, at)

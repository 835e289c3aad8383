"""A watch that saw nothing is no clean one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.invariants import InvariantWatcher
from benchmarks.streams import EVENTS, JOBS, POOLS
from berth.devcluster.api import Event
from berth.devcluster.problems import ApiRefused


class Empty:
    """An API server without objects that does not serve some collections."""

    def __init__(self, *unserved: str) -> None:
        self._unserved, self._over = unserved, threading.Event()

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        if path in self._unserved:
            raise ApiRefused(404, "NotFound", "no such kind")
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    def watch(self, path: str, **query: Any) -> Iterator[Event]:
        self._over.wait(0.05)
        return iter(())


@pytest.mark.parametrize("unserved", [(), (JOBS,), (POOLS, EVENTS)])
def test_a_collection_that_was_never_listed_is_named(unserved: tuple[str, ...]) -> None:
    watcher = InvariantWatcher(Empty(*unserved))  # type: ignore[arg-type]
    with watcher:
        pass
    if not unserved:
        watcher.expect_clean()
        return
    with pytest.raises(AssertionError) as problem:
        watcher.expect_clean()
    assert [path for path in (JOBS, POOLS, EVENTS) if f"never listed: {path}" in str(problem.value)] == sorted(
        unserved, key=(JOBS, POOLS, EVENTS).index
    )

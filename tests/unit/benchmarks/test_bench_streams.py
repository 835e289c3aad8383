"""A stream reports every change once and in order, also over a break."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.streams import Stream
from berth.devcluster.api import Event
from berth.devcluster.problems import ApiRefused


def thing(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}


class Script:
    """An API server that gives the lists and watches it was told to, then the last list for ever."""

    def __init__(self, *acts: list[dict[str, Any]] | list[Event | ApiRefused]) -> None:
        self._acts, self.over = list(acts), threading.Event()

    def get(self, path: str, **query: Any) -> Mapping[str, Any]:
        if isinstance(self._acts[0], ApiRefused):
            raise self._acts.pop(0)
        return {"items": self._acts.pop(0), "metadata": {"resourceVersion": "1"}}

    def watch(self, path: str, **query: Any) -> Iterator[Event]:
        if not self._acts:
            self.over.set()
            threading.Event().wait(0.01)
            return
        for event in self._acts.pop(0):
            if isinstance(event, ApiRefused):
                raise event
            yield event


def seen(*acts: Any) -> list[tuple[str, str]]:
    script = Script(*acts)
    found: list[tuple[str, str]] = []
    stream = Stream(script, "/things", lambda change, obj, at: found.append((change, obj["metadata"]["name"])))  # type: ignore[arg-type]
    stream.start()
    assert script.over.wait(5)
    stream.stop()
    stream.join(5)
    return found


GONE = ApiRefused(410, "Expired", "too old resource version")


def test_a_list_and_the_events_after_it_are_delivered_in_order() -> None:
    events = [Event("MODIFIED", thing("a", 2)), Event("BOOKMARK", thing("", 3)), Event("DELETED", thing("a", 4))]
    assert seen([thing("a")], events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_what_vanished_during_a_break_is_reported_as_deleted() -> None:
    found = seen([thing("a"), thing("b")], [GONE], [thing("b"), thing("c")])
    assert found == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("MODIFIED", "b"), ("ADDED", "c")]


def test_a_collection_that_is_not_served_yet_is_waited_for() -> None:
    assert seen(ApiRefused(404, "NotFound", "no such kind"), [thing("a")]) == [("ADDED", "a")]

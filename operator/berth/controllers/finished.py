"""Ranks that were seen to exit 0, remembered past the end of their pods.

A pod that has ended may be removed at any time: by the garbage collector of pods, with its node, by a person who tidies
up. What it did stays done. Every replica keeps this from its own watch, and the status names such ranks as soon as a
pod is gone, so that an operator that starts later knows of them too.
"""

from __future__ import annotations

from dataclasses import replace

from berth.training.state import Worker


class FinishedRanks:
    """By job and attempt; only ranks whose pods are gone are kept."""

    def __init__(self) -> None:
        self._gone: dict[str, set[tuple[int, int]]] = {}

    def removed(self, uid: str, worker: Worker) -> None:
        """The pod of ``worker``, as it was last seen, is gone."""
        if worker.finished:
            self._gone.setdefault(uid, set()).add((worker.attempt, worker.rank))

    def of(self, uid: str, attempt: int) -> frozenset[int]:
        """Ranks of that attempt that finished before their pods went."""
        gone = self._gone.get(uid)
        return frozenset(rank for number, rank in gone if number == attempt) if gone else frozenset()

    def forget(self, uid: str, before: int | None = None) -> None:
        """Forget a job, or its attempts ``before`` that one."""
        kept = {entry for entry in self._gone.pop(uid, ()) if before is not None and entry[0] >= before}
        if kept:
            self._gone[uid] = kept


def in_order(known: Worker | None, worker: Worker) -> Worker:
    """``worker`` with its end and its deletion in the order in which they were seen, given what was ``known`` before.

    Their stamps are whole seconds of two machines' clocks, and may tell another one.
    """
    asked, ended = worker.deleting_since, worker.ended_at
    if known is None or worker.phase != "Succeeded" or asked is None or ended is None:
        return worker
    if known.finished:
        return replace(worker, deleting_since=max(asked, ended + 1.0))
    return worker if known.deleting_since is None else replace(worker, ended_at=max(asked, ended))

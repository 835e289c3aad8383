"""Room for replicas that are asked for and not bound yet.

A Deployment's pods come one by one and the scheduler binds them, so between the decision and the binding somebody else
could take the devices. For that time their room is claimed on nodes chosen here: by count, from what is asked for and
what is bound, so that nothing has to be remembered. A claim ends when its pod is bound or after a time limit: then the
scheduler had its reasons, and the variant counts as full for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim
from berth.inference.access import ANYWHERE, Access
from berth.inference.records import Variant
from berth.inference.room import Rooms
from berth.values import Resources

RESERVE_SECONDS: Final = 300.0
"""Longer than a scheduler with a full queue takes; shorter than anybody waits for devices that stand empty."""
REFUSED_SECONDS: Final = 300.0
"""How long a variant whose replicas were not bound in time is offered no more of them."""


def reservation_key(uid: str, variant: str, number: int) -> str:
    """The claim of the ``number``-th replica of ``variant`` that is not bound yet."""
    return f"{uid}/{variant}/{number}"


class Reservations:
    """Keeps the claims of services that are not bound yet in step with what is asked for."""

    def __init__(self, fleet: Fleet, rooms: Rooms) -> None:
        self._fleet, self._rooms = fleet, rooms
        self._refused: dict[tuple[str, str], float] = {}

    def release(self, view: ServiceView) -> None:
        """Hold nothing more for ``view``."""
        self._fleet.release(view.reserved)
        self._rooms.settled(view.uid)
        view.reserved = set()

    def forget(self, view: ServiceView) -> None:
        """The service is gone."""
        self.release(view)
        self._refused = {key: since for key, since in self._refused.items() if key[0] != view.uid}

    def promised(self, view: ServiceView) -> dict[str, int]:
        """Replicas that are not bound and have room held for them, by variant."""
        return dict(Counter(key.split("/")[1] for key in view.reserved))

    def refused(self, view: ServiceView, variant: str, now: float) -> bool:
        """Whether the scheduler did not bind this variant's last replicas in time."""
        since = self._refused.get((view.uid, variant))
        return since is not None and abs(now - since) < REFUSED_SECONDS

    def hold(
        self,
        view: ServiceView,
        variants: Mapping[str, Variant],
        wanted: Mapping[str, int],
        bound: Mapping[str, int],
        access: Mapping[str, Access],
        now: float,
    ) -> None:
        """Claim room for every replica in ``wanted`` that is not among ``bound``, as far as there is room."""
        self.release(view)
        for name, count in wanted.items():
            missing = count - bound.get(name, 0)
            if missing <= 0 or name not in variants:
                view.waiting_since.pop(name, None)
                continue
            if bound.get(name, 0) > view.bound.get(name, 0):
                view.waiting_since[name] = now  # the scheduler gets on with it
            since = view.waiting_since[name] = min(view.waiting_since.get(name, now), now)
            if now - since > self._patience(variants[name]):
                self._refused[(view.uid, name)] = now
                continue
            self._claim(view, variants[name], missing, view.needs.get(name), access.get(name, ANYWHERE))
        view.bound = dict(bound)

    def _patience(self, variant: Variant) -> float:
        """How long a replica may wait for its node, and longer where that node has to join first."""
        pool = self._fleet.pools.get(variant.pool)
        phase = self._fleet.catalogue.serving.cold_start.get("Node")
        grows = pool is not None and pool.spec.growth is not None and phase is not None
        return RESERVE_SECONDS + (phase.p90 if grows and phase is not None else 0.0)

    def _claim(
        self, view: ServiceView, variant: Variant, missing: int, needs: Resources | None, access: Access
    ) -> None:
        if needs is None:
            return
        nodes = self._rooms.nodes(variant, needs, missing, access)
        keys = [reservation_key(view.uid, variant.name, number) for number in range(len(nodes))]
        self._fleet.claim(
            Claim(key, node, needs, view.name, "Inference") for key, node in zip(keys, nodes, strict=True)
        )
        view.reserved.update(keys)
        self._rooms.grow(view.uid, variant, needs, missing - len(nodes), access)

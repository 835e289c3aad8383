"""Plans of all services, decided one after the other against one ledger.

It shares that ledger, and the thread, with the placement of gangs: what one decision promises the next one sees taken.
Services whose PriorityClass is higher decide first. A plan is only a decision; the service's reconciler carries it out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from berth.controllers.services.calibration import carries, listen
from berth.controllers.services.demand import DemandBook, method_of, slo_met
from berth.controllers.services.facts import CRASHES, ready_since
from berth.controllers.services.former import closed_offers
from berth.controllers.services.gauges import Seen, ServiceGauges
from berth.controllers.services.observe import ServiceObserver
from berth.controllers.services.reserve import RESERVE_SECONDS, Reservations
from berth.controllers.services.spotting import SpotWatch
from berth.controllers.services.starts import learn_starts
from berth.controllers.services.supply import COLD_QUANTILE, Choice, Market, PodFacts
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.controllers.services.warmth import Warmth
from berth.inference.demand import EXPIRES_SECONDS, still
from berth.inference.plan import decide
from berth.inference.retire import staying
from berth.inference.service import Foreseen, Plan, Sight
from berth.telemetry.defects import Defects
from berth.telemetry.metrics import Metrics

_LOG: Final = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 15.0
"""How often demand is asked for and each service decided, where nothing else is said."""
LOOK_PERIODS: Final = 4
"""After so many a service of which nothing changes is looked at, so that figures in its status follow."""
BUSY_SECONDS: Final = 0.02
"""The longest that a round of decisions keeps the thread for itself."""


class ServicePlanner:
    """Decides for services; ``carry_out`` is called with the key of one whose plan asks for a change."""

    def __init__(
        self,
        observer: ServiceObserver,
        market: Market,
        demand: DemandBook,
        reservations: Reservations,
        pod_facts: PodFacts,
        spot: SpotWatch,
        warmth: Warmth,
        metrics: Metrics,
        *,
        priority: Callable[[ServiceView], int],
        carry_out: Callable[[ServiceKey], object],
        period: float = PERIOD_SECONDS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.period = period
        self._observer, self._market, self._demand = observer, market, demand
        self._reservations, self._pod_facts, self._metrics = reservations, pod_facts, metrics
        self._spot, self._warmth = spot, warmth
        self._priority, self._carry_out, self._wall = priority, carry_out, wall
        self._gauges = ServiceGauges(metrics)
        self._defects = Defects(_LOG)  # by uid

    def usable(self) -> list[tuple[ServiceView, Choice]]:
        """Every service that is to stay and can be read, with what it may run on, the most important first."""
        views = [view for view in self._observer.views.values() if view.spec is not None and not view.deleting]
        views.sort(key=lambda view: (-self._priority(view), view.object.metadata.created, view.uid))
        found = [(view, self._choice(view)) for view in views]
        return [(view, choice) for view, choice in found if choice is not None]

    def _choice(self, view: ServiceView) -> Choice | None:
        try:
            return self._market.choice(view)
        except Exception as problem:
            self._note_defect(view, problem)
            return None

    async def ask(self) -> None:
        """One round of questions about demand."""
        services = self.usable()
        pods = {
            view.key: {
                pod.metadata.name: ready_since(pod) for pod in self._observer.pods(view) if not pod.metadata.deleting
            }
            for view, _ in services
        }
        now = self._wall()
        await self._demand.poll(services, pods, now)
        self._demand.forget_all_but(self._observer.views.keys())
        for view, choice in services:
            if view.uid not in self._observer.views:
                continue  # it has gone while the source was asked
            known = self._demand.of(view)
            listen(view, choice, known.signals, known.telling, self._observer.replicas(view, {}), now)

    async def decide_all(self) -> int:
        """Decide for every service; how many there were. Others get the thread now and then: gangs wait for none."""
        count = 0
        self._spot.look(self._wall())
        for view in self._observer.views.values():
            if view.deleting:
                self._reservations.release(view)  # others may hold up its end for long
        began = time.perf_counter()
        for view, choice in self.usable():
            if view.uid in self._observer.views:
                self._guarded(view, choice)
                self._gauges.draw(Seen(view, choice, self._demand.of(view), view.replicas))
                count += 1
            if time.perf_counter() - began > BUSY_SECONDS:
                await asyncio.sleep(0)
                began = time.perf_counter()
        self._gauges.show()
        return count

    def decide(self, view: ServiceView) -> Plan | None:
        """Decide for one service now; None where its spec cannot be read, or it is being deleted."""
        if view.spec is None or view.deleting:
            return None
        self._guarded(view, self._market.choice(view))
        return view.plan

    def refresh(self, view: ServiceView) -> None:
        """Decide again for a service that something has happened to since its last plan."""
        if view.spec is None or view.deleting:
            return
        if view.plan_state != (state := self._observer.state(view)):
            view.plan_state = state
            self._guarded(view, self._market.choice(view))

    def forget(self, view: ServiceView) -> None:
        """The service is gone: nothing is held or remembered for it."""
        self._reservations.forget(view)
        self._demand.forget(view.uid)
        self._market.forget(view.uid)
        self._defects.over(view.uid)

    def _guarded(self, view: ServiceView, choice: Choice) -> None:
        began = time.perf_counter()
        try:
            self._decide(view, choice)
        except Exception as problem:
            self._note_defect(view, problem)
        else:
            self._defects.over(view.uid)
        self._metrics.service_decision_seconds.observe(time.perf_counter() - began)

    def _note_defect(self, view: ServiceView, problem: Exception) -> None:
        """One bad service must not stop the others: logged once, and its reconciler gets to tell."""
        if self._defects.note(view.uid, f"service {view.name}: no decision", problem):
            self._carry_out(view.key)

    def _decide(self, view: ServiceView, choice: Choice) -> None:
        now = self._wall()
        learn_starts(view, choice, self._market, self._warmth, self._observer.pods(view), now)
        known = self._demand.of(view)
        known.seen = still(known.seen, now, max(EXPIRES_SECONDS, 2 * self.period))
        wanted = self._observer.wanted(view)
        horizon, cold = self._horizon(view, choice, wanted)
        known.horizon = horizon
        target = known.target = known.model.target(now, horizon, view.rules.promise, method_of(view))
        replicas = view.replicas = self._observer.replicas(view, known.telling.in_flight)
        held, promised = self._observer.held(view), self._reservations.promised(view)
        standing = {name: held.get(name, 0) + promised.get(name, 0) for name in wanted}
        offers = self._market.offers(
            view, choice, wanted, lambda name: self._reservations.refused(view, name, now), standing
        )
        risks = self._spot.risks(choice, now)
        view.spot_available = self._spot.verdict(offers, risks) if view.rules.spot.allowed else None
        unplaced = self._observer.unplaced(view, RESERVE_SECONDS)
        closed = closed_offers(view, choice, wanted, unplaced, self._market.catalogue)
        sight = Sight(
            now=now,
            wanted=wanted,
            replicas=replicas,
            seen=known.seen,
            foreseen=Foreseen(target.work, target.point, target.quantile, horizon, target.basis),
            offers=(*self._spot.offers(offers, risks, staying(wanted, replicas)), *closed),
            cold_start_seconds=cold,
            slo_met=slo_met(view, known.telling),
            crashing=self._observer.crashing(view, CRASHES),
            excluded=choice.found.why_none(),
            carries=carries(view, choice, known.signals),
        )
        plan = decide(view.rules, view.memory, sight, self._spot.cheapest(choice, risks, view.rules, cold, self.period))
        before, view.memory, view.plan = view.plan, plan.memory, plan
        changed = before is not None and _says(before) != _says(plan)
        changed |= plan.counts != {name: count for name, count in wanted.items() if count or name in plan.counts}
        self._reserve(view, choice, plan, now)
        view.plan_state = self._observer.state(view)
        if changed or not view.persisted or abs(now - view.looked) >= LOOK_PERIODS * self.period:
            view.looked = now
            self._carry_out(view.key)

    def _reserve(self, view: ServiceView, choice: Choice, plan: Plan, now: float) -> None:
        variants, coming = choice.variants, self._observer.coming(view, plan.counts)
        access = {name: self._pod_facts(view, variants[name])[1] for name in plan.counts if name in variants}
        self._reservations.hold(view, variants, coming, self._observer.bound(view), access, now)

    def _horizon(self, view: ServiceView, choice: Choice, wanted: Mapping[str, int]) -> tuple[float, float]:
        """How far to look ahead, and the start to plan with: the slowest of what is used, else of the first candidate.

        Used is what has replicas or was last planned to: Deployments stay when their last replica goes.
        """
        variants, planned = choice.variants, view.plan.counts if view.plan is not None else {}
        used = {name for name in wanted.keys() | planned.keys() if wanted.get(name) or planned.get(name)}
        mine = [variants[name] for name in sorted(used) if name in variants] or list(variants.values())[:1]
        cold = max(
            (
                self._market.cold_start(view, choice, variant, COLD_QUANTILE, cached=False)
                + self._market.waits_for_node(view, variant)
                for variant in mine
            ),
            default=0.0,
        )
        return cold + self.period, cold


def _says(plan: Plan) -> object:
    """What of a plan is a transition of the status, beside counts: written at once."""
    return plan.phase, {kind: (verdict.status, verdict.reason) for kind, verdict in plan.conditions.items()}

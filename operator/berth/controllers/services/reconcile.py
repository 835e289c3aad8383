"""One look at one service: carry out its plan, say what became of it, tell what happened."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from berth.api.conditions import INTERNAL_ERROR
from berth.api.names import LABEL_TEMPLATE_HASH, ServiceEvent
from berth.cluster.client import ApiClient
from berth.cluster.errors import BadRequest, Forbidden, Invalid
from berth.cluster.events import EventRecorder, about
from berth.cluster.kinds import INFERENCE_SERVICES
from berth.controllers.facts import defect_words, shorten
from berth.controllers.services.children import NameTaken, ServiceChildren
from berth.controllers.services.demand import DemandBook, Known
from berth.controllers.services.exposure import Exposure, Opening
from berth.controllers.services.former import placed, unfit
from berth.controllers.services.judge import TemplateJudge
from berth.controllers.services.observe import ServiceObserver
from berth.controllers.services.planner import LOOK_PERIODS, ServicePlanner
from berth.controllers.services.plans import freeze, service_plan
from berth.controllers.services.rollout import Turn, held
from berth.controllers.services.standing import kept
from berth.controllers.services.status import Figures, Json, Learned, body, learned_body, rejected, unsaved
from berth.controllers.services.supply import COLD_QUANTILE, Choice, Market
from berth.controllers.services.troubles import refusal, told, trouble
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.controllers.services.writer import ServiceWriter
from berth.fleet.fleet import Fleet
from berth.inference.service import Event, Mode, Plan, Verdict
from berth.inference.words import capitalised
from berth.render.service.weights import unreadable
from berth.values import format_duration

_LOG: Final = logging.getLogger(__name__)
_TOKENS: Final = 1_000_000


class Services:
    """The reconciler of InferenceServices. One call per key at a time; the work queue sees to that."""

    def __init__(
        self,
        client: ApiClient,
        observer: ServiceObserver,
        planner: ServicePlanner,
        market: Market,
        demand: DemandBook,
        children: ServiceChildren,
        judge: TemplateJudge,
        exposure: Exposure,
        writer: ServiceWriter,
        recorder: EventRecorder,
        *,
        fleet: Fleet,
        prefetched: Callable[[ServiceView], Verdict | None] = lambda view: None,
        unclassed: Callable[[str], str] = lambda name: "",
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._observer, self._planner, self._market = client, observer, planner, market
        self._demand, self._children, self._judge, self._exposure = demand, children, judge, exposure
        self._writer, self._recorder, self._wall, self._fleet = writer, recorder, wall, fleet
        self._prefetched, self._unclassed = prefetched, unclassed
        self._told: dict[str, set[str]] = {}  # uid -> states that were told and last
        self._spoken: dict[str, Plan] = {}  # uid -> the plan whose events were told

    async def reconcile(self, key: ServiceKey) -> None:
        """Raises what the API server answers; the queue then comes back to it."""
        view = self._observer.view(key)
        if view is None or view.deleting:
            return
        try:
            await self._reconcile(view)
        finally:
            if view.uid not in self._observer.views:
                self.forget(view)  # it has gone meanwhile

    async def _reconcile(self, view: ServiceView) -> None:
        if view.spec is None:
            reason, message = view.problem or ("SpecInvalid", "the spec cannot be read")
            await self._reject(view, reason, message)
            return
        generation = view.object.metadata.generation
        self._notice_scale(view)
        unreadable_weights = unreadable(service_plan(view, self._fleet.catalogue))
        if unreadable_weights:
            await self._reject(view, "WeightsUnreadable", unreadable_weights)
            return
        if view.plan is None:
            self._planner.decide(view)
        plan = view.plan
        if plan is None:
            return
        choice = self._market.choice(view)
        live = {
            name: known.metadata.labels.get(LABEL_TEMPLATE_HASH, "")
            for name, known in self._observer.deployments(view).items()
        }
        misfits = self._market.misfits(view, choice)
        variants = {name: variant for name, variant in choice.variants.items() if name not in misfits}
        keeps = kept(view, self._observer.deployments(view), choice.keeps)
        templates = freeze(view, plan.counts, variants, live, self._fleet, keeps)
        view.refused = await self._judge.refusals(view, plan, variants, templates, live)
        opening = await self._exposure.opening(view)
        if view.object.metadata.generation != generation:
            return  # what was asked about is past; the edit has asked for another look
        exposed, first = opening.verdict if opening is not None else None, not view.persisted
        if unsaved(view.persisted, {"learned": learned_body(self._learned(view))}):
            await self._writer.consider(view, self._status(view, plan, choice, exposed))
        try:
            turn = await self._children.carry_out(
                view,
                plan,
                variants,
                templates,
                {name: self._market.space(view, variant) for name, variant in variants.items()},
                listeners=_joined(opening),
            )
        except NameTaken as problem:
            await self._reject(view, "NameTaken", shorten(str(problem)))
            return
        except (Invalid, BadRequest) as problem:
            await self._reject(view, "TemplateRefused", shorten(str(problem)))
            return
        except Forbidden as problem:
            if problem.not_permitted:
                raise
            await self._reject(view, "Forbidden", shorten(problem.message))
            return
        view.barred = False
        await self._writer.consider(view, self._status(view, plan, choice, exposed))
        if first and self._objection(view) is None:
            self._tell(
                view, Event(ServiceEvent.ACCEPTED, f"Serves {view.spec.model.name or view.key[1]}: {plan.message}")
            )
        self._tell_all(view, plan, self._demand.of(view), turn)

    async def tell_defect(self, key: ServiceKey, problem: Exception) -> None:
        """A look at the service failed by a defect of ours: its status says so, once, instead of nothing."""
        view = self._observer.view(key)
        if view is None:
            return
        try:
            await self._reject(view, INTERNAL_ERROR, defect_words(problem))
        except Exception as failure:  # what cannot be told is in the log
            _LOG.warning("inferenceservice %s: its defect cannot be told: %r", view.name, failure)

    def forget(self, view: ServiceView) -> None:
        """The service is gone."""
        self._planner.forget(view)
        self._children.forget(view)
        self._judge.forget(view.uid)
        self._exposure.forget(view.uid)
        self._writer.forget(view.uid)
        self._told.pop(view.uid, None)
        self._spoken.pop(view.uid, None)

    async def _reject(self, view: ServiceView, reason: str, message: str) -> None:
        view.barred = True
        generation = view.object.metadata.generation
        status = rejected(reason, message, generation, view.persisted, self._wall())
        if await self._writer.consider(view, status):
            self._recorder.warning(about(INFERENCE_SERVICES, view.object.metadata), ServiceEvent.REJECTED, message)

    def _status(self, view: ServiceView, plan: Plan, choice: Choice, exposed: Verdict | None) -> Json:
        known, misfits = self._demand.of(view), self._market.misfits(view, choice)
        extra = self._extra(view, plan, placed(plan, choice, misfits), known, exposed)
        return body(
            told(
                plan,
                view.refused,
                trouble(self._observer.pods(view), self._observer.deployments(view), self._wall()),
                unfit(choice, misfits),
                self._market.narrowed(view, choice),
            ),
            view.object.metadata.generation,
            view.key[1],
            {**view.former, **choice.variants},
            self._observer.replicas(view, {}),
            self._figures(view, plan, choice, known),
            self._learned(view),
            view.persisted,
            extra,
            self._wall(),
        )

    def _learned(self, view: ServiceView) -> Learned:
        used = view.places.keys() | self._observer.deployments(view).keys()
        return Learned(
            view.startup_seconds,
            view.starts.record(),
            self._demand.of(view).model.record(),
            {name: amount for name, amount in view.cpu.items() if name in used},
            view.reference,
            view.capacities.record(),
            view.places,
        )

    def _extra(
        self, view: ServiceView, plan: Plan, stands: Verdict, known: Known, exposed: Verdict | None
    ) -> dict[str, Verdict]:
        """Conditions that the plan does not know of; ``stands`` is Placed."""
        verdicts = {"Accepted": self._objection(view) or Verdict(True, "Valid"), "Placed": stands}
        if view.rules.mode is not Mode.MANUAL:
            verdicts["ForecastTrusted"] = known.trusted
        if view.spot_available is not None:
            verdicts["SpotAvailable"] = view.spot_available
        if exposed is not None:
            verdicts["Exposed"] = exposed
        contested = self._children.deployments.contested(view)
        if contested:
            verdicts["ScaleContested"] = Verdict(True, "OtherWriter", contested)
        prefetched = self._prefetched(view)
        if prefetched is not None:
            verdicts["Prefetched"] = prefetched
        return verdicts

    def _objection(self, view: ServiceView) -> Verdict | None:
        """What speaks against the spec though its replicas are carried on; None: nothing."""
        name = view.spec.priority_class_name if view.spec is not None else None
        words = self._unclassed(name) if name else ""
        if words:
            kept = "; until it exists no new replica is admitted, and those that run stay"
            return Verdict(False, "UnknownPriorityClass", f"{shorten(words)}{kept}")
        return refusal(view.refused)

    def _figures(self, view: ServiceView, plan: Plan, choice: Choice, known: Known) -> Figures:
        variants = [choice.variants[name] for name in plan.counts if name in choice.variants]
        variant = next(iter(variants or choice.variants.values()), None)

        def start(share: float, *, cached: bool = False) -> float:
            return 0.0 if variant is None else self._market.cold_start(view, choice, variant, share, cached=cached)

        tokens = known.telling.tokens_per_second
        target = known.target
        return Figures(
            state=str(known.seen.state),
            current=known.seen.work,
            forecast=target.work if target is not None else None,
            horizon_seconds=known.horizon,
            quantile=target.quantile if target is not None else 0.0,
            as_of=known.seen.as_of or self._wall(),
            method=target.method if target is not None else "",
            wape=target.wape if target is not None else None,
            persistence_wape=target.persistence_wape if target is not None else None,
            p50_seconds=start(0.5),
            p90_seconds=start(COLD_QUANTILE),
            cached_p90_seconds=start(COLD_QUANTILE, cached=True),
            usd_per_million_tokens=plan.usd_per_hour / 3600 / tokens * _TOKENS if tokens else None,
        )

    def _notice_scale(self, view: ServiceView) -> None:
        """A write to the scale subresource outside Manual does nothing, and says so."""
        assert view.spec is not None
        before, view.spec_replicas = view.spec_replicas, view.spec.replicas
        if before is not None and before != view.spec.replicas and view.rules.mode is not Mode.MANUAL:
            self._tell(
                view,
                Event(
                    ServiceEvent.SCALE_IGNORED,
                    f"spec.replicas {view.spec.replicas} is read with scaling.mode Manual only, and it is"
                    f" {view.rules.mode}",
                    warning=True,
                ),
            )

    def _tell_all(self, view: ServiceView, plan: Plan, known: Known, turn: Turn | None) -> None:
        """Events of the plan, each state once as long as it lasts."""
        lasting = {
            ServiceEvent.CAPACITY_LIMITED,
            ServiceEvent.CHILD_CHANGED,
            ServiceEvent.METRICS_LOST,
            ServiceEvent.REJECTED,
            ServiceEvent.REPLICAS_HELD,
            ServiceEvent.ROLLOUT_PAUSED,
            ServiceEvent.ROLLOUT_YIELDED,
            ServiceEvent.SCALE_CONTESTED,
        }
        carried_out = any(count and name not in view.refused for name, count in plan.counts.items())
        events = [event for event in plan.events if carried_out or event.reason != ServiceEvent.SCALED_UP]
        refused = self._objection(view)
        if refused is not None:
            events.append(Event(ServiceEvent.REJECTED, refused.message, warning=True))
        contested = self._children.deployments.contested(view)
        if contested:
            events.append(Event(ServiceEvent.SCALE_CONTESTED, contested, warning=True))
        mended = self._children.mended(view)
        if mended:
            events.append(Event(ServiceEvent.CHILD_CHANGED, mended, warning=True))
        yielded = self._children.deployments.yielded(view)
        if yielded:
            events.append(Event(ServiceEvent.ROLLOUT_YIELDED, capitalised(yielded), warning=True))
        if turn is not None and turn.stuck:
            events.append(
                Event(
                    ServiceEvent.ROLLOUT_PAUSED, held(turn, view.spec.rollout if view.spec is not None else None), True
                )
            )
        if not known.heard and self._wall() - (known.lost_at or self._wall()) < LOOK_PERIODS * self._planner.period:
            events = [
                event for event in events if event.reason != ServiceEvent.METRICS_LOST
            ]  # nobody can have answered yet
        told = self._told.setdefault(view.uid, set())
        now = {event.reason for event in events if event.reason in lasting}
        if ServiceEvent.METRICS_LOST in told and ServiceEvent.METRICS_LOST not in now:
            lost = format_duration(self._wall() - known.lost_at) if known.lost_at else "a while"
            self._tell(view, Event(ServiceEvent.METRICS_BACK, f"Demand is known again, after {lost}"))
        for event in events:
            if event.reason not in told and (event.reason in lasting or plan is not self._spoken.get(view.uid)):
                self._tell(view, event)
        told &= now
        told |= now
        self._spoken[view.uid] = plan

    def _tell(self, view: ServiceView, event: Event) -> None:
        target = about(INFERENCE_SERVICES, view.object.metadata)
        record = self._recorder.warning if event.warning else self._recorder.normal
        record(target, event.reason, event.message)


def _joined(opening: Opening | None) -> tuple[str, ...] | None:
    """What the route joins; None: that is not known now."""
    if opening is None:
        return ()
    return None if opening.verdict.status is None else opening.listeners

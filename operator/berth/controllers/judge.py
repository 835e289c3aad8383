"""Whether a job can be accepted as it stands, before anything is placed for it.

The API server itself is asked, by a dry run of one pod: quota, Pod Security, LimitRanges and the template's own
mistakes are reported in its words, and no copy of its rules can age here. Where a quota has been found short, a second
dry run asks for the whole gang's amounts, so that no part of a gang is created only to learn that the rest is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

import msgspec

from berth.api.trainingjob import TrainingJobSpec
from berth.catalogue.records import Catalogue
from berth.cluster.client import ApiClient
from berth.cluster.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound
from berth.cluster.kinds import PODS
from berth.cluster.queue import WorkQueue
from berth.controllers.facts import no_priority_class, pod_needs, shorten
from berth.controllers.gangs import Settings, probe_plan
from berth.controllers.observe import JobKey, JobView, Observer
from berth.fleet.fleet import Fleet
from berth.render.gang import GangPlan, Json, gang_probe, probe_pod
from berth.training.request import as_admitted
from berth.training.state import Reason
from berth.values import NO_RESOURCES, Resources

ACCEPTED_SECONDS: Final = 60.0
"""An accepted template is not tried again for so long, by whichever job of the namespace brings it."""
REFUSED_SECONDS: Final = 30.0
"""A refused one is tried again after so long: quotas are raised and templates' secrets appear."""

SHORT_SECONDS: Final = 600.0
"""For so long after a refusal by a quota, gangs of its namespace are asked for as a whole."""

SMALL_LIMIT: Final = "must be less than or equal to cpu limit"
OWN_CPU: Final = (
    "; a worker whose template names no CPU asks for its share of the node, which a limit, as a LimitRange's default, "
    "must allow: name cpu in resources.requests and resources.limits of spec.template, or raise that default"
)
"""Said where the API server finds a request above the limit."""

Rejection = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Accepted:
    """That a job was accepted, which holds until then, for this spec and these pools."""

    spec: TrainingJobSpec
    catalogue: Catalogue
    pools: tuple[str, ...]
    until: float


@dataclass(frozen=True, slots=True)
class _Opinion:
    """What the server said of a pod; ``needs`` is what it made of one that it would take."""

    rejection: Rejection | None
    until: float
    needs: Resources = field(default_factory=lambda: NO_RESOURCES)


class Judge:
    """Answers with (condition type, reason, message), or None where nothing speaks against a job."""

    def __init__(
        self,
        client: ApiClient,
        observer: Observer,
        queue: WorkQueue[JobKey],
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._observer, self._queue = client, observer, queue
        self._settings, self._clock = settings, clock
        self._opinions: dict[tuple[str, bytes], _Opinion] = {}
        self._asking: dict[tuple[str, bytes], asyncio.Lock] = {}
        self._accepted: dict[str, _Accepted] = {}  # by uid
        self._short: dict[str, float] = {}  # namespace -> until when its quotas are taken to be short

    def forget(self, uid: str) -> None:
        """Opinions are by template; they age by themselves, a few more are dropped here."""
        self._accepted.pop(uid, None)
        if len(self._opinions) > 1000:
            now = self._clock()
            self._opinions = {key: opinion for key, opinion in self._opinions.items() if opinion.until > now}
            self._asking = {key: lock for key, lock in self._asking.items() if key in self._opinions or lock.locked()}

    def priority(self, spec: TrainingJobSpec) -> int:
        """The value of the job's PriorityClass; 0 without one."""
        return self._observer.caches.priority(spec.priority_class_name)

    async def rejection(self, view: JobView) -> Rejection | None:
        """Why the job cannot be accepted; of one that can, the request becomes that of pods as they are admitted.

        Raises: ClusterError when the API server cannot be asked.
        """
        if view.problem is not None:
            return ("Accepted", *view.problem)
        spec = view.spec
        assert spec is not None
        name = spec.priority_class_name
        if name and self._observer.caches.priority_classes.get(name) is None:
            return ("Accepted", "UnknownPriorityClass", self._no_priority_class(name))
        namespace = self._observer.caches.namespaces.get(view.key[0])
        if namespace is not None and namespace.terminating:
            return ("Accepted", "NamespaceTerminating", f"namespace {view.key[0]} is being deleted")
        short, fleet = self._is_short(view), self._observer.fleet
        if not short and self._still_accepted(view, fleet):
            return None
        plan = probe_plan(view, fleet, self._settings)
        opinion = await self._ask(view, plan, probe_pod)
        if opinion.rejection is None and view.request is not None:
            view.admit(as_admitted(view.asked or view.request, opinion.needs, plan.cpu_millicores))
            self._accepted[view.uid] = _Accepted(spec, fleet.catalogue, tuple(fleet.pools), opinion.until)
        if opinion.rejection is None and plan.workers > 1 and short:
            opinion = await self._ask(view, plan, gang_probe)
        return opinion.rejection

    def _still_accepted(self, view: JobView, fleet: Fleet) -> bool:
        known = self._accepted.get(view.uid)
        return (
            known is not None
            and known.until > self._clock()
            and known.spec is view.spec
            and known.catalogue is fleet.catalogue
            and known.pools == tuple(fleet.pools)
        )

    def quota_was_short(self, namespace: str) -> None:
        """A quota has refused a pod there: what was found to fit may fit no more."""
        self._short[namespace] = self._clock() + SHORT_SECONDS
        accepted = [key for key, known in self._opinions.items() if key[0] == namespace and known.rejection is None]
        for key in accepted:
            del self._opinions[key]

    def _no_priority_class(self, name: str) -> str:
        return no_priority_class(name, (known.metadata.name for known in self._observer.caches.priority_classes))

    def _is_short(self, view: JobView) -> bool:
        return view.state.is_false("QuotaReserved") or self._short.get(view.key[0], 0.0) > self._clock()

    async def _ask(self, view: JobView, plan: GangPlan, probe: Callable[[GangPlan], Json]) -> _Opinion:
        """What the server says of ``probe``; what ranks are told differs from job to job and is not judged apart."""
        whole = probe is gang_probe
        untold = replace(plan, environment={}, framework="None", nodes=plan.nodes if whole else plan.nodes[:1])
        key = (view.key[0], sha256(msgspec.json.encode(probe(untold))).digest())
        async with self._asking.setdefault(key, asyncio.Lock()):
            known = self._opinions.get(key)
            if known is None or known.until <= self._clock():
                known = self._opinions[key] = await self._dry_run(view.key[0], probe(plan), whole=whole)
        if known.rejection is not None:
            self._queue.add_after(view.key, max(known.until - self._clock(), 0.0) + 0.1)
        return known

    async def _dry_run(self, namespace: str, body: Json, *, whole: bool) -> _Opinion:
        """Of a ``whole`` gang in one pod only a quota speaks."""
        try:
            admitted = await self._client.create(PODS, body, namespace, dry_run=True)
        except (Forbidden, Invalid, NotFound, BadRequest) as problem:
            rejection = self._refused(namespace, body, problem, whole=whole)
            return _Opinion(rejection, self._clock() + (ACCEPTED_SECONDS if rejection is None else REFUSED_SECONDS))
        return _Opinion(None, self._clock() + ACCEPTED_SECONDS, pod_needs(admitted))

    def _refused(self, namespace: str, body: Json, problem: ApiError, *, whole: bool) -> Rejection | None:
        words = shorten(problem.message)
        if isinstance(problem, Forbidden):
            if problem.quota_exceeded:
                self._short[namespace] = self._clock() + SHORT_SECONDS
                return ("QuotaReserved", Reason.QUOTA_EXCEEDED.value, words)
            if problem.not_permitted:
                raise problem
            account = body["spec"].get("serviceAccountName")
            if account and problem.no_service_account:
                path = "spec.template.spec.serviceAccountName"
                words = f"there is no ServiceAccount {account} in namespace {namespace}; create it or name another"
                return None if whole else ("Accepted", "TemplateRefused", f"{path}: {words}")
        hint = OWN_CPU if SMALL_LIMIT in words else ""
        return None if whole else ("Accepted", "TemplateRefused", f"spec.template: {words}{hint}")

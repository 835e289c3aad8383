"""Weights are brought to nodes before the replicas that will want them, and nodes that hold weights say so.

Level-triggered like everything: each round looks at the nodes, the replicas and the fetching pods there are. What is
remembered on purpose lives in the cluster: a node's label says that it holds weights, a failed pod that is still there
says that this node is not to be tried again yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.cluster.client import ApiClient
from berth.cluster.errors import (
    AlreadyExists,
    ApiError,
    ClusterError,
    Forbidden,
    NotLeading,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from berth.cluster.kinds import PODS
from berth.controllers.facts import shorten
from berth.controllers.services.cachelabels import CacheLabels, current_replicas, local_storage, under_disk_pressure
from berth.controllers.services.demand import DemandBook, method_of
from berth.controllers.services.facts import is_ready
from berth.controllers.services.fetches import ended_at, failure, fetched_for
from berth.controllers.services.observe import ServiceObserver
from berth.controllers.services.perspec import PerSpec
from berth.controllers.services.planner import LOOK_PERIODS, ServicePlanner
from berth.controllers.services.plans import deployment_plan
from berth.controllers.services.supply import Choice, PodFacts
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.controllers.services.warmth import Warmth
from berth.fleet.fleet import Fleet
from berth.inference.prefetch import (
    CacheNode,
    CachePlace,
    coming,
    has_disk,
    in_turns,
    larger,
    stand_ins,
    to_fetch,
    verdict,
)
from berth.inference.records import Variant
from berth.inference.room import Rooms
from berth.inference.service import Mode, Verdict
from berth.render.service.fetch import Keeping, fetch_pod, fetch_pod_name, keeping, unfetchable
from berth.telemetry.defects import Defects
from berth.telemetry.metrics import Metrics

_LOG: Final = logging.getLogger(__name__)

AHEAD_SECONDS: Final = 1800.0
"""How far ahead of its own horizon a service's peak is looked for: fetching takes minutes, and few go at once."""
RETRY_SECONDS: Final = 600.0
"""How long a node where fetching failed is left alone, and its pod there for people to read."""
BIND_SECONDS: Final = 300.0
"""A fetching pod that the scheduler has not bound by then finds no room on its node."""
GAP_SECONDS: Final = 1.0
EVERYBODYS: Final = (Unauthorized, TooManyRequests, Unavailable)
"""Answers that say nothing of the pod. All others do, a webhook's of one namespace that fails too."""


@dataclass(slots=True)
class _Book:
    """A service whose weights nodes may keep, as one round sees it. ``fetches``: its fetching pods by name."""

    view: ServiceView
    choice: Choice
    keeping: Keeping
    places: tuple[CachePlace, ...] = ()
    need: Mapping[str, int] = field(default_factory=dict)
    fetches: dict[str, wire.Pod] = field(default_factory=dict)
    problem: str = ""

    @property
    def weights(self) -> int:
        """Bytes, 0 unknown."""
        model = self.choice.request.model
        return model.weights if model is not None else 0


class Prefetcher:
    """Runs on the leader. ``most`` fetches at once over all services; ``changed`` is told whose verdict is another."""

    def __init__(
        self,
        client: ApiClient,
        fleet: Fleet,
        rooms: Rooms,
        facts: PodFacts,
        observer: ServiceObserver,
        planner: ServicePlanner,
        demand: DemandBook,
        warmth: Warmth,
        pods: Cache[wire.Pod],
        nodes: Cache[wire.Node],
        metrics: Metrics,
        *,
        most: int,
        changed: Callable[[ServiceKey], object],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._fleet, self._rooms, self._facts = client, fleet, rooms, facts
        self._observer, self._planner, self._demand, self._warmth = observer, planner, demand, warmth
        self._nodes, self._metrics = nodes, metrics
        self._most, self._changed, self._wall = most, changed, wall
        self._labels = CacheLabels(client, nodes)
        self._fetches = pods.index(fetched_for)
        self._verdicts: dict[str, Verdict] = {}
        self._barred: dict[tuple[str, str], float] = {}  # key of a fetching pod -> until when it is not made again
        self._refused: dict[str, tuple[int, float, str]] = {}  # service -> its generation, until when, and why
        self._kept: PerSpec[Keeping | None] = PerSpec(fleet)
        self._ways: PerSpec[str] = PerSpec(fleet)
        self._defects = Defects(_LOG)  # by uid
        self._ended = asyncio.Event()
        pods.subscribe(self._on_pod)

    def verdict(self, view: ServiceView) -> Verdict | None:
        """The condition Prefetched; None where no weights are to be kept."""
        return self._verdicts.get(view.uid)

    async def run(self) -> None:
        """A round now and then, and one whenever a fetch has ended."""
        while True:
            try:
                await self.round()
            except NotLeading:
                raise
            except ClusterError as problem:
                _LOG.warning("weights ahead of replicas: %s", problem)
            except Exception:  # services are served without it
                _LOG.exception("a round of fetching weights failed")
            await asyncio.sleep(GAP_SECONDS)
            self._ended.clear()
            try:
                await asyncio.wait_for(self._ended.wait(), max(LOOK_PERIODS * self._planner.period - GAP_SECONDS, 0.0))
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Look once at everything. Raises: ClusterError."""
        now = self._wall()
        books = self._books()
        busy = await self._settle(books, now)
        self._note_holders(books.values())
        await self._labels.write()
        held = {book.keeping.label: book.weights for book in books.values() if book.keeping.image}
        for uid, book in list(books.items()):
            await asyncio.sleep(0)  # a fleet's worth of it is long, and others have shorter turns
            try:
                book.need = {name: count for name, count in self._need(book).items() if count}
                book.places = self._places(book, book.need, held, now)
                self._tell(book, now)
            except Exception as problem:
                self._note_defect(book.view, problem)
                del books[uid]
        await self._fetch(list(books.values()), self._most - busy, now)

    def _note_defect(self, view: ServiceView, problem: Exception) -> None:
        """One bad service must not stop the others: logged once."""
        self._defects.note(view.uid, f"service {view.name}: no weights are fetched", problem)

    # -- what there is -------------------------------------------------------------------------------------------

    def _books(self) -> dict[str, _Book]:
        """By uid, the most important service first; those that nodes keep nothing for get their verdict at once."""
        books: dict[str, _Book] = {}
        told: dict[str, Verdict] = {}
        for view, choice in self._planner.usable():
            try:
                kept = self._keeping(view, choice)
            except Exception as problem:
                self._note_defect(view, problem)
                continue
            if kept is not None and kept.label:
                books[view.uid] = _Book(view, choice, kept)
            elif kept is not None:
                told[view.uid] = Verdict(False, "NotKept", shorten(kept.why))
        self._verdicts = {uid: known for uid, known in self._verdicts.items() if uid in books or uid in told}
        for uid, entry in told.items():
            self._say(self._observer.views[uid], entry)
        self._forget_gone()
        return books

    def _forget_gone(self) -> None:
        live = self._observer.views
        self._kept.keep(live)
        self._ways.keep(live)
        self._refused = {uid: known for uid, known in self._refused.items() if uid in live}
        self._defects.forget_all_but(live)

    def _keeping(self, view: ServiceView, choice: Choice) -> Keeping | None:
        variant = next(iter(choice.variants.values()), None)
        if variant is None:
            return None
        return self._kept.get(view, lambda: keeping(deployment_plan(view, variant, self._fleet)))

    def _unfetchable(self, book: _Book, variant: Variant) -> str:
        view = book.view
        return self._ways.get(view, lambda: unfetchable(deployment_plan(view, variant, self._fleet)), variant.name)

    def _note_holders(self, books: Iterable[_Book]) -> None:
        """A replica that is ready has loaded its weights, so its node holds them; one that was slow had lost them."""
        self._labels.begin()
        users: dict[str, set[str]] = {}  # by label of weights that are images
        for book in books:
            label, nodes = book.keeping.label, set()
            current = current_replicas(self._observer, book.view)
            for pod in self._observer.pods(book.view):
                nodes.add(pod.spec.node_name)
                node = self._nodes.get(pod.spec.node_name)
                if node is not None and is_ready(pod) and pod.metadata.uid in current:
                    self._labels.ready(pod, node, label, cold=self._warmth.cold(pod))
            if book.keeping.image:
                users.setdefault(label, set()).update(nodes)
        for label, used in users.items():
            self._labels.under_pressure(label, used)

    def _rooms_of(self, book: _Book) -> tuple[CachePlace, ...]:
        """What a need is reckoned from: by variant all free room as one node, for single nodes take long to list."""
        view, spot = book.view, book.view.rules.spot
        planned = view.plan.counts if view.plan is not None else {}
        return tuple(
            CachePlace(variant, planned.get(name, 0), (CacheNode("", self._free(view, variant)),))
            for name, variant in book.choice.variants.items()
            if name in view.needs and (spot.allowed if variant.spot else not spot.only)
        )

    def _free(self, view: ServiceView, variant: Variant) -> int:
        return self._rooms.free(variant, view.needs[variant.name], self._facts(view, variant)[1])

    def _places(
        self, book: _Book, need: Mapping[str, int], held: Mapping[str, int], now: float
    ) -> tuple[CachePlace, ...]:
        """The nodes of every variant that is needed."""
        view = book.view
        places = []
        for name in need:
            variant = book.choice.variants[name]
            every, access = self._free(view, variant), self._facts(view, variant)[1]
            slots = Counter(self._rooms.nodes(variant, view.needs[name], every, access))
            nodes = tuple(self._cache_node(book, node, count, held, now) for node, count in slots.items())
            places.append(CachePlace(variant, 0, nodes))
        return tuple(places)

    def _cache_node(self, book: _Book, name: str, slots: int, held: Mapping[str, int], now: float) -> CacheNode:
        node = self._nodes.get(name)
        labels = node.metadata.labels if node is not None else {}
        pod = _fetch_name(book.view, name) if book.fetches or self._barred else ""
        known = book.fetches.get(pod)
        full = node is None or under_disk_pressure(node)
        if node is not None and book.keeping.image:
            stored = sum(size for label, size in held.items() if label in labels)
            full = full or not has_disk(local_storage(node), stored, book.weights)
        return CacheNode(
            name,
            slots,
            holds=book.keeping.label in labels,
            fetching=known is not None and not known.finished,
            barred=full or known is not None or self._barred.get((book.view.key[0], pod), now) > now,
        )

    # -- what is coming --------------------------------------------------------------------------------------------

    def _need(self, book: _Book) -> dict[str, int]:
        view, plan = book.view, book.view.plan
        if plan is None:
            return {}
        places = self._rooms_of(book)
        need = stand_ins(places)
        if view.rules.mode is not Mode.AUTO:
            return need
        carried = sum(place.count * place.variant.capacity for place in places)
        known = self._demand.of(view)
        work = 0.0
        if known.target is not None and known.target.work is not None:
            peak = known.model.peak(AHEAD_SECONDS, method_of(view)) or 0.0
            work = known.target.work + max(0.0, peak - known.target.point) - carried
        least = 0 if plan.replicas else 1
        most = max(0, view.rules.max_replicas - plan.replicas)
        return larger(need, coming(places, work, least=least, most=most))

    def _tell(self, book: _Book, now: float) -> None:
        told = verdict(book.places, book.need, book.problem)
        if not told.status:
            refusal = self._refusal(book.view, now)
            wanted = to_fetch(book.places, book.need)
            unknown = [self._unfetchable(book, book.choice.variants[name]) for name, _ in wanted]
            if unknown and all(unknown):
                told = Verdict(False, "NoFetcher", shorten(unknown[0]))
            elif refusal:
                told = Verdict(False, "FetchRefused", refusal)
        self._say(book.view, told)

    def _say(self, view: ServiceView, told: Verdict) -> None:
        before = self._verdicts.get(view.uid)
        self._verdicts[view.uid] = told
        if before is None or (before.status, before.reason) != (told.status, told.reason):
            self._changed(view.key)

    # -- fetching ----------------------------------------------------------------------------------------------------

    async def _fetch(self, books: list[_Book], most: int, now: float) -> None:
        wanted = [
            [
                (book, variant, node)
                for variant, node in to_fetch(book.places, book.need)
                if not self._unfetchable(book, book.choice.variants[variant])
            ]
            for book in books
            if not self._refusal(book.view, now)
        ]
        for book, name, node in in_turns(wanted, most):
            plan = deployment_plan(book.view, book.choice.variants[name], self._fleet)
            try:
                await self._client.create(PODS, fetch_pod(plan, node), book.view.key[0])
            except AlreadyExists:
                continue
            except ApiError as problem:
                if isinstance(problem, EVERYBODYS) or (isinstance(problem, Forbidden) and problem.not_permitted):
                    raise
                self._count("refused")
                words = shorten(problem.message)
                self._refused[book.view.uid] = (book.view.object.metadata.generation, now + RETRY_SECONDS, words)
                self._say(book.view, Verdict(False, "FetchRefused", words))
            else:
                self._count("started")

    def _refusal(self, view: ServiceView, now: float) -> str:
        """What the server said against a fetching pod of this very spec a while ago; empty where it may be tried."""
        generation, until, why = self._refused.get(view.uid, (0, 0.0, ""))
        return why if generation == view.object.metadata.generation and now < until else ""

    def _count(self, outcome: str) -> None:
        self._metrics.prefetches.labels(outcome).inc()

    async def _settle(self, books: Mapping[str, _Book], now: float) -> int:
        """Take in how fetches ended, and clean up after them; how many are under way."""
        busy = 0
        self._barred = {name: until for name, until in self._barred.items() if until > now}
        by_key = {book.view.key: book for book in books.values()}
        for key in list(self._fetches.keys()):
            for pod in list(self._fetches.get(key).values()):
                book = by_key.get(key)  # type: ignore[call-overload]
                if await self._over(pod, book, now):
                    await self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
                    continue
                busy += not pod.finished
                if book is not None:
                    book.fetches[pod.metadata.name] = pod
                    book.problem = book.problem or failure(pod)
        return busy

    async def _over(self, pod: wire.Pod, book: _Book | None, now: float) -> bool:
        """Whether ``pod`` has served its purpose."""
        if pod.metadata.deleting:
            return False
        where = pod.spec.node_name
        if pod.status.phase == "Succeeded":
            node = self._nodes.get(where)
            # The name tells the weights: the service may ask for others by now.
            if node is not None and book is not None and pod.metadata.name == _fetch_name(book.view, where):
                await self._labels.put(node, book.keeping.label)
                self._count("succeeded")
            return True
        if pod.status.phase == "Failed":
            over = book is None or now - ended_at(pod) >= RETRY_SECONDS
        elif not where and now - pod.metadata.created >= BIND_SECONDS:
            self._barred[pod.metadata.key] = now + RETRY_SECONDS
            over = True
        else:
            return book is None
        if over:
            self._count("failed")
        return over

    def _on_pod(self, old: wire.Pod | None, new: wire.Pod | None) -> None:
        if new is not None and new.finished and (old is None or not old.finished) and fetched_for(new) is not None:
            self._ended.set()


def _fetch_name(view: ServiceView, node: str) -> str:
    return fetch_pod_name(view.key[1], (view.spec.model.uri if view.spec is not None else None) or "", node)

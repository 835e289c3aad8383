"""The cluster's caches become the fleet and the jobs' views; nothing here decides and nothing writes.

Room is claimed by what is there: live pods where they are bound, the recorded placement for ranks whose pod is not
bound yet, and promises that the scheduling loop has made and no status shows so far. All three share one key per
rank, so that a rank is counted once however far it has come, and the claims of a job are a function of its status,
its pods and its promise alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from berth.api.common import ContractProblem
from berth.api.conditions import INTERNAL_ERROR
from berth.api.trainingjob import parse_spec
from berth.cluster import wire
from berth.controllers import facts
from berth.controllers.finished import FinishedRanks, in_order
from berth.controllers.poolspec import complete, pool_specs
from berth.controllers.status import StatusUnreadable, restore
from berth.controllers.views import Caches, JobKey, JobView, Promise, Share, matters
from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, gang_key
from berth.render.limits import unstartable
from berth.training.records import Placement
from berth.training.request import RequestProblem, as_admitted, asked_conditions, gang_request, names_cpu
from berth.training.sizing import worker_amounts, worker_cpu
from berth.training.state import ACTIVE, JobState, NodeState, Phase, Worker
from berth.values import CPU, Resources, Toleration

__all__ = ["Caches", "JobKey", "JobView", "Observer", "Promise"]

_LOG: Final = logging.getLogger(__name__)


class Observer:
    """Keeps :attr:`fleet`, :attr:`views` and the workers of each job in step with the caches.

    ``wake`` is called with the key of a job that should be looked at, ``changed`` whenever room may have come free.
    """

    def __init__(
        self, fleet: Fleet, caches: Caches, *, wake: Callable[[JobKey], object], changed: Callable[[], object]
    ) -> None:
        self.fleet, self.caches = fleet, caches
        self.views: dict[str, JobView] = {}
        self.promises: dict[str, Promise] = {}
        self._workers: dict[str, dict[str, Worker]] = {}
        self._finished = FinishedRanks()
        self.pools_due = False  # some pool may have become another one: call follow_pools before the next decision
        self.refused_pools: dict[str, str] = {}  # AcceleratorPools that cannot be read, and why
        self._open_pools = False
        self._absorbing = False
        self._wake, self._changed = wake, changed
        caches.nodes.subscribe(self._on_node)
        caches.pools.subscribe(self._on_pool)
        caches.jobs.subscribe(self._on_job)
        caches.pods.subscribe(self._on_pod)
        caches.priority_classes.subscribe(self._on_priority_class)
        caches.rendezvous.subscribe(self._on_rendezvous)

    def workers(self, uid: str) -> list[Worker]:
        """The pods of a job, of every attempt, by attempt and rank; one that is not bound yet is where it is pinned."""
        found = sorted(self._workers.get(uid, {}).values(), key=lambda worker: (worker.attempt, worker.rank))
        view = self.views.get(uid)
        if view is None or view.state.placement is None or all(worker.bound for worker in found):
            return found
        attempt, nodes = view.state.placement_attempt, view.state.placement.nodes
        return [
            replace(worker, node=nodes[worker.rank])
            if not worker.bound and worker.attempt == attempt and worker.rank < len(nodes)
            else worker
            for worker in found
        ]

    def finished(self, view: JobView, attempt: int) -> frozenset[int]:
        """Ranks of an attempt that have finished and whose pods are gone."""
        stated = view.state.finished if attempt == view.state.attempt else frozenset()
        return stated | self._finished.of(view.uid, attempt)

    def node_states(self, view: JobView, workers: list[Worker]) -> dict[str, NodeState]:
        """The state of every node that the job's pods or its placement name."""
        names = {worker.node for worker in workers if worker.node}
        state = view.state
        if state.placement is not None and (state.phase in ACTIVE or state.phase == Phase.RESTARTING):
            names.update(state.placement.nodes)
        pool = self.fleet.pools.get(state.placement.pool) if state.placement else None
        tolerations = view.request.tolerations if view.request else ()
        if pool is not None and pool.resource:
            tolerations = (*tolerations, Toleration(pool.resource, "Exists"))
        return {name: facts.node_state(self.caches.nodes.get(name), tolerations) for name in names}

    def promise(self, uid: str, promise: Promise) -> None:
        """Hold the room of a placement just decided, until the status shows it or it is retracted."""
        view = self.views[uid]
        self.promises[uid] = promise
        view.share = (promise.attempt, promise.share)
        self._sync(view)

    def retract(self, uid: str) -> None:
        """Give a promise back: it is in the status now, or will never be."""
        if self.promises.pop(uid, None) is not None and uid in self.views:
            self._sync(self.views[uid])

    def expire(self, made_before: float, busy: Callable[[JobKey], bool]) -> list[JobView]:
        """Give back the promises of before that moment that nobody is carrying out; the jobs that lost theirs.

        One whose job is ``busy`` stays: its placement may be on the way to the API server just now.
        """
        overdue = [
            view
            for view in (self.views[uid] for uid, promise in self.promises.items() if promise.made < made_before)
            if not busy(view.key)
        ]
        for view in overdue:
            self.retract(view.uid)
        return overdue

    def absorb(self, answer: wire.TrainingJob) -> None:
        """Take in the answer to a write of our own, which needs no look unless it shows an edit."""
        self._absorbing = True
        try:
            self.caches.jobs.put(answer)
        finally:
            self._absorbing = False

    def choose_share(self, view: JobView, placement: Placement) -> Share:
        """What each rank of ``placement`` will hold, before any of it is held."""
        assert view.request is not None
        assert view.spec is not None
        pool = self.fleet.pools.get(placement.pool)
        own_cpu = names_cpu(view.spec.template.get("spec") or {})
        cpu = 0 if own_cpu or pool is None else worker_cpu(pool, view.request, placement.nodes)
        return Share(worker_amounts(view.request, pool, cpu), cpu)

    def share(self, view: JobView) -> Share | None:
        """What each rank of the current attempt holds; None while its pool is not known.

        As it was promised; of an attempt that began before this process as any of its pods says, else chosen anew.
        """
        state = view.state
        if view.share is not None and view.share[0] == state.attempt:
            return view.share[1]
        pool = self.fleet.pools.get(state.placement.pool) if state.placement is not None else None
        if pool is None or view.request is None:
            return None
        pod = self._pod_of_attempt(view)
        if pod is not None:
            own = view.spec is None or pool.resource == CPU or names_cpu(view.spec.template.get("spec") or {})
            stated = next(iter(pod.spec.containers or ()), wire.Container()).resources.requests
            cpu = 0 if own else facts.amount(CPU, stated.get(CPU, "0"))
            view.admit(as_admitted(view.asked or view.request, facts.pod_needs(pod), cpu))
            share = Share(worker_amounts(view.request, pool, cpu), cpu)
            view.share = (state.attempt, share)
            return share
        assert state.placement is not None
        with self.fleet.trial():
            self.fleet.release(view.held)
            return self.choose_share(view, state.placement)

    def settle(self) -> None:
        """Read pools and claim for every job anew, once all caches are complete: each may depend on what came later."""
        self.read_pools()
        for view in self.views.values():
            self._sync(view)

    def _pod_of_attempt(self, view: JobView) -> wire.Pod | None:
        """Some pod of the current attempt, which are alike."""
        for worker in self._workers.get(view.uid, {}).values():
            pod = self.caches.pods.get(worker.name, view.key[0])
            if worker.attempt == view.state.attempt and pod is not None and pod.spec.containers:
                return pod
        return None

    def _on_node(self, old: wire.Node | None, new: wire.Node | None) -> None:
        node = new or old
        assert node is not None
        name = node.metadata.name
        changed = self.fleet.remove_node(name) if new is None else self.fleet.set_node(facts.node_facts(new))
        if not changed:
            return
        if self._open_pools and facts.seen_by_pools(old) != facts.seen_by_pools(new):
            self.pools_due = True
        self._changed()
        if old is None or new is None or old.ready != new.ready or old.spec != new.spec:
            for claim in self.fleet.claims_on(name):
                view = self.views.get(claim.key.partition("/")[0])
                if view is not None:
                    self._wake(view.key)

    def _on_pool(self, old: wire.AcceleratorPool | None, new: wire.AcceleratorPool | None) -> None:
        if old is not None and new is not None and old.metadata.generation == new.metadata.generation:
            return
        self._open_pools = any(not complete(pool) for pool in self.caches.pools)
        self.read_pools()

    def follow_pools(self) -> None:
        """Read the pools again if a node came, went or changed so that what they leave out may have changed."""
        if self.pools_due:
            self.read_pools()

    def read_pools(self) -> None:
        """Read every AcceleratorPool again; what they leave out follows the labels of their nodes."""
        self.pools_due = False
        nodes = ((node.labels, node.allocatable) for node in self.fleet.nodes.values())
        specs, refused = pool_specs(self.caches.pools, self.fleet.catalogue, nodes)
        for name, problem in refused.items():
            if self.refused_pools.get(name) != problem:
                _LOG.error("acceleratorpool %s is not readable: %s", name, problem)
        self.refused_pools = refused
        if self.fleet.set_pools(specs):
            self._changed()

    def _on_priority_class(self, old: wire.PriorityClass | None, new: wire.PriorityClass | None) -> None:
        if old is None or new is None or old.value != new.value:
            for view in self.views.values():
                if view.spec is not None and view.spec.priority_class_name and view.state.phase not in ACTIVE:
                    self._wake(view.key)

    def _on_rendezvous(self, old: wire.Service | None, new: wire.Service | None) -> None:
        """One that came is ours; one that went, or names other pods, is to be mended."""
        owner = facts.job_of(old.metadata) if old is not None else None
        view = self.views.get(owner.uid) if owner is not None else None
        if view is not None and (new is None or old is None or old.spec != new.spec):
            self._wake(view.key)

    def _on_job(self, old: wire.TrainingJob | None, new: wire.TrainingJob | None) -> None:
        if new is None:
            assert old is not None
            view = self.views.pop(old.metadata.uid, None)
            self.promises.pop(old.metadata.uid, None)
            self._finished.forget(old.metadata.uid)
            if view is not None:
                self._drop(view)
            self._wake(old.metadata.key)
            return
        view = self.views.get(new.metadata.uid)
        edited = view is None or view.object.metadata.generation != new.metadata.generation
        if view is None:
            view = self.views[new.metadata.uid] = JobView(new)
            self._read_spec(view)
        elif edited:
            view.object = new
            self._read_spec(view)
            self.promises.pop(view.uid, None)  # made for the job as it was; one on record is in its status
        view.object = new
        self._read_status(view)
        self._sync(view)
        if edited or not self._absorbing:
            self._wake(view.key)

    def _read_spec(self, view: JobView) -> None:
        meta = view.object.metadata
        view.spec = view.asked = view.request = view.problem = None
        try:
            raw = msgspec.json.decode(view.object.spec)
            view.spec = parse_spec(raw, name=meta.name, namespace=meta.namespace)
            view.asked = view.request = gang_request(view.spec, self.fleet.catalogue)
            size = (view.spec.workers, view.spec.accelerators.per_worker)
            if words := unstartable(meta.name, meta.namespace, *size, view.spec.framework):
                view.problem = ("SpecInvalid", words)
        except RequestProblem as problem:
            view.problem = (problem.reason, problem.message)
        except (ContractProblem, msgspec.DecodeError, ValueError) as problem:
            view.problem = ("SpecInvalid", str(problem))
        except Exception as problem:  # a defect of ours on one object must not hide its status and its pods
            _LOG.exception("%s: its spec cannot be read", view.name)
            view.spec, view.problem = None, (INTERNAL_ERROR, facts.defect_words(problem))

    def reread(self) -> None:
        """Read every spec again, after the catalogue has changed."""
        for view in self.views.values():
            self._read_spec(view)
            self._wake(view.key)

    def _read_status(self, view: JobView) -> None:
        raw = view.object.status
        view.persisted = msgspec.json.decode(raw) if raw else {}
        try:
            asked = asked_conditions(view.spec) if view.spec is not None else ()
            view.state, view.unreadable = restore(view.persisted, asked, self._levels), ""
        except StatusUnreadable as problem:
            view.state, view.unreadable = JobState(), str(problem)
        view.settled = False
        self._finished.forget(view.uid, before=view.state.attempt)
        promise = self.promises.get(view.uid)
        if promise is not None and view.state.attempt >= promise.attempt:
            del self.promises[view.uid]

    def _levels(self, pool: str) -> tuple[str, ...]:
        known = self.fleet.pools.get(pool)
        return tuple(level.name for level in known.levels) if known is not None else ()

    def _on_pod(self, old: wire.Pod | None, new: wire.Pod | None) -> None:
        if old is not None and new is not None and facts.gang_rank(old) != facts.gang_rank(new):
            self._on_pod(old, None)  # its owner makes it another one than it was
            old = None
        pod = new or old
        assert pod is not None
        uid = facts.job_uid(pod)
        worker = facts.worker(pod)
        if worker is None:
            self._on_foreign_pod(pod, new)
            return
        known = self._workers.get(uid, {}).get(worker.uid)
        worker = in_order(known, worker)
        view = self.views.get(uid)
        if new is None:
            if view is not None:
                self._finished.removed(uid, worker)
            mine = self._workers.get(uid)
            if mine is not None:
                mine.pop(worker.uid, None)
                if not mine:
                    del self._workers[uid]
        else:
            self._workers.setdefault(uid, {})[worker.uid] = worker
        self._sync_rank(uid, worker.attempt, worker.rank, new)
        if view is not None and (new is None or matters(view, known, worker)):
            self._wake(view.key)

    def _on_foreign_pod(self, pod: wire.Pod, new: wire.Pod | None) -> None:
        claim = facts.pod_claim(new) if new is not None else None
        if claim is not None:
            self.fleet.claim([claim])
        elif pod.metadata.uid in self.fleet.claims:
            self.fleet.release([pod.metadata.uid])
            self._changed()

    def _promised(self, view: JobView) -> tuple[int, Placement, Resources] | None:
        promise = self.promises.get(view.uid)
        if promise is not None:
            return promise.attempt, promise.placement, promise.share.amounts
        state = view.state
        if state.phase in ACTIVE and state.placement is not None and state.placement_attempt == state.attempt:
            if view.request is None:
                return None
            share = self.share(view)
            amounts = worker_amounts(view.request, None, 0) if share is None else share.amounts
            return state.attempt, state.placement, amounts
        return None

    def _sync(self, view: JobView) -> None:
        """Claim exactly what the job's promise or placement and its pods say."""
        wanted: dict[str, Claim] = {}
        promised = self._promised(view)
        if promised is not None:
            attempt, placement, amounts = promised
            over = self.finished(view, attempt)
            for rank, node in enumerate(placement.nodes):
                key = gang_key(view.uid, attempt, rank)
                if rank not in over:
                    wanted[key] = Claim(key, node, amounts, view.name, "Training")
        for worker in self._workers.get(view.uid, {}).values():
            key = gang_key(view.uid, worker.attempt, worker.rank)
            if worker.ended:
                wanted.pop(key, None)
            elif worker.bound and key in self.fleet.claims:
                wanted[key] = self.fleet.claims[key]
        gone = view.held - wanted.keys()
        if gone:
            self.fleet.release(gone)
            self._changed()
        self.fleet.claim(wanted.values())
        view.held = set(wanted)

    def _sync_rank(self, uid: str, attempt: int, rank: int, pod: wire.Pod | None) -> None:
        key = gang_key(uid, attempt, rank)
        view = self.views.get(uid)
        claim = facts.pod_claim(pod) if pod is not None else None
        if claim is None and view is not None and (pod is None or not pod.finished):
            promised = self._promised(view)
            promises = promised is not None and promised[0] == attempt and rank < len(promised[1].nodes)
            if promised is not None and promises and rank not in self.finished(view, attempt):
                claim = Claim(key, promised[1].nodes[rank], promised[2], view.name, "Training")
        if claim is not None:
            self.fleet.claim([claim])
            if view is not None:
                view.held.add(key)
            return
        if key in self.fleet.claims:
            self.fleet.release([key])
            self._changed()
        if view is not None:
            view.held.discard(key)

    def _drop(self, view: JobView) -> None:
        """A job is gone: only its pods that are still there hold room."""
        bound = {
            gang_key(view.uid, worker.attempt, worker.rank)
            for worker in self._workers.get(view.uid, {}).values()
            if worker.bound and not worker.ended
        }
        self.fleet.release(view.held - bound)
        self._changed()

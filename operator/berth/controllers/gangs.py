"""From a job's view to the plan that its objects are rendered from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from berth.api.names import PRIORITY_CLASS_TRAINING
from berth.api.trainingjob import TrainingJobSpec
from berth.catalogue.records import Catalogue, FabricKind
from berth.controllers.observe import JobView, Observer
from berth.fleet.fleet import Fleet
from berth.fleet.pool import Pool
from berth.render.gang import GangPlan
from berth.training.candidates import candidates
from berth.training.checkpoint import initial_policy
from berth.training.records import Placement, Refusal
from berth.training.request import grace_seconds, names_cpu
from berth.training.sizing import nominal_share, worker_rdma
from berth.training.state import Checkpoint, JobState

SOME_CPU: Final = 1000
"""Millicores per accelerator in a probe while no pool is known: a quota may want any stated at all."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the chart decides. ``native_gangs``: the API server serves PodGroup and the chart wants it used."""

    priority_class: str = PRIORITY_CLASS_TRAINING
    native_gangs: bool = False


def gang_plan(view: JobView, state: JobState, observer: Observer, settings: Settings) -> GangPlan | None:
    """The plan of the current attempt; None while its pool is not known, as in the first moments after a start."""
    request, placement = view.request, state.placement
    assert request is not None
    assert placement is not None
    pool = observer.fleet.pools.get(placement.pool)
    share = observer.share(view)
    if pool is None or share is None:
        return None
    view.share = (state.attempt, share)
    rdma = worker_rdma(pool, _fabric_kind(pool, observer.fleet), request, placement.nodes)
    worker = _Worker(pool.spec.name, pool.resource, share.cpu_millicores, rdma)
    return _plan(view, settings, worker, state.attempt, placement.nodes, state.checkpoint)


def probe_plan(view: JobView, fleet: Fleet, settings: Settings) -> GangPlan:
    """The plan of an attempt on the first pool that may take the job, to have a pod of it judged before it is placed.

    Where no pool may, a pod of an accelerator that the job allows is judged all the same.
    """
    spec, request = view.spec, view.request
    assert spec is not None
    assert request is not None
    found = candidates(fleet, request)
    cpu, rdma = SOME_CPU * spec.accelerators.per_worker, dict[str, int]()
    if isinstance(found, Refusal) or not found:
        known = fleet.catalogue.accelerators
        resources = [known[name].resource for name in spec.accelerators.types if known[name].resource]
        name, resource = "unknown", resources[0] if resources else "berth.dev/accelerator"
    else:
        pool = found[0][0].pool
        name, resource = pool.spec.name, pool.resource
        cpu, rdma = nominal_share(pool, _fabric_kind(pool, fleet), request)
    if names_cpu(spec.template.get("spec") or {}):
        cpu = 0
    nominal = Placement(name, tuple(f"unknown-{rank}" for rank in range(spec.workers)), "Bounded", {}, {})
    checkpoint = view.state.checkpoint or initial_checkpoint(spec, nominal, fleet.catalogue)
    return _plan(view, settings, _Worker(name, resource, cpu, rdma), 1, nominal.nodes, checkpoint)


@dataclass(frozen=True, slots=True)
class _Worker:
    """What a rank gets from its pool: devices by ``resource``, millicores beyond the template's, RDMA devices."""

    pool: str
    resource: str
    cpu: int
    rdma: Mapping[str, int]


def _plan(
    view: JobView,
    settings: Settings,
    worker: _Worker,
    attempt: int,
    nodes: tuple[str, ...],
    checkpoint: Checkpoint | None,
) -> GangPlan:
    spec = view.spec
    assert spec is not None
    return GangPlan(
        name=spec.name,
        namespace=spec.namespace,
        uid=view.uid,
        attempt=attempt,
        pool=worker.pool,
        resource=worker.resource,
        accelerators_per_worker=spec.accelerators.per_worker,
        nodes=nodes,
        template=spec.template,
        priority_class=settings.priority_class,
        framework=spec.framework,
        cpu_millicores=worker.cpu,
        rdma=worker.rdma,
        environment=environment(spec, checkpoint),
        preempt_signal=spec.preempt_signal if _warns(spec) else "",
        preempt_seconds=_deadline_seconds(spec) if _warns(spec) else 0,
        pod_group=settings.native_gangs,
    )


def _fabric_kind(pool: Pool, fleet: Fleet) -> FabricKind | None:
    return fleet.catalogue.fabrics.get(pool.spec.fabric.kind) if pool.spec.fabric else None


def _warns(spec: TrainingJobSpec) -> bool:
    return spec.checkpoint is not None and spec.checkpoint.on_preempt is not None


def _deadline_seconds(spec: TrainingJobSpec) -> int:
    """How long workers get to save before a preemption; the template's own grace period where the user names none."""
    deadline = spec.preempt_deadline_seconds
    return grace_seconds(spec.template.get("spec") or {}) if deadline is None else max(1, round(deadline))


def environment(spec: TrainingJobSpec, checkpoint: Checkpoint | None) -> Mapping[str, str]:
    """What every rank is told of parallelism and checkpoints."""
    said: dict[str, Any] = {}
    if spec.parallelism is not None:
        cut = spec.parallelism
        said |= {
            "BERTH_TENSOR_PARALLEL": cut.tensor,
            "BERTH_PIPELINE_PARALLEL": cut.pipeline,
            "BERTH_CONTEXT_PARALLEL": cut.context,
            "BERTH_EXPERT_PARALLEL": cut.expert,
            "BERTH_DATA_PARALLEL": spec.data_parallel(spec.workers),
        }
    if checkpoint is not None and (spec.checkpoint is not None or spec.model is not None):
        said |= {
            "BERTH_CHECKPOINT_INTERVAL_SECONDS": checkpoint.interval_seconds,
            "BERTH_CHECKPOINT_KEEP": spec.checkpoints_kept,
        }
        if spec.checkpoint_uri:
            said["BERTH_CHECKPOINT_URI"] = spec.checkpoint_uri
    if _warns(spec):
        said |= {
            "BERTH_PREEMPT_SIGNAL": spec.preempt_signal,
            "BERTH_PREEMPT_DEADLINE_SECONDS": _deadline_seconds(spec),
        }
    return {name: str(value) for name, value in said.items()}


def initial_checkpoint(spec: TrainingJobSpec, placement: Placement | None, catalogue: Catalogue) -> Checkpoint | None:
    """The checkpoint policy of a new attempt on ``placement``; None for a job that says nothing of checkpoints."""
    if placement is None or (spec.checkpoint is None and spec.model is None):
        return None
    nodes = len(set(placement.nodes))
    uri = spec.checkpoint_uri or ""
    store = catalogue.storage_of(scheme=urlsplit(uri).scheme) if uri else None
    bandwidth = spec.checkpoint_bytes_per_second or (store.write_bandwidth(nodes) if store is not None else None)
    policy = initial_policy(
        nodes=nodes,
        size_bytes=spec.checkpoint_bytes or spec.model_bytes or 0,
        write_bytes_per_second=bandwidth or 0,
        fixed_interval_seconds=spec.checkpoint_interval_seconds,
    )
    return Checkpoint(
        interval_seconds=policy.interval_seconds,
        size_bytes=policy.size_bytes,
        stall_milliseconds=round(policy.stall_seconds * 1000),
        mtbf_seconds=round(policy.mtbf_seconds),
        reason=policy.reason,
    )

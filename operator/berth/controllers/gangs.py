"""From a job's view to the plan that its objects are rendered from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from berth.api.names import PRIORITY_CLASS_TRAINING
from berth.api.trainingjob import TrainingJobSpec
from berth.catalogue.records import Catalogue
from berth.controllers.observe import JobView, Observer
from berth.fleet.fleet import Fleet
from berth.render.gang import GangPlan
from berth.training.checkpoint import initial_policy
from berth.training.records import Placement
from berth.training.request import grace_seconds
from berth.training.sizing import worker_rdma
from berth.training.state import Checkpoint, JobState
from berth.values import CPU


@dataclass(frozen=True, slots=True)
class Settings:
    """What the chart decides. ``native_gangs``: the API server serves PodGroup and the chart wants it used."""

    priority_class: str = PRIORITY_CLASS_TRAINING
    native_gangs: bool = False


def gang_plan(view: JobView, state: JobState, observer: Observer, settings: Settings) -> GangPlan | None:
    """The plan of the current attempt; None while its pool is not known, as in the first moments after a start."""
    spec, request, placement = view.spec, view.request, state.placement
    assert spec is not None
    assert request is not None
    assert placement is not None
    pool = observer.fleet.pools.get(placement.pool)
    amounts = observer.amounts(view)
    if pool is None or amounts is None:
        return None
    view.amounts = (state.attempt, amounts)
    kind = observer.fleet.catalogue.fabrics.get(pool.spec.fabric.kind) if pool.spec.fabric else None
    cpu = amounts.get(CPU, 0) - request.per_worker.get(CPU, 0)
    return GangPlan(
        name=spec.name,
        namespace=spec.namespace,
        uid=view.uid,
        attempt=state.attempt,
        pool=placement.pool,
        resource=pool.resource,
        accelerators_per_worker=spec.accelerators.per_worker,
        nodes=placement.nodes,
        template=spec.template,
        priority_class=settings.priority_class,
        framework=spec.framework,
        cpu_millicores=max(cpu, 0),
        rdma=worker_rdma(pool, kind, request, placement.nodes),
        environment=environment(spec, state.checkpoint),
        preempt_signal=spec.preempt_signal if _warns(spec) else "",
        preempt_seconds=_deadline_seconds(spec) if _warns(spec) else 0,
        pod_group=settings.native_gangs,
    )


def probe_plan(view: JobView, settings: Settings, fleet: Fleet) -> GangPlan:
    """A plan good enough to have one pod of it judged: the first accelerator that the job allows and a pool has."""
    spec = view.spec
    assert spec is not None
    known = fleet.catalogue.accelerators
    resources = [known[name].resource for name in spec.accelerators.types if name in known and known[name].resource]
    resources += [pool.resource for _, pool in sorted(fleet.pools.items()) if pool.resource]
    return GangPlan(
        name=spec.name,
        namespace=spec.namespace,
        uid=view.uid,
        attempt=1,
        pool="unknown",
        resource=resources[0] if resources else "berth.dev/accelerator",
        accelerators_per_worker=spec.accelerators.per_worker,
        nodes=("unknown",),
        template=spec.template,
        priority_class=settings.priority_class,
    )


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

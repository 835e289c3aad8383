"""TrainingJob: a gang of workers that start, fail and move together.

The fields hold what the user wrote. What a field means when it is left out is answered by the accessors of
:class:`TrainingJobSpec`, in plain numbers (seconds, bytes, pieces), so that no decision parses text or knows a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import gcd
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, PrivateAttr

from berth.api import trainingjob_rules as checks
from berth.api.cel import validated
from berth.api.common import AUTO, ContractProblem, Duration, LabelName, Model, SubdomainName, code_default
from berth.api.template import WorkerTemplate
from berth.api.template_shape import misshapen
from berth.api.trainingjob_parts import (
    BYTES_PER_PARAMETER,
    CHECKPOINTS_KEPT,
    MAX_RESTARTS,
    PREEMPT_SIGNAL,
    RESTART,
    Accelerators,
    Checkpoint,
    FabricRequest,
    Lineage,
    Parallelism,
    Recovery,
    RecoveryRule,
    RestartMode,
    Signal,
    TopologyRequest,
    TrainedModel,
)
from berth.api.trainingjob_status import TrainingJobStatus
from berth.values import parse_count, parse_duration, parse_quantity

START_TIMEOUT: Final = "10m"
MAX_START_ATTEMPTS: Final = 5

Framework = Literal["PyTorch", "JAX", "TensorFlow", "MPI", "None"]
Workers = Annotated[int, Field(ge=1, le=checks.MAX_WORKERS)]


class TrainingJobSpec(Model):
    """What the user asks for."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.SPEC))

    workers: Workers
    """Gang size in pods; all or nothing. Frozen."""
    min_workers: Workers | None = None
    """Elastic floor; sizes move by whole data-parallel replicas. Absent: workers. Frozen. Accepted; no effect yet."""
    accelerators: Accelerators
    """The devices of a worker. Frozen."""
    model: TrainedModel | None = None
    """What is trained. Frozen."""
    parallelism: Parallelism | None = None
    """How the model is cut. Frozen."""
    fabric: FabricRequest | None = None
    """The least network between nodes. Frozen."""
    topology: TopologyRequest | None = None
    """How close the workers must lie. Frozen."""
    framework: Framework = "None"
    """Whose rendezvous environment the workers get. Frozen."""
    queue_name: LabelName | None = None
    """Fair-share group; another namespace's only where that queue admits it. Absent: the namespace. Accepted; no effect
    yet."""
    priority_class_name: SubdomainName | None = None
    """A PriorityClass; orders Berth's queue only."""
    suspend: bool = False
    """True: save, release, keep the record."""
    expected_duration: Duration | None = None
    """Lets the scheduler promise starts and backfill. Accepted; no effect yet."""
    start_timeout: Annotated[Duration | None, code_default(START_TIMEOUT)] = None
    """Pods not all running by then: release all, back off, retry."""
    max_start_attempts: Annotated[
        Annotated[int, Field(ge=1, le=1000)] | None, code_default(str(MAX_START_ATTEMPTS))
    ] = None
    """Starts in a row that may time out before the job is Failed with StartFailed."""
    max_duration: Duration | None = None
    """Running time summed over attempts; waiting does not count. Absent: no limit."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """The object is deleted this long after it finished. Absent: kept."""
    checkpoint: Checkpoint | None = None
    """When the job saves, where, and how many saves are kept."""
    recovery: Recovery | None = None
    """What happens when a worker fails or a node is lost."""
    lineage: Lineage | None = None
    """Where the model comes from."""
    template: WorkerTemplate
    """PodTemplateSpec of a worker; the first container is the worker. Frozen."""

    _name: str = PrivateAttr(default="")
    _namespace: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        """The job's name; empty where the spec was not read by :func:`parse_spec`."""
        return self._name

    @property
    def namespace(self) -> str:
        """The job's namespace; empty where the spec was not read by :func:`parse_spec`."""
        return self._namespace

    @property
    def queue(self) -> str:
        """The fair-share group: queueName or the namespace."""
        return self.queue_name or self._namespace

    @property
    def smallest_workers(self) -> int:
        """The fewest workers it may run with."""
        return self.min_workers or self.workers

    @property
    def worker_step(self) -> int:
        """Workers by which the size may move: whole data-parallel replicas on whole workers."""
        return self.model_parallel // gcd(self.model_parallel, self.accelerators.per_worker)

    @property
    def model_parallel(self) -> int:
        """Devices of one data-parallel replica: tensor x pipeline x context."""
        cut = self.parallelism or Parallelism()
        return cut.tensor * cut.pipeline * cut.context

    @property
    def slice_workers(self) -> int:
        """Workers of one tensor group, which must share an NVLink domain; 1 where a worker holds a whole group."""
        return max(1, (self.parallelism.tensor if self.parallelism else 1) // self.accelerators.per_worker)

    def data_parallel(self, workers: int) -> int:
        """Data-parallel replicas at a size of ``workers``."""
        return workers * self.accelerators.per_worker // self.model_parallel

    @cached_property
    def parameters_count(self) -> int | None:
        """Parameters of the model; None where it is not described."""
        return parse_count(self.model.parameters) if self.model else None

    @property
    def bytes_per_parameter(self) -> int:
        """Training state per parameter."""
        return (self.model.bytes_per_parameter if self.model else None) or BYTES_PER_PARAMETER

    @property
    def model_bytes(self) -> int | None:
        """Bytes of the whole training state; None where the model is not described."""
        return None if self.parameters_count is None else self.parameters_count * self.bytes_per_parameter

    @cached_property
    def expected_duration_seconds(self) -> float | None:
        """How long the user expects it to run; None where not said."""
        return _seconds(self.expected_duration)

    @cached_property
    def start_timeout_seconds(self) -> float:
        """Time for all pods to run."""
        return parse_duration(self.start_timeout or START_TIMEOUT)

    @property
    def start_attempts(self) -> int:
        """Starts in a row that may time out."""
        return self.max_start_attempts or MAX_START_ATTEMPTS

    @cached_property
    def max_duration_seconds(self) -> float | None:
        """Running time over all attempts; None: no limit."""
        return _seconds(self.max_duration)

    @cached_property
    def checkpoint_interval_seconds(self) -> float | None:
        """Time between saves as the user fixed it; None: Auto."""
        interval = self._checkpoint.interval
        return None if interval in (None, AUTO) else _seconds(interval)

    @cached_property
    def checkpoint_bytes(self) -> int | None:
        """Size of one checkpoint as the user gave it; None: from the model."""
        return _bytes(self._checkpoint.size)

    @cached_property
    def checkpoint_bytes_per_second(self) -> int | None:
        """What the store sustains as the user gave it; None: from the catalogue or measured."""
        return _bytes(self._checkpoint.write_bandwidth)

    @property
    def checkpoints_kept(self) -> int:
        """Complete checkpoints that stay at the uri."""
        return self._checkpoint.keep or CHECKPOINTS_KEPT

    @property
    def checkpoint_uri(self) -> str | None:
        """Where checkpoints lie; None where not said."""
        return self._checkpoint.uri

    @property
    def preempt_signal(self) -> Signal:
        """Sent to the workers before a preemption."""
        warning = self._checkpoint.on_preempt
        return (warning.signal if warning else None) or PREEMPT_SIGNAL

    @cached_property
    def preempt_deadline_seconds(self) -> float | None:
        """Time that the workers get to save; None where not said: the template's own grace period holds."""
        warning = self._checkpoint.on_preempt
        return _seconds(warning.deadline) if warning else None

    @property
    def restart(self) -> RestartMode:
        """Whether a failure restarts all workers or goes on with the rest."""
        return self._recovery.restart or RESTART

    @property
    def max_restarts(self) -> int:
        """Failures of its own that are forgiven."""
        return MAX_RESTARTS if self._recovery.max_restarts is None else self._recovery.max_restarts

    @property
    def recovery_rules(self) -> tuple[RecoveryRule, ...]:
        """The rules in order; the first that matches decides."""
        return self._recovery.rules

    @cached_property
    def force_delete_after_seconds(self) -> float | None:
        """When pods that an unreachable node holds are deleted by force; None: never."""
        return _seconds(self._recovery.force_delete_after)

    @property
    def spares(self) -> int | None:
        """Hot spare workers; None: Auto."""
        asked = self._recovery.spares
        return asked if isinstance(asked, int) else None if asked == AUTO else 0

    @property
    def _checkpoint(self) -> Checkpoint:
        return self.checkpoint or _NO_CHECKPOINT

    @property
    def _recovery(self) -> Recovery:
        return self.recovery or _NO_RECOVERY


_NO_CHECKPOINT: Final = Checkpoint()
_NO_RECOVERY: Final = Recovery()


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration(duration)


def _bytes(quantity: int | str | None) -> int | None:
    return None if quantity is None else int(parse_quantity(quantity))


class TrainingJob(Model):
    """A gang of workers that start, fail and move together."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.ROOT))

    spec: TrainingJobSpec
    """What the user asks for."""
    status: TrainingJobStatus | None = None
    """What became of it; written by Berth on transitions."""


def parse_spec(raw: Mapping[str, Any], *, name: str, namespace: str) -> TrainingJobSpec:
    """The spec of a live object.

    Raises:
        ContractProblem: it is not of the contract's form, as an object stored under an older CRD may be; or its
            template is not of a pod's, which the schema leaves open.
    """
    spec = TrainingJobSpec.parse(raw, "spec")
    problem = misshapen(spec.template)
    if problem is not None:
        raise ContractProblem(problem)
    spec._name, spec._namespace = name, namespace
    return spec


def parse_status(raw: Mapping[str, Any] | None) -> TrainingJobStatus:
    """The status of a live object; an absent one is the empty status. Raises: ContractProblem."""
    return TrainingJobStatus.parse(raw or {}, "status")

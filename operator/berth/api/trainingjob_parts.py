"""The parts of a TrainingJob's spec: one small model per block of the contract.

Each holds what the user wrote; what an absent field means is answered by
:class:`berth.api.trainingjob.TrainingJobSpec`, from the constants here.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from berth.api import trainingjob_rules as checks
from berth.api.cel import checked, validated
from berth.api.common import (
    AUTO,
    CatalogueName,
    Count,
    Duration,
    DurationOrAuto,
    LabelName,
    Model,
    Quantity,
    SecretReference,
    atomic,
    code_default,
    int_or_auto,
    list_set,
)

MAX_RESTARTS: Final = 10
BYTES_PER_PARAMETER: Final = 12
CHECKPOINTS_KEPT: Final = 2
PREEMPT_SIGNAL: Final = "SIGTERM"
RESTART: Final = "Gang"

Signal = Literal["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"]
RestartMode = Literal["Gang", "Elastic"]
Degree = Annotated[int, Field(ge=1, le=checks.MAX_WORKERS)]
CheckpointUri = Annotated[str, Field(min_length=1, max_length=1024), checked(*checks.CHECKPOINT_URI)]


class Accelerators(Model):
    """The devices of a worker."""

    per_worker: Annotated[int, Field(ge=1, le=256)]
    """Devices of each worker; they are filled into the template's first container."""
    types: Annotated[
        tuple[CatalogueName, ...], Field(min_length=1, max_length=32), atomic(), checked(checks.TYPES_ONCE)
    ] = ()
    """Catalogue names that are allowed, in order of preference. Absent: any training accelerator that fits."""


class TrainedModel(Model):
    """What is trained: sizes the memory and the checkpoint."""

    parameters: Count
    """Number of parameters: 70B, 1.8T or an integer."""
    bytes_per_parameter: Annotated[
        Annotated[int, Field(ge=1, le=64)] | None, code_default(str(BYTES_PER_PARAMETER))
    ] = None
    """Weights, gradients and optimizer state; 16 with FP32 master weights."""


class Parallelism(Model):
    """How the model is cut: tensor x pipeline x context x data = workers x accelerators.perWorker."""

    tensor: Degree = 1
    """Devices of a tensor group, which stays in one NVLink domain."""
    pipeline: Degree = 1
    """Pipeline stages."""
    context: Degree = 1
    """Devices that share one sequence."""
    expert: Degree = 1
    """Devices that share the experts; divides data, so it is not a factor of the product."""
    data: Annotated[int, Field(ge=1, le=256 * checks.MAX_WORKERS)] | None = None
    """Data-parallel replicas. Absent: what the others leave at the size the gang has; given, it holds at workers."""


class FabricRequest(Model):
    """The least network between nodes that the gang accepts."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    kinds: Annotated[tuple[CatalogueName, ...], Field(min_length=1, max_length=8), list_set()] = ()
    """Catalogue names of fabrics, such as InfiniBand or RoCE; any of them will do. Absent: any."""
    min_gbps: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Gigabits per second of each rail."""
    min_rails: Annotated[int, Field(ge=1, le=64)] | None = None
    """Rails of each node."""


class TopologyRequest(Model):
    """Levels of the pool's topology, by the names that the pool gives them."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    required: LabelName | None = None
    """The gang never crosses one domain of this level."""
    preferred: LabelName | None = None
    """The gang uses the fewest domains of this level, proven or bounded."""


class ColdStorage(Model):
    """Where older checkpoints are moved."""

    uri: CheckpointUri
    """Their place; the same schemes as checkpoint.uri."""
    keep: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """The newest that stay there. Absent: all."""


class OnPreempt(Model):
    """How a worker is told to save before it is preempted."""

    signal: Annotated[Signal | None, code_default(PREEMPT_SIGNAL)] = None
    """Sent to the worker."""
    deadline: Duration | None = None
    """Time it gets before it is killed. Absent: the template's terminationGracePeriodSeconds."""


class Checkpoint(Model):
    """When the job saves, where, and how many saves are kept."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.CHECKPOINT))

    interval: Annotated[DurationOrAuto | None, code_default(AUTO)] = None
    """Time between saves. Auto: Daly's optimum for the stall and the failure rate expected; neither is measured yet."""
    uri: CheckpointUri | None = None
    """Where checkpoints lie: s3, gs, az, file, or pvc://claim/path in this namespace."""
    size: Quantity | None = None
    """Bytes of one checkpoint. Absent: from the model."""
    write_bandwidth: Quantity | None = None
    """Bytes per second that the store sustains for this gang. Absent: from the catalogue."""
    keep: Annotated[Annotated[int, Field(ge=1, le=100_000)] | None, code_default(str(CHECKPOINTS_KEPT))] = None
    """The newest complete ones that stay at uri. Told to the workers; nothing is removed yet."""
    cold: ColdStorage | None = None
    """Older ones move here. Accepted; no effect yet."""
    secret_ref: SecretReference | None = None
    """Credentials of the mover. The job's own access is template.spec.serviceAccountName.
    Accepted; no effect yet."""
    on_preempt: OnPreempt | None = None
    """The warning before a worker is stopped: a drain, an eviction, a suspension. Berth itself preempts nobody yet."""


class OnExitCodes(Model):
    """Exit codes of a worker, as in Job's podFailurePolicy."""

    container_name: LabelName | None = None
    """The container. Absent: any."""
    operator: Literal["In", "NotIn"]
    """Whether the code is among values."""
    values: Annotated[tuple[Annotated[int, Field(ge=0, le=255)], ...], Field(min_length=1, max_length=255), list_set()]
    """Exit codes; 0 is no failure."""


class OnPodCondition(Model):
    """A condition of a worker's pod, as in Job's podFailurePolicy."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """The condition's type."""
    status: Literal["True", "False", "Unknown"] = "True"
    """The condition's status."""


class RecoveryRule(Model):
    """What follows a failure of a certain kind."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.RECOVERY_RULE))

    name: LabelName
    """Shown in status.attempts when the rule decided."""
    action: Literal["Fail", "Restart", "RestartFree"]
    """End the job, restart it, or restart it without counting the failure."""
    on_exit_codes: Annotated[OnExitCodes | None, checked(checks.NO_ZERO)] = None
    """Matches by exit code."""
    on_pod_conditions: Annotated[tuple[OnPodCondition, ...], Field(min_length=1, max_length=20), atomic()] | None = None
    """Matches by any of these pod conditions."""


class Recovery(Model):
    """What happens when a worker fails or a node is lost."""

    restart: Annotated[RestartMode | None, code_default(RESTART)] = None
    """Gang: all again. Elastic: go on with what is left, at least minWorkers; accepted, and the same as Gang yet."""
    max_restarts: Annotated[Annotated[int, Field(ge=0, le=1_000_000)] | None, code_default(str(MAX_RESTARTS))] = None
    """Failures of the job's own that are forgiven; infrastructure and preemption are never charged."""
    force_delete_after: Duration | None = None
    """Pods that an unreachable node holds are deleted by force after this time. Absent: never."""
    spares: Annotated[int | Literal["Auto"] | None, int_or_auto(0, 1000), code_default("0")] = None
    """Hot spare workers. Auto: from failure rate and repair time. Accepted; no effect yet."""
    rules: Annotated[tuple[RecoveryRule, ...], Field(max_length=20), atomic(), checked(checks.RULES_ONCE)] = ()
    """The first that matches decides. Node faults need none."""


class Dataset(Model):
    """The data that the model is trained on."""

    uri: Annotated[str, Field(min_length=1, max_length=1024)]
    """Its place, for the record only."""
    version: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Its version."""


class Lineage(Model):
    """Where the model comes from; recorded, never interpreted."""

    dataset: Dataset | None = None
    """The data."""
    parent: Annotated[str, Field(min_length=1, max_length=104), checked(checks.PARENT)] | None = None
    """The job it continues: a name of this namespace, or namespace/name."""

"""Pods, as far as placement, lifecycle and starts read them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import field
from msgspec.structs import force_setattr

from berth.cluster.sharing import share_texts, shared, shared_texts
from berth.cluster.wire.meta import NO_META, Condition, Meta, Wire


class ResourceNeeds(Wire, frozen=True):
    """Requests and limits as quantity texts."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "requests", shared_texts(self.requests))
        force_setattr(self, "limits", shared_texts(self.limits))


NO_NEEDS: Final = ResourceNeeds()


class Patience(Wire, frozen=True):
    """Of a probe, how long it fails before something is done about it."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10
    failure_threshold: int = 3

    @property
    def seconds(self) -> int:
        """From the start of the container."""
        return self.initial_delay_seconds + self.period_seconds * self.failure_threshold

    @property
    def least(self) -> int:
        """The same where the first probe fails at once."""
        return self.seconds - self.period_seconds


class Container(Wire, frozen=True):
    """A container or init container; an init container with ``restart_policy`` Always is a sidecar."""

    name: str = ""
    resources: ResourceNeeds = NO_NEEDS
    restart_policy: str = ""
    startup_probe: Patience | None = None

    def __post_init__(self) -> None:
        share_texts(self, "name", "restart_policy")
        if self.startup_probe is not None:
            force_setattr(self, "startup_probe", shared(self.startup_probe, self.startup_probe))


class PodToleration(Wire, frozen=True):
    """``core/v1`` Toleration; an absent operator means Equal."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def __post_init__(self) -> None:
        share_texts(self, "key", "operator", "value", "effect")


class PodSpec(Wire, frozen=True):
    """The parts of a pod's spec that decide where it is and what it holds."""

    node_name: str = ""
    containers: tuple[Container, ...] | None = ()  # null in bookmarks
    init_containers: tuple[Container, ...] = ()
    resources: ResourceNeeds | None = None  # of the pod as a whole, where the cluster has pod-level resources
    overhead: dict[str, str] = {}
    priority_class_name: str = ""
    scheduler_name: str = ""
    tolerations: tuple[PodToleration, ...] = ()

    def __post_init__(self) -> None:
        share_texts(self, "node_name", "priority_class_name", "scheduler_name")
        force_setattr(self, "overhead", shared_texts(self.overhead))
        if self.tolerations:
            force_setattr(self, "tolerations", shared(self.tolerations, self.tolerations))


class StateWaiting(Wire, frozen=True):
    """Why a container does not run yet, such as ImagePullBackOff."""

    reason: str = ""
    message: str = ""


class StateRunning(Wire, frozen=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class StateTerminated(Wire, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Wire, frozen=True):
    """At most one of the three is set."""

    waiting: StateWaiting | None = None
    running: StateRunning | None = None
    terminated: StateTerminated | None = None


NO_STATE: Final = ContainerState()


class ContainerStatus(Wire, frozen=True):
    """How a container is; ``last_state`` is how its previous run ended."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image_id: str = field(default="", name="imageID")
    state: ContainerState = NO_STATE
    last_state: ContainerState = NO_STATE

    def __post_init__(self) -> None:
        share_texts(self, "name", "image_id")


class PodStatus(Wire, frozen=True):
    """How a pod is. ``phase`` is Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        share_texts(self, "phase", "reason")


class Pod(Wire, frozen=True):
    """``core/v1`` Pod."""

    metadata: Meta = NO_META
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether every container has ended for good, so that the pod holds no room any more."""
        return self.status.phase in ("Succeeded", "Failed")

"""Kubernetes objects as they travel, cut down to the fields that Berth uses.

Decoding is the only cost that grows with the cluster, so it is typed: msgspec skips what no struct names
(managed fields, annotations, volumes, images of a node) without ever making Python objects of it. Values are
frozen and nobody copies them; what repeats from pod to pod exists once (:mod:`berth.cluster.sharing`). Structs stay
out of the garbage collector's reach (``gc=False``): they are trees made by a decoder, which cannot contain a cycle.

Every field has a default, because a bookmark is an object with nothing but a resourceVersion. Annotations are
left out but for InferenceServices': elsewhere they are never input.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, field
from msgspec.structs import force_setattr

from berth.cluster.sharing import interned, share_texts, shared, shared_texts

NO_BYTES: Final = Raw(b"")


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of every struct here."""


class OwnerReference(Wire, frozen=True):
    """``metav1.OwnerReference``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False

    def __post_init__(self) -> None:
        share_texts(self, "api_version", "kind", "name", "uid")


class Meta(Wire, frozen=True):
    """``metav1.ObjectMeta``. ``namespace`` is empty for cluster-scoped objects."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None

    def __post_init__(self) -> None:
        share_texts(self, "name", "namespace")
        if self.labels:
            force_setattr(self, "labels", interned(self.labels))

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name): the key of caches and queues."""
        return (self.namespace, self.name)

    @property
    def version(self) -> int:
        """The resourceVersion as the integer that the API server promises it to be; 0 when absent."""
        return int(self.resource_version or 0)

    @property
    def created(self) -> float:
        """Creation time in Unix seconds; 0.0 when absent."""
        return self.creation_timestamp.timestamp() if self.creation_timestamp else 0.0

    @property
    def deleting(self) -> bool:
        """Whether deletion has begun."""
        return self.deletion_timestamp is not None

    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


NO_META: Final = Meta()


class Object(Protocol):
    """What caches need to know about any object."""

    @property
    def metadata(self) -> Meta:
        """Its metadata."""


class Condition(Wire, frozen=True):
    """A condition of a pod, a node or one of our kinds; ``status`` is ``True``, ``False`` or ``Unknown``."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0

    def __post_init__(self) -> None:
        share_texts(self, "type", "status", "reason", "message")
        if self.last_transition_time is not None:
            force_setattr(self, "last_transition_time", shared(self.last_transition_time, self.last_transition_time))


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of type ``kind``, if stated."""
    return next((stated for stated in conditions if stated.type == kind), None)


def holds(conditions: tuple[Condition, ...], kind: str) -> bool:
    """Whether the condition of type ``kind`` is stated to be True."""
    stated = condition(conditions, kind)
    return stated is not None and stated.status == "True"


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


class NodeTaint(Wire, frozen=True):
    """``core/v1`` Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None

    def __post_init__(self) -> None:
        share_texts(self, "key", "value", "effect")


class NodeSpec(Wire, frozen=True):
    """Whether a node takes pods."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


class NodeStatus(Wire, frozen=True):
    """What a node offers and how it is."""

    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "allocatable", shared_texts(self.allocatable))


class Node(Wire, frozen=True):
    """``core/v1`` Node."""

    metadata: Meta = NO_META
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether the kubelet says, and recently said, that it can run pods."""
        return holds(self.status.conditions, "Ready")


class Custom(Wire, frozen=True):
    """One of our own kinds: ``spec`` and ``status`` stay JSON text, which the contract's models read.

    Empty bytes when absent. The texts are copied out of the page that they came in, which would otherwise live
    as long as the smallest object of it.
    """

    metadata: Meta = NO_META
    spec: Raw = NO_BYTES
    status: Raw = NO_BYTES

    def __post_init__(self) -> None:
        force_setattr(self, "spec", self.spec.copy())
        force_setattr(self, "status", self.status.copy())


class TrainingJob(Custom, frozen=True):
    """``berth.dev`` TrainingJob."""


class AnnotatedMeta(Meta, frozen=True):
    """Metadata of a kind whose annotations are input."""

    annotations: dict[str, str] = {}


class InferenceService(Custom, frozen=True):
    """``berth.dev`` InferenceService. Its annotations may tell traits of the model that the spec has no field for."""

    metadata: AnnotatedMeta = AnnotatedMeta()


class AcceleratorPool(Custom, frozen=True):
    """``berth.dev`` AcceleratorPool."""


class NamespaceStatus(Wire, frozen=True):
    """``phase`` is Active or Terminating."""

    phase: str = ""


class Namespace(Wire, frozen=True):
    """``core/v1`` Namespace."""

    metadata: Meta = NO_META
    status: NamespaceStatus = NamespaceStatus()

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted, so that creates in it are refused."""
        return self.metadata.deleting or self.status.phase == "Terminating"


class PriorityClass(Wire, frozen=True):
    """``scheduling.k8s.io/v1`` PriorityClass."""

    metadata: Meta = NO_META
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class Document(Wire, frozen=True):
    """Any object of which only the metadata matters."""

    metadata: Meta = NO_META


class Service(Document, frozen=True):
    """``core/v1`` Service: whether it is there, and whose."""


class DeploymentSpec(Wire, frozen=True):
    """How many replicas are asked for, and whether a new template is held back."""

    replicas: int = 1
    paused: bool = False


class DeploymentStatus(Wire, frozen=True):
    """How far a Deployment is; ``updated_replicas`` have the newest template."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    unavailable_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(Wire, frozen=True):
    """``apps/v1`` Deployment."""

    metadata: Meta = NO_META
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ManagedFields(Wire, frozen=True):
    """``metav1.ManagedFieldsEntry``: who set which fields, a tree of ``f:<name>``, and through which subresource."""

    manager: str = ""
    subresource: str = ""
    fields_v1: dict[str, Any] = {}


class WrittenMeta(Meta, frozen=True):
    """Metadata with what every other struct leaves out."""

    managed_fields: tuple[ManagedFields, ...] = ()


class Written(Wire, frozen=True):
    """Any object of which only matters who has written it."""

    metadata: WrittenMeta = WrittenMeta()


class PodDisruptionBudget(Document, frozen=True):
    """``policy/v1`` PodDisruptionBudget: whether it is there, and whose."""


class HttpRoute(Document, frozen=True):
    """``gateway.networking.k8s.io/v1`` HTTPRoute: whether it is there, and whose."""


class ListenerTls(Wire, frozen=True):
    """How a Gateway's listener ends TLS."""

    mode: str = "Terminate"
    certificate_refs: tuple[dict[str, Any], ...] = ()


class Listener(Wire, frozen=True):
    """One listener of a Gateway."""

    name: str = ""
    hostname: str = ""
    protocol: str = ""
    tls: ListenerTls | None = None


class GatewaySpec(Wire, frozen=True):
    """What a Gateway listens on."""

    listeners: tuple[Listener, ...] = ()


class Gateway(Wire, frozen=True):
    """``gateway.networking.k8s.io/v1`` Gateway."""

    metadata: Meta = NO_META
    spec: GatewaySpec = GatewaySpec()


class Targeting(Custom, frozen=True):
    """A policy of any kind, whose spec says what it targets."""


class PodGroup(Document, frozen=True):
    """``scheduling.k8s.io`` PodGroup: whether it is there, and whose."""


def encode(body: Any) -> bytes:
    """The JSON of a request body: a struct, plain dicts and lists, or bytes that are JSON already."""
    return body if isinstance(body, bytes) else msgspec.json.encode(body)

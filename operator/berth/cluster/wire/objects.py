"""Our own kinds, and what is made or looked at beside pods and nodes."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.structs import force_setattr

from berth.cluster.wire.meta import NO_BYTES, NO_META, Condition, Meta, Wire


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


class ServiceSpec(Wire, frozen=True):
    """Which pods a Service names, and whether before they are ready."""

    selector: dict[str, str] = {}
    publish_not_ready_addresses: bool = False


class Service(Document, frozen=True):
    """``core/v1`` Service: whether it is there, whose, and what it names."""

    spec: ServiceSpec = ServiceSpec()


class ServingPod(Wire, frozen=True):
    """Of a template's pod: which nodes it may have."""

    node_selector: dict[str, str] = {}
    affinity: dict[str, Any] = {}


class ServingTemplate(Wire, frozen=True):
    """The pod template of a Deployment."""

    spec: ServingPod = ServingPod()


class DeploymentSpec(Wire, frozen=True):
    """How many replicas are asked for, on which nodes, and whether a new template is held back."""

    replicas: int = 1
    paused: bool = False
    template: ServingTemplate = ServingTemplate()


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
    """``metav1.ManagedFieldsEntry``: who set which fields (a tree of ``f:<name>``), and how."""

    manager: str = ""
    operation: str = ""
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

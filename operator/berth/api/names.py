"""Names of the contract that are no fields: group, kinds, labels, managers, classes, reasons of services' events.

They are API: users select by the labels, alert on the reasons and read the managers in ``managedFields``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GROUP: Final = "berth.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
CATEGORY: Final = "berth"


@dataclass(frozen=True, slots=True)
class KindNames:
    """How one kind is called: in manifests, in URLs and on the command line."""

    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    namespaced: bool

    @property
    def crd_name(self) -> str:
        """The name of the kind's CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


TRAINING_JOB: Final = KindNames("TrainingJob", "trainingjobs", "trainingjob", ("tj",), namespaced=True)
INFERENCE_SERVICE: Final = KindNames(
    "InferenceService", "inferenceservices", "inferenceservice", ("bisvc",), namespaced=True
)
ACCELERATOR_POOL: Final = KindNames(
    "AcceleratorPool", "acceleratorpools", "acceleratorpool", ("apool",), namespaced=False
)
KINDS: Final = (TRAINING_JOB, INFERENCE_SERVICE, ACCELERATOR_POOL)

FIELD_MANAGER: Final = "berth"
"""Server-side apply manager of children and of every status field but the placement."""
PLACEMENT_MANAGER: Final = "berth-placement"
"""Manager of ``status.placement`` alone: a status apply that leaves it out must not delete it."""
SCALE_MANAGER: Final = "berth-scale"
"""Manager of a Deployment's ``spec.replicas`` alone: an apply of the template that leaves it out must not reset it."""
CACHE_MANAGER: Final = "berth-cache"
"""Manager of the labels :data:`LABEL_MODEL_CACHE` of nodes, and of nothing else there."""

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "berth"
LABEL_JOB_NAME: Final = f"{GROUP}/job-name"
LABEL_JOB_UID: Final = f"{GROUP}/job-uid"
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"
LABEL_RANK: Final = f"{GROUP}/rank"
LABEL_POOL: Final = f"{GROUP}/pool"
LABEL_SERVICE_NAME: Final = f"{GROUP}/service-name"
LABEL_VARIANT: Final = f"{GROUP}/variant"
LABEL_CAPACITY_TYPE: Final = f"{GROUP}/capacity-type"
LABEL_TEMPLATE_HASH: Final = f"{GROUP}/template-hash"
"""On a Deployment: the digest of its pod template."""
LABEL_APPLIED_HASH: Final = f"{GROUP}/applied-hash"
"""On every child of a service: the digest of all that was applied, so that what has not changed is not written."""
LABEL_MODEL_CACHE: Final = f"{GROUP}/model-cache-"
"""On nodes that hold a model's weights, followed by the digest of its URI."""
LABEL_PREFETCH_FOR: Final = f"{GROUP}/prefetch-for"
"""On pods that fetch weights ahead of a replica: the service. None of the labels of replicas is on them."""
LABEL_FIRST_TO_GO: Final = f"{GROUP}/first-to-go"
"""On replicas that a decrease is to take, beside the annotation that says so to the Deployment controller."""

PRIORITY_CLASS_TRAINING: Final = "berth-training"
PRIORITY_CLASS_INFERENCE: Final = "berth-inference"
PRIORITY_CLASS_PREFETCH: Final = "berth-prefetch"

MAX_NAME_LENGTH: Final = 40
"""Of a TrainingJob or InferenceService: leaves room in a 63-character label for ``-<attempt>-<rank>``."""
SERVER_CONTAINER: Final = "server"
"""The engine's container in an InferenceService's template."""


class ServiceEvent:
    """Reasons of events on an InferenceService."""

    ACCEPTED: Final = "Accepted"
    REJECTED: Final = "Rejected"
    SCALED_UP: Final = "ScaledUp"
    SCALED_DOWN: Final = "ScaledDown"
    SCALE_IGNORED: Final = "ScaleIgnored"
    SCALE_CONTESTED: Final = "ScaleContested"
    CHILD_CHANGED: Final = "ChildChanged"
    REPLICAS_HELD: Final = "ReplicasHeld"
    CAPACITY_LIMITED: Final = "CapacityLimited"
    METRICS_LOST: Final = "MetricsLost"
    METRICS_BACK: Final = "MetricsBack"
    SPOT_RECLAIMED: Final = "SpotReclaimed"
    NODE_LEAVING: Final = "NodeLeaving"
    FELL_BACK_TO_ON_DEMAND: Final = "FellBackToOnDemand"
    RETURNED_TO_SPOT: Final = "ReturnedToSpot"
    ROLLOUT_PAUSED: Final = "RolloutPaused"
    ROLLOUT_YIELDED: Final = "RolloutYielded"
    IDLED: Final = "Idled"
    WOKEN: Final = "Woken"


def pod_name(job: str, attempt: int, rank: int) -> str:
    """The name of a worker's pod: a pure function, so that a second create of the same rank is refused as existing."""
    return f"{job}-{attempt}-{rank}"


def pod_group_name(job: str, attempt: int) -> str:
    """The name of an attempt's native gang."""
    return f"{job}-{attempt}"

"""The kinds that Berth talks about, and how each becomes a path and a decoder.

A :class:`Kind` is the single place where group, version, plural and struct of a resource meet; everything else
in the shell is generic over it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Generic, TypeVar

import msgspec

from berth.api.names import GROUP, VERSION
from berth.cluster import bookkeeping, wire

T = TypeVar("T", bound=wire.Object)


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """``metav1.ListMeta``; an empty ``continue_token`` marks the last page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class Page(msgspec.Struct, Generic[T], frozen=True, rename="camel"):
    """One page of a list; ``items`` may be null on the wire."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, rename="camel"):
    """One line of a watch; ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK (an ERROR is raised instead)."""

    type: str
    object: T


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A served resource. ``group`` is empty for the core group; ``type`` is the struct its objects decode to."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def written(self) -> Kind[wire.Written]:
        """The same resource, read for who has set its fields."""
        return replace(self, type=wire.Written)  # type: ignore[arg-type, return-value]

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """The URL path; without ``namespace`` the whole cluster, without ``name`` the collection.

        Raises:
            ValueError: a namespaced object is named without its namespace, or a cluster-scoped one with one.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} are cluster-scoped, but namespace {namespace!r} was given")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.plural} are namespaced, but {name!r} was named without a namespace")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)

    def decode(self, data: bytes) -> T:
        """One object. Raises: msgspec.MsgspecError."""
        return _decoder(self.type).decode(data)  # type: ignore[no-any-return]

    def decode_page(self, data: bytes) -> Page[T]:
        """One page of a list. Raises: msgspec.MsgspecError."""
        return _page_decoder(self.type).decode(data)  # type: ignore[no-any-return]

    def decode_event(self, line: bytes | memoryview) -> WatchEvent[T]:
        """One line of a watch. Raises: msgspec.MsgspecError, also for the ERROR event, whose object is a Status."""
        return _event_decoder(self.type).decode(line)  # type: ignore[no-any-return]


@cache
def _decoder(of: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(of)


@cache
def _page_decoder(of: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(Page[of])  # type: ignore[valid-type]


@cache
def _event_decoder(of: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(WatchEvent[of])  # type: ignore[valid-type]


PODS: Final = Kind("", "v1", "pods", "Pod", True, wire.Pod)
NODES: Final = Kind("", "v1", "nodes", "Node", False, wire.Node)
NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", False, wire.Namespace)
SERVICES: Final = Kind("", "v1", "services", "Service", True, wire.Service)
TRAINING_JOBS: Final = Kind(GROUP, VERSION, "trainingjobs", "TrainingJob", True, wire.TrainingJob)
INFERENCE_SERVICES: Final = Kind(GROUP, VERSION, "inferenceservices", "InferenceService", True, wire.InferenceService)
ACCELERATOR_POOLS: Final = Kind(GROUP, VERSION, "acceleratorpools", "AcceleratorPool", False, wire.AcceleratorPool)
PRIORITY_CLASSES: Final = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, wire.PriorityClass)
POD_GROUPS: Final = Kind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", True, wire.PodGroup)
DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", True, wire.Deployment)
DEPLOYMENT_WRITERS: Final = DEPLOYMENTS.written()
DISRUPTION_BUDGETS: Final = Kind(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, wire.PodDisruptionBudget
)
HTTP_ROUTES: Final = Kind("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute", True, wire.HttpRoute)
GATEWAYS: Final = Kind("gateway.networking.k8s.io", "v1", "gateways", "Gateway", True, wire.Gateway)
LEASES: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease", True, bookkeeping.Lease)
EVENTS: Final = Kind("events.k8s.io", "v1", "events", "Event", True, bookkeeping.Event)
CRDS: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    False,
    wire.Document,
)

"""What every object has: metadata, owners, conditions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr

from berth.cluster.sharing import interned, share_texts, shared

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

    def owned_by(self, uid: str) -> bool:
        """Whether the object of that identity owns this one."""
        return any(owner.uid == uid for owner in self.owner_references)


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


def encode(body: Any) -> bytes:
    """The JSON of a request body: a struct, plain dicts and lists, or bytes that are JSON already."""
    return body if isinstance(body, bytes) else msgspec.json.encode(body)

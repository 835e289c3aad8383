"""The objects that the shell writes about itself, as they travel: leases and events."""

from __future__ import annotations

import msgspec

from berth.cluster.wire import NO_META, Meta, Wire


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``coordination.k8s.io/v1`` LeaseSpec; times stay the server's text, since expiry never compares wall clocks."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire, frozen=True):
    """``coordination.k8s.io/v1`` Lease."""

    metadata: Meta = NO_META
    spec: LeaseSpec = LeaseSpec()


class EventSeries(Wire, frozen=True):
    """How often an event was seen again."""

    count: int = 0
    last_observed_time: str = ""


class ObjectReference(Wire, frozen=True):
    """``core/v1`` ObjectReference: what an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(Wire, frozen=True):
    """``events.k8s.io/v1`` Event."""

    metadata: Meta = NO_META
    event_time: str | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    note: str = ""
    type: str = ""
    series: EventSeries | None = None

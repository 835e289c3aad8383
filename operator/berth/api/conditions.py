"""Conditions: the states that programs wait for, and how they change.

``lastTransitionTime`` moves only when ``status`` does, so a pass that concludes what the last one did yields the same
list and nothing is written. True is the good side, but for the states reached, as in Job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from berth.api.common import Condition, rfc3339, shorten

Status = Literal["True", "False", "Unknown"]

INTERNAL_ERROR: Final = "InternalError"
"""Reason of Accepted where Berth itself failed on an object."""

_MESSAGE_LIMIT: Final = 32_768


class PoolCondition:
    """Condition types of an AcceleratorPool."""

    READY: Final = "Ready"
    TOPOLOGY_COMPLETE: Final = "TopologyComplete"


class ServiceCondition:
    """Condition types of an InferenceService."""

    ACCEPTED: Final = "Accepted"
    READY: Final = "Ready"
    PLACED: Final = "Placed"
    METRICS_AVAILABLE: Final = "MetricsAvailable"
    FORECAST_TRUSTED: Final = "ForecastTrusted"
    CAPACITY_AVAILABLE: Final = "CapacityAvailable"
    SLO_MET: Final = "SloMet"
    SPOT_AVAILABLE: Final = "SpotAvailable"
    EXPOSED: Final = "Exposed"
    PREFETCHED: Final = "Prefetched"
    SCALE_CONTESTED: Final = "ScaleContested"


def set_condition(
    conditions: Sequence[Condition],
    type: str,
    status: Status,
    reason: str,
    message: str,
    *,
    now: float,
    generation: int | None = None,
) -> tuple[Condition, ...]:
    """``conditions`` with one of them set; the order stays, a new type comes last.

    ``now`` (Unix seconds) becomes ``lastTransitionTime`` only where ``status`` changes.
    """
    before = find_condition(conditions, type)
    unchanged = before is not None and before.status == status
    after = Condition(
        type=type,
        status=status,
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before is not None and unchanged else rfc3339(now),
        reason=reason,
        message=shorten(message, _MESSAGE_LIMIT),
    )
    if before is None:
        return (*conditions, after)
    return tuple(after if condition.type == type else condition for condition in conditions)


def find_condition(conditions: Sequence[Condition], type: str) -> Condition | None:
    """The condition of ``type``, if it was ever set."""
    return next((condition for condition in conditions if condition.type == type), None)

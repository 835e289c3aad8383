"""A training job's status, read into plain values and written back.

The placement has a field manager of its own and is written before the first pod. That one small write also says that
the attempt has begun and how it saves, so everything else that follows from it (the conditions, the line in the
ledger) is derived again when the status is read, and reaches the API server with the next transition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from berth.api.common import rfc3339, shorten, unix_seconds
from berth.api.names import API_VERSION, TRAINING_JOB
from berth.api.trainingjob_status import ATTEMPTS_KEPT, decode_numbers, decode_ranks, encode_numbers, encode_ranks
from berth.training.attempts import placed_conditions
from berth.training.records import Placement
from berth.training.state import ACTIVE, Attempt, Checkpoint, Condition, JobState, Lineage, Phase, Restarts
from berth.values import BerthError, format_bytes, parse_quantity

Json = dict[str, Any]

HOUR: Final = 3600.0
CENT: Final = Decimal("0.01")
MOST_USD: Final = Decimal(10) ** 15
"""No job costs that: an amount as large was written by somebody else, and says nothing."""


MOST_ATTEMPTS: Final = 1_000_000
"""Names of pods hold the number of the attempt, and no gang is placed so often."""


class StatusUnreadable(BerthError):
    """Another version or somebody's hand wrote ``field`` of the status, and what it says is not known here."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(f"status.{field}: {words}")


def restore(
    status: Mapping[str, Any], asked: Sequence[str] = (), levels: Callable[[str], Sequence[str]] = lambda pool: ()
) -> JobState:
    """The state that ``status`` remembers; an empty one is a job never looked at.

    ``asked`` are the conditions that the job's placement fulfils besides Placed, as in :class:`berth.training.job.Job`.
    ``levels`` names those of a pool, outermost first, where it is known: an object that the API server has stored no
    longer has its fields in order.

    Raises: StatusUnreadable.
    """
    read = {target: _read(field, status, reader) for target, (field, reader) in _FIELDS.items()}
    state: JobState = _read(
        "placement", status, lambda _: _with_placement(JobState(**read), status.get("placement"), asked, levels)
    )
    if state.attempt > MOST_ATTEMPTS:
        raise StatusUnreadable("attempt", f"{state.attempt} is more than any job has had")
    return state


def _read(field: str, status: Mapping[str, Any], reader: Callable[[Any], Any]) -> Any:
    try:
        return reader(status.get(field))
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        words = f"it lacks {problem}" if isinstance(problem, KeyError) else str(problem)
        raise StatusUnreadable(field, words) from problem


def _phase(text: str | None) -> Phase | None:
    """None before the first look. One that a later version may have written stands for what this one cannot know."""
    if text and text not in set(Phase):
        raise ValueError(f"this version knows no {text}; it knows {', '.join(Phase)}")
    return Phase(text) if text else None


_CAUSES: Final = ("failure", "infrastructure", "preemption", "suspend")


def _with_placement(
    state: JobState,
    recorded: Mapping[str, Any] | None,
    asked: Sequence[str],
    levels: Callable[[str], Sequence[str]],
) -> JobState:
    if not recorded:
        return state
    order = {level: at for at, level in enumerate(levels(recorded["pool"]))}
    placement = Placement(
        pool=recorded["pool"],
        nodes=decode_ranks(recorded["ranks"]),
        certificate="Optimal" if recorded["certificate"] == "Optimal" else "Bounded",
        domains=_outermost_first(recorded.get("domains"), order),
        lower_bound=_outermost_first(recorded.get("lowerBound"), order),
    )
    number, when = recorded["attempt"], _time(recorded.get("time")) or 0.0
    price = _decimal(recorded.get("usdPerAcceleratorHour"))
    state = replace(state, placement=placement, placement_attempt=number, placement_time=when, price=price)
    ledger = state.attempts[-1].number if state.attempts else 0
    if state.phase not in ACTIVE:
        return state
    if number > ledger and (state.current is None or number == state.attempt):
        attempt = Attempt(number, when, len(placement.nodes), placement.pool)
        state = replace(state, attempt=number, attempts=(*state.attempts, attempt)[-ATTEMPTS_KEPT:])
        if "Accepted" not in state.conditions:
            state = state.with_condition("Accepted", True, "Valid", now=when)
        state = placed_conditions(state, placement, when, asked)
    return _as_placed(state, placement, number)


def _outermost_first(counts: Mapping[str, int] | None, order: Mapping[str, int]) -> dict[str, int]:
    """Domains by level; without a known ``order`` by their numbers, which never fall from one level to the next."""
    return dict(sorted((counts or {}).items(), key=lambda entry: (order.get(entry[0], 0), entry[1])))


def _as_placed(state: JobState, placement: Placement, number: int) -> JobState:
    """The live attempt with as many workers as were placed for it; a status can be edited by hand."""
    live = state.current
    if live is None or live.number != number:
        return state
    if live.workers != len(placement.nodes):
        state = replace(state, attempts=(*state.attempts[:-1], replace(live, workers=len(placement.nodes))))
    return replace(state, attempt=number) if state.attempt != number else state


def placement_patch(name: str, state: JobState, resource_version: str = "") -> Json:
    """What the placement's own manager applies: where the ranks go, and that the attempt has begun.

    The checkpoint policy is part of it, because pods that are created after a crash must be told the same. Given a
    ``resource_version`` the server refuses it where the job is another one by now: fields that are frozen from the
    first attempt on must be those that the placement was made for.
    """
    placement = state.placement
    assert placement is not None
    recorded: Json = {
        "attempt": state.placement_attempt,
        "time": rfc3339(state.placement_time),
        "pool": placement.pool,
        "certificate": placement.certificate,
        "domains": dict(placement.domains),
        "lowerBound": dict(placement.lower_bound),
        "ranks": encode_ranks(placement.nodes),
    }
    if state.price is not None:
        recorded["usdPerAcceleratorHour"] = f"{state.price:f}"
    summary: Json = {
        "phase": str(state.phase),
        "attempt": state.attempt,
        "workers": state.workers,
        "message": state.message,
    }
    if state.checkpoint is not None:
        summary["checkpoint"] = _checkpoint_body(state.checkpoint)
    body = _object(name, {**summary, "placement": recorded})
    if resource_version:
        body["metadata"]["resourceVersion"] = resource_version
    return body


def status_patch(name: str, body: Json) -> Json:
    """What the main manager applies: all of ``body``, a field left out is given up."""
    return _object(name, body)


def _object(name: str, status: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": TRAINING_JOB.kind, "metadata": {"name": name}, "status": status}


def status_body(state: JobState, generation: int) -> Json:
    """Everything of the status but the placement, without absent fields."""
    body: Json = {
        "observedGeneration": generation,
        "phase": str(state.phase) if state.phase else None,
        "message": shorten(state.message) or None,
        "conditions": [_condition_body(condition, generation) for _, condition in sorted(state.conditions.items())],
        "workers": state.workers or None,
        "readyWorkers": state.ready_workers if state.attempt else None,
        "attempt": state.attempt or None,
        "startAttempts": state.start_attempts or None,
        "restarts": {name: getattr(state.restarts, name) for name in _CAUSES} if state.attempt else None,
        "attempts": [_attempt_body(attempt) for attempt in state.attempts],
        "startTime": _stamp(state.start_time),
        "completionTime": _stamp(state.completion_time),
        "ranSeconds": round(state.ran_before) or None,
        "avoidNodes": list(state.avoid),
        "finishedRanks": encode_numbers(state.finished),
        "checkpoint": _checkpoint_body(state.checkpoint),
        "cost": _cost_body(state),
        "lineage": _lineage_body(state.lineage),
    }
    return {key: value for key, value in body.items() if value not in (None, "", [], {})}


def _condition(entry: Mapping[str, Any]) -> Condition:
    return Condition(
        entry["type"], entry["status"], entry.get("reason") or "", entry.get("message") or "",
        _time(entry.get("lastTransitionTime")) or 0.0,
    )  # fmt: skip


def _condition_body(condition: Condition, generation: int) -> Json:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": shorten(condition.message),
        "lastTransitionTime": rfc3339(condition.since),
        "observedGeneration": generation,
    }


def _attempt(entry: Mapping[str, Any]) -> Attempt:
    return Attempt(
        number=entry["number"],
        start=_time(entry.get("startTime")) or 0.0,
        workers=entry.get("workers") or 0,
        pool=entry.get("pool") or "",
        end=_time(entry.get("endTime")),
        ran=float(entry.get("ranSeconds") or 0),
        cause=entry.get("cause") or "",
        reason=entry.get("reason") or "",
        message=entry.get("message") or "",
        exit_code=entry.get("exitCode"),
        rule=entry.get("rule") or "",
        lost_accelerator_seconds=entry.get("lostAcceleratorSeconds") or 0,
    )


def _attempt_body(attempt: Attempt) -> Json:
    body: Json = {
        "number": attempt.number,
        "startTime": rfc3339(attempt.start),
        "endTime": _stamp(attempt.end),
        "ranSeconds": round(attempt.ran) or None,
        "workers": attempt.workers,
        "pool": attempt.pool or None,
        "exitCode": attempt.exit_code,
        "rule": attempt.rule or None,
        "cause": attempt.cause or None,
        "reason": attempt.reason or None,
        "message": shorten(attempt.message) or None,
        "lostAcceleratorSeconds": attempt.lost_accelerator_seconds or None,
    }
    return {key: value for key, value in body.items() if value is not None}


def _checkpoint(entry: Mapping[str, Any] | None) -> Checkpoint | None:
    if not entry or "intervalSeconds" not in entry:
        return None
    return Checkpoint(
        interval_seconds=entry["intervalSeconds"],
        size_bytes=int(parse_quantity(entry["size"])) if entry.get("size") else 0,
        stall_milliseconds=entry.get("stallMilliseconds") or 0,
        mtbf_seconds=entry.get("mtbfSeconds") or 0,
        reason=entry.get("reason") or "",
    )


def _checkpoint_body(checkpoint: Checkpoint | None) -> Json:
    if checkpoint is None:
        return {}
    body: Json = {
        "intervalSeconds": checkpoint.interval_seconds,
        "size": format_bytes(checkpoint.size_bytes) if checkpoint.size_bytes else None,
        "stallMilliseconds": checkpoint.stall_milliseconds or None,
        "mtbfSeconds": checkpoint.mtbf_seconds or None,
        "reason": checkpoint.reason or None,
    }
    return {key: value for key, value in body.items() if value is not None}


def _cost_body(state: JobState) -> Json:
    """What ended attempts cost; the live attempt joins when it ends, its running figures are metrics."""
    ended = [attempt.end for attempt in state.attempts if attempt.end is not None]
    if not ended:
        return {}
    body: Json = {
        "acceleratorHours": int(state.held_before // HOUR),
        "acceleratorSeconds": round(state.held_before),
        "lostAcceleratorSeconds": state.lost,
        "usd": _dollars(state.usd),
        "lostUsd": _dollars(state.lost_usd),
        "asOf": rfc3339(max(ended)),
    }
    return {key: value for key, value in body.items() if value is not None}


def _usd(cost: Mapping[str, Any], name: str) -> Decimal | None:
    """Nothing before the first attempt has ended; after that, a figure left out is one that is not known."""
    return _decimal(cost.get(name)) if cost else Decimal(0)


def _decimal(text: str | None) -> Decimal | None:
    try:
        amount = Decimal(text) if text else None
    except InvalidOperation as problem:
        raise ValueError(f"{text!r} is not an amount of money") from problem
    return amount if amount is None or amount < MOST_USD else None


def _dollars(amount: Decimal | None) -> str | None:
    """Cents, and the fractions of one that cheap attempts add."""
    if amount is None:
        return None
    cents = amount.quantize(CENT)
    return f"{cents:f}" if cents == amount else f"{amount.normalize():f}"


def _lineage_body(lineage: Lineage) -> Json:
    body = {"imageID": lineage.image_id, "dataset": lineage.dataset}
    return {key: value for key, value in body.items() if value}


def _time(text: str | None) -> float | None:
    return unix_seconds(text) if text else None


def _stamp(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)


_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "phase": ("phase", _phase),
    "message": ("message", lambda value: value or ""),
    "conditions": ("conditions", lambda value: {entry["type"]: _condition(entry) for entry in value or ()}),
    "workers": ("workers", lambda value: value or 0),
    "ready_workers": ("readyWorkers", lambda value: value or 0),
    "attempt": ("attempt", lambda value: value or 0),
    "start_attempts": ("startAttempts", lambda value: value or 0),
    "restarts": ("restarts", lambda value: Restarts(**{name: (value or {}).get(name) or 0 for name in _CAUSES})),
    "attempts": (
        "attempts", lambda value: tuple(sorted(map(_attempt, value or ()), key=lambda attempt: attempt.number)),
    ),
    "start_time": ("startTime", _time),
    "completion_time": ("completionTime", _time),
    "ran_before": ("ranSeconds", lambda value: float(value or 0)),
    "held_before": ("cost", lambda value: float((value or {}).get("acceleratorSeconds") or 0)),
    "lost": ("cost", lambda value: (value or {}).get("lostAcceleratorSeconds") or 0),
    "usd": ("cost", lambda value: _usd(value or {}, "usd")),
    "lost_usd": ("cost", lambda value: _usd(value or {}, "lostUsd")),
    "lineage": (
        "lineage",
        lambda value: Lineage((value or {}).get("imageID") or "", (value or {}).get("dataset") or ""),
    ),
    "checkpoint": ("checkpoint", _checkpoint),
    "avoid": ("avoidNodes", lambda value: tuple(value or ())),
    "finished": ("finishedRanks", lambda value: decode_numbers(value or "")),
}  # fmt: skip
"""What of the state is read from which field, and how."""

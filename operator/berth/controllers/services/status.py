"""A service's status: written from the plan, and what of it is read back after a restart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from berth.api.common import rfc3339, shorten, unix_seconds
from berth.api.inferenceservice_status import VARIANTS_KEPT
from berth.api.names import API_VERSION, INFERENCE_SERVICE, LABEL_SERVICE_NAME
from berth.inference.calibrate import in_use
from berth.inference.coldstart import ColdStarts
from berth.inference.records import Variant
from berth.inference.service import DECISIONS_KEPT, Decision, Memory, Plan, Replica, Verdict
from berth.values import Requirement, Requirements

Json = dict[str, Any]

IN_TEMPLATES: Final = ("startupSeconds", "cpu", "places", "reference")
"""Of what is learned, what pod templates follow from, and the unit of every other number."""

KEPT: Final = ("variants", "replicas", "readyReplicas", "selector", "decisions", "learned", "unset", "cost", "demand",
               "forecast", "coldStart")  # fmt: skip
"""What the status of a service says though its spec cannot be carried out."""

_NUMBERS = re.compile(r"(?:\d[\d.]*(?:e[+-]?\d+)?[smh%]?)+")


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers that people read in status; live ones are metrics. None: not known. Work and seconds."""

    state: str
    current: float | None
    forecast: float | None
    horizon_seconds: float
    quantile: float
    as_of: float
    method: str = ""
    wape: float | None = None
    persistence_wape: float | None = None
    p50_seconds: float = 0.0
    p90_seconds: float = 0.0
    cached_p90_seconds: float = 0.0
    usd_per_million_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """What a restart must not lose: the start-up budget in force, starts seen, the forecaster's compact record."""

    startup_seconds: int = 0
    cold_starts: Sequence[Mapping[str, Any]] = ()
    forecast: str = ""
    cpu: Mapping[str, int] = field(default_factory=dict)
    reference: str = ""
    capacities: Sequence[Mapping[str, Any]] = ()
    places: Mapping[str, Requirements] = field(default_factory=dict)


def restore(status: Mapping[str, Any]) -> tuple[Memory, ColdStarts, Learned]:
    """What ``status`` remembers. Clocks that only delay begin anew, but for a missed SLO's: it would delay for ever."""
    decisions = tuple(_decision(entry) for entry in status.get("decisions") or ())
    last_up = next((entry.time for entry in decisions if entry.after > entry.before), None)
    last_down = next((entry.time for entry in decisions if entry.after < entry.before), None)
    untrue = {
        entry["type"]: unix_seconds(entry["lastTransitionTime"])
        for entry in status.get("conditions") or ()
        if entry["status"] == "False"
    }
    unset = status.get("unset") or {}
    memory = Memory(
        decisions[:DECISIONS_KEPT],
        unknown_since=untrue.get("MetricsAvailable"),
        last_up=last_up,
        last_down=last_down,
        missed_since=untrue.get("SloMet"),
        unset=unset.get("specReplicas"),
        unset_keeps=unset.get("keeps"),
    )
    known = status.get("learned") or {}
    learned = Learned(
        known.get("startupSeconds") or 0,
        tuple(known.get("coldStarts") or ()),
        known.get("forecast") or "",
        {entry["variant"]: entry["millicores"] for entry in known.get("cpu") or ()},
        known.get("reference") or "",
        tuple(known.get("capacities") or ()),
        {
            entry["variant"]: tuple(
                Requirement(label["key"], label["operator"], tuple(label.get("values") or ()))
                for label in entry.get("labels") or ()
            )
            for entry in known.get("places") or ()
        },
    )
    return memory, ColdStarts.restore(learned.cold_starts), learned


def _decision(entry: Mapping[str, Any]) -> Decision:
    possible = entry.get("nextPossibleTime")
    return Decision(
        time=unix_seconds(entry["time"]),
        before=entry["fromReplicas"],
        after=entry["toReplicas"],
        reason=entry.get("reason") or "",
        message=entry.get("message") or "",
        bound_by=entry.get("boundBy") or "",
        next_possible=unix_seconds(possible) if possible else None,
    )


def body(
    plan: Plan,
    generation: int,
    name: str,
    variants: Mapping[str, Variant],
    replicas: Sequence[Replica],
    figures: Figures | None,
    learned: Learned,
    before: Mapping[str, Any],
    extra: Mapping[str, Verdict],
    now: float,
) -> Json:
    """The whole status. ``before`` is what is written: conditions keep their time of change from it."""
    alive = [replica for replica in replicas if not replica.terminating]
    status: Json = {
        "observedGeneration": generation,
        "phase": str(plan.phase),
        "message": shorten(plan.message),
        "conditions": conditions({**plan.conditions, **extra}, before, generation, now),
        "replicas": len(alive),
        "readyReplicas": sum(replica.ready for replica in alive),
        "selector": f"{LABEL_SERVICE_NAME}={name}",
        "variants": [_variant(key, plan.counts[key], variants.get(key), alive) for key in _shown(plan.counts)],
        "decisions": [_decision_body(decision) for decision in plan.memory.decisions],
        "cost": {
            "usdPerHour": f"{plan.usd_per_hour:.2f}",
            **_on_demand_only(plan.on_demand_only_usd_per_hour),
        },
        "unset": _unset(plan.memory),
        "learned": learned_body(learned),
    }
    if figures is not None:
        status |= _figures(figures)
        if figures.usd_per_million_tokens is not None:
            status["cost"]["usdPerMillionTokens"] = f"{figures.usd_per_million_tokens:.2f}"
    return {key: value for key, value in status.items() if value not in (None, {})}


def _unset(memory: Memory) -> Json:
    entry = {"specReplicas": memory.unset, "keeps": memory.unset_keeps}
    return {key: value for key, value in entry.items() if value is not None}


def _on_demand_only(usd_per_hour: float | None) -> Json:
    return {} if usd_per_hour is None else {"onDemandOnlyUsdPerHour": f"{usd_per_hour:.2f}"}


def rejected(reason: str, message: str, generation: int, before: Mapping[str, Any], now: float) -> Json:
    """The status of a service whose spec cannot be carried out; what it runs on is left as it is."""
    kept = {key: before[key] for key in KEPT if key in before}
    verdicts = {"Accepted": Verdict(False, reason, message)}
    return {
        **kept,
        "observedGeneration": generation,
        "phase": "Degraded" if before.get("replicas") else "Failed",
        "message": shorten(message),
        "conditions": conditions(verdicts, before, generation, now, keep=True),
    }


def conditions(
    verdicts: Mapping[str, Verdict], before: Mapping[str, Any], generation: int, now: float, *, keep: bool = False
) -> list[Json]:
    """Conditions by type; the time of change moves only with the status. ``keep`` those not in ``verdicts``."""
    known = {entry["type"]: entry for entry in before.get("conditions") or ()}
    entries = dict(known) if keep else {}
    for kind, verdict in verdicts.items():
        status = {True: "True", False: "False", None: "Unknown"}[verdict.status]
        old = known.get(kind)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else rfc3339(now)
        entries[kind] = {
            "type": kind,
            "status": status,
            "reason": verdict.reason,
            "message": shorten(verdict.message),
            "lastTransitionTime": since,
            "observedGeneration": generation,
        }
    return [entries[kind] for kind in sorted(entries)]


def patch(name: str, uid: str, status: Json) -> Json:
    """The server-side apply body."""
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_SERVICE.kind,
        "metadata": {"name": name, "uid": uid},
        "status": status,
    }


def _shown(counts: Mapping[str, int]) -> list[str]:
    """The variants of a status in order: all, or as many as it admits, those with the most replicas."""
    return sorted(sorted(counts, key=lambda name: (-counts[name], name))[:VARIANTS_KEPT])


def _variant(name: str, count: int, variant: Variant | None, replicas: Sequence[Replica]) -> Json:
    ready = sum(replica.ready for replica in replicas if replica.variant == name)
    entry: Json = {"name": name, "replicas": count, "readyReplicas": ready}
    if variant is not None:
        entry |= {
            "accelerator": variant.accelerator,
            "capacityType": variant.capacity_type,
            "pool": variant.pool,
            "usdPerHour": f"{variant.usd_per_hour:.2f}",
        }
        if variant.zone:
            entry["zone"] = variant.zone
    return entry


def _decision_body(decision: Decision) -> Json:
    entry: Json = {
        "time": rfc3339(decision.time),
        "fromReplicas": decision.before,
        "toReplicas": decision.after,
        "reason": decision.reason,
        "message": shorten(decision.message),
        "boundBy": decision.bound_by or None,
        "nextPossibleTime": rfc3339(decision.next_possible) if decision.next_possible is not None else None,
    }
    return {key: value for key, value in entry.items() if value is not None}


def _figures(figures: Figures) -> Json:
    demand: Json = {
        "state": figures.state,
        "current": None if figures.current is None else f"{figures.current:.4g}",
        "forecast": None if figures.forecast is None else f"{figures.forecast:.4g}",
        "horizonSeconds": round(figures.horizon_seconds),
        "percentile": math.floor(100 * figures.quantile + 1e-9) or None,  # 99.5 is not 100
        "asOf": rfc3339(figures.as_of),
    }
    forecast: Json = {
        "method": figures.method or None,
        "wape": None if figures.wape is None else f"{100 * figures.wape:.0f}%",
        "persistenceWape": None if figures.persistence_wape is None else f"{100 * figures.persistence_wape:.0f}%",
    }
    cold: Json = {
        "p50Seconds": round(figures.p50_seconds) or None,
        "p90Seconds": round(figures.p90_seconds) or None,
        "cachedP90Seconds": round(figures.cached_p90_seconds) or None,
    }
    parts = {"demand": demand, "forecast": forecast, "coldStart": cold}
    return {name: {key: value for key, value in part.items() if value is not None} for name, part in parts.items()}


def learned_body(learned: Learned) -> Json:
    """``status.learned``."""
    entry: Json = {
        "startupSeconds": learned.startup_seconds or None,
        "coldStarts": [dict(start) for start in learned.cold_starts],
        "forecast": learned.forecast or None,
        "cpu": [
            {"variant": name, "millicores": amount} for name, amount in sorted(learned.cpu.items())[:VARIANTS_KEPT]
        ],
        "places": [_place(name, labels) for name, labels in sorted(learned.places.items())[:VARIANTS_KEPT]],
        "reference": learned.reference or None,
        "capacities": [dict(entry) for entry in learned.capacities],
    }
    return {key: value for key, value in entry.items() if value}


def _place(variant: str, labels: Requirements) -> Json:
    """A node must have ``labels``; as the API writes requirements."""
    named = [{"key": entry.key, "operator": entry.operator, "values": list(entry.values)} for entry in labels]
    return {"variant": variant, "labels": [{key: part for key, part in entry.items() if part} for entry in named]}


def transition(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a phase, a condition, a count, a decision or what templates use is another one: written at once.

    So is what Manual holds: whoever leads next would hold something else.
    """
    return _outline(before) != _outline(after) or unsaved(before, after)


def unsaved(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether what is learned and stands in templates is another one than ``before``.

    It is written before a template that uses it: else whoever leads next would use another one and roll all replicas.
    """
    return any(
        (before.get("learned") or {}).get(name) != (after.get("learned") or {}).get(name) for name in IN_TEMPLATES
    )


def counted(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether there are, or are ready, other numbers of replicas."""
    return any(before.get(name) != after.get(name) for name in ("replicas", "readyReplicas"))


def goal(status: Mapping[str, Any]) -> tuple[object, ...]:
    """What was decided last: when, and how many replicas of each variant."""
    latest = [entry["time"] for entry in status.get("decisions") or ()][:1]
    return (*latest, *sorted((entry["name"], entry.get("replicas")) for entry in status.get("variants") or ()))


def complete(status: Mapping[str, Any]) -> bool:
    """Whether there are as many replicas as was decided, and all are ready."""
    wanted = sum(entry.get("replicas") or 0 for entry in status.get("variants") or ())
    return wanted == status.get("replicas") == status.get("readyReplicas")


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether some moving figure is another one by more than a tenth, or a sentence says something else."""
    if counted(before, after) or _sentences(before) != _sentences(after):
        return True
    for part in ("demand", "forecast", "coldStart", "cost"):
        old, new = before.get(part) or {}, after.get(part) or {}
        if any(_differs(old.get(key), new.get(key)) for key in (old.keys() | new.keys()) - {"asOf"}):
            return True
    old, new = before.get("learned") or {}, after.get("learned") or {}
    if old.get("coldStarts") != new.get("coldStarts"):
        return True
    return in_use(old.get("capacities")) != in_use(new.get("capacities"))


def _outline(status: Mapping[str, Any]) -> tuple[object, ...]:
    stated = tuple(
        (entry["type"], entry["status"], entry["reason"])
        for entry in sorted(status.get("conditions") or (), key=lambda entry: str(entry["type"]))
    )
    variants = tuple(
        sorted((entry["name"], entry.get("replicas"), str(entry.get("pool"))) for entry in status.get("variants") or ())
    )
    latest = [entry["time"] for entry in status.get("decisions") or ()][:1]
    return (
        status.get("observedGeneration"), status.get("phase"), stated, variants, tuple(latest), status.get("unset"),
    )  # fmt: skip


def _sentences(status: Mapping[str, Any]) -> tuple[str, ...]:
    """What is said of the service and its conditions, but for the numbers in it: those move by themselves."""
    stated = sorted(status.get("conditions") or (), key=lambda entry: str(entry["type"]))
    said = [status.get("message") or "", *(entry.get("message") or "" for entry in stated)]
    return tuple(_NUMBERS.sub("#", text) for text in said)


def _differs(old: object, new: object) -> bool:
    try:
        first, second = float(str(old).rstrip("%")), float(str(new).rstrip("%"))
    except ValueError:
        return old != new
    return abs(first - second) > 0.1 * max(abs(first), abs(second), 1e-9)

"""What people are told of a plan: the phase and its sentence, conditions, events."""

from __future__ import annotations

from collections.abc import Mapping

from berth.api.names import ServiceEvent
from berth.inference import manual
from berth.inference.fallback import Footing, Turn
from berth.inference.holds import MISS_HOLDS_SECONDS, miss_ends
from berth.inference.leaving import leaving_events
from berth.inference.need import Need, metrics_verdict
from berth.inference.records import Mix
from berth.inference.service import Decision, Event, Memory, Mode, Phase, Rules, Sight, Verdict
from berth.values import format_duration, plural


def phase(rules: Rules, sight: Sight, need: Need, mix: Mix, counts: Mapping[str, int]) -> tuple[Phase, str]:
    """The service in a word and a sentence."""
    total = sum(counts.values())
    ready = sum(replica.ready and not replica.terminating for replica in sight.replicas)
    if not sight.offers and not total:
        return Phase.PENDING, sight.excluded or "No pool has an accelerator that can serve the model"
    lacks = shortage(mix, need)
    if total == 0 and lacks:
        return Phase.PENDING, lacks
    if total == 0:
        asleep = "spec.replicas is 0" if rules.mode is Mode.MANUAL else need.text
        return Phase.IDLE, f"No replica: {asleep}"
    if sight.crashing and not ready:
        names = ", ".join(sorted(sight.crashing))
        return Phase.FAILED, f"Replicas of {names} end before they are ready; see their logs. No more are started"
    if not ready:
        return Phase.STARTING, f"{plural(total, 'replica')} {'starts' if total == 1 else 'start'}; {need.text}"
    if lacks:
        return Phase.DEGRADED, lacks
    if ready < min(_wanted(rules, need), total) or sight.slo_met is False:
        why = "the SLO is missed" if sight.slo_met is False else _of(ready, total)
        return Phase.DEGRADED, f"{capitalised(why)}; {need.text}"
    return Phase.READY, f"{_of(ready, total)}; {need.text}"


def _of(ready: int, total: int) -> str:
    return f"{ready} of {plural(total, 'replica')} {'is' if total == 1 else 'are'} ready"


def _wanted(rules: Rules, need: Need) -> int:
    """How many replicas have to be ready for the service to be."""
    if not (need.work or need.floor):
        return 0
    return max(1, min(need.floor, rules.min_replicas) if need.frozen else need.floor)


def capitalised(text: str) -> str:
    """``text`` as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def shortage(mix: Mix, need: Need) -> str:
    """What finds no place, of the work or of the fewest replicas asked for; empty where everything does."""
    bound = mix.bound_by or "Capacity"
    if mix.short > 0:
        return f"{mix.short:.3g} of work finds no place ({bound}): add nodes, types or maxReplicas"
    lacking = need.floor - mix.replicas
    if lacking <= 0:
        return ""
    find = "finds" if lacking == 1 else "find"
    return f"{lacking} of at least {plural(need.floor, 'replica')} {find} no place ({bound}): add nodes or types"


def conditions(rules: Rules, memory: Memory, sight: Sight, mix: Mix, need: Need) -> dict[str, Verdict]:
    """The conditions that a plan knows of."""
    ready = sum(replica.ready and not replica.terminating for replica in sight.replicas)
    wants = _wanted(rules, need)
    lacks = shortage(mix, need)
    verdicts = {
        "Ready": Verdict(True, "ReplicasReady" if ready else "Idle")
        if ready >= wants
        else Verdict(False, "ReplicasNotReady", f"{ready} of at least {plural(wants, 'replica')} ready"),
        "CapacityAvailable": Verdict(True, "Sufficient") if not lacks else Verdict(False, "CapacityLimited", lacks),
    }
    if rules.mode is not Mode.MANUAL:
        verdicts["MetricsAvailable"] = metrics_verdict(rules, memory, sight)
    if sight.slo_met is not None:
        verdicts["SloMet"] = Verdict(True, "Met") if sight.slo_met else Verdict(False, "Missed", _missed(memory, sight))
    return verdicts


def _missed(memory: Memory, sight: Sight) -> str:
    ends = miss_ends(memory)
    text = "the measured percentile is over the SLO"
    if ends is None or sight.now < ends:
        return text
    held = format_duration(MISS_HOLDS_SECONDS)
    return f"{text}; after {held} that the replicas there were have not cured, it holds them no longer"


def events(
    rules: Rules,
    memory: Memory,
    sight: Sight,
    need: Need,
    mix: Mix,
    decision: Decision | None,
    before: int,
    after: int,
) -> tuple[Event, ...]:
    """What is to be told of the plan; ``before`` and ``after`` are numbers of replicas."""
    events: list[Event] = []
    if decision is not None and after != before:
        name = ServiceEvent.SCALED_UP if after > before else ServiceEvent.SCALED_DOWN
        if before == 0:
            name = ServiceEvent.WOKEN if need.waking else name
        if after == 0 and need.reason == "Idle":
            name = ServiceEvent.IDLED
        events.append(Event(name, f"From {before} to {after}: {decision.message}"))
    if (
        decision is not None
        and decision.reason in (ServiceEvent.SPOT_RECLAIMED, ServiceEvent.NODE_LEAVING)
        and after >= before
    ):
        events += leaving_events(sight.replicas, sight.now)
    if lacks := shortage(mix, need):
        events.append(Event(ServiceEvent.CAPACITY_LIMITED, lacks, True))
    if manual.holds(rules, memory):
        events.append(Event(ServiceEvent.REPLICAS_HELD, capitalised(manual.words(rules, memory)), True))
    elif need.frozen:
        events.append(Event(ServiceEvent.METRICS_LOST, capitalised(need.text), True))
    return tuple(events)


def turned(turn: Turn, footing: Footing) -> tuple[Event, ...]:
    """The event of a step between spot and on demand."""
    fell = turn == ServiceEvent.FELL_BACK_TO_ON_DEMAND
    says = "Spot is taken back or gone" if fell else "Spot has been stable"
    text = f"{says}: {footing.on_demand:.3g} of work is to be on demand and {footing.spot:.3g} on spot"
    return (Event(turn, text, warning=fell),)

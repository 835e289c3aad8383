"""A service's status: what is written is what is remembered, and it is written when it says something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from berth.api.inferenceservice import parse_status
from berth.api.inferenceservice_status import VARIANTS_KEPT
from berth.controllers.services.status import Figures, Learned, body, conditions, moved, rejected, restore, transition
from berth.inference.coldstart import ColdStarts, Key
from berth.inference.service import Decision, Memory, Phase, Plan, Verdict
from berth.values import Requirement
from tests.builders.services import make_replicas, make_variant
from tests.unit.controllers.services.test_service_refusals import Desk

NOW = 1_700_000_000.0
UP = Decision(NOW - 60, 1, 3, "Demand", "Demand is 3", "MaxUp", NOW)
DOWN = Decision(NOW - 600, 2, 1, "Demand", "Demand is 1", "", NOW - 300)
LOST = {"MetricsAvailable": Verdict(False, "Holding", "no answer")}
PLAN = Plan({"od": 3}, Memory((UP, DOWN)), Phase.READY, "All is well", {"Ready": Verdict(True, "ReplicasReady")},
            usd_per_hour=2.4, on_demand_only_usd_per_hour=2.4)  # fmt: skip
FIGURES = Figures("Value", 2.5, 3.0, 200.0, 0.95, NOW, "SeasonalNaive", 0.07, 0.11, 90.0, 180.0, 40.0, 0.31)


def learned() -> Learned:
    starts = ColdStarts()
    starts.observe(Key("m", "L4", "pool"), 95.0)
    places = {"od": (Requirement("gpu", "In", ("l4",)), Requirement("spot", "DoesNotExist")), "other": ()}
    trials = (capacity("-2/40 -2:9.0:3.0"),)
    return Learned(300, tuple(starts.record()), "cmVjb3Jk", {"od": 8000}, "L4", trials, places)


def capacity(record: str) -> dict[str, Any]:
    return {"accelerator": "L4", "devices": 1, "basis": "b", "record": record}


def status(plan: Plan = PLAN, before: dict[str, Any] | None = None, figures: Figures = FIGURES, **more: Any) -> Any:
    own = {"now": NOW, "ready": 3, **more}
    pods = make_replicas(own["ready"], "od")
    variants = {"od": make_variant(name="od")}
    return body(plan, 1, "chat", variants, pods, figures, learned(), before or {}, {}, own["now"])


def test_what_is_written_is_what_is_remembered() -> None:
    memory, starts, known = restore(status())
    assert memory.decisions == (UP, DOWN)
    assert (memory.last_up, memory.last_down) == (UP.time, DOWN.time)
    assert memory.unknown_since is None
    assert known == learned()
    assert starts.record() == list(learned().cold_starts)


def test_how_long_demand_has_been_unknown_survives_a_restart() -> None:
    first = status(replace(PLAN, conditions=LOST))
    later = status(replace(PLAN, conditions=LOST), first, now=NOW + 900)
    assert restore(later)[0].unknown_since == NOW


def test_how_long_the_slo_has_been_missed_survives_a_restart() -> None:
    missed = replace(PLAN, conditions={"SloMet": Verdict(False, "Missed")})
    assert restore(status(missed, status(missed), now=NOW + 900))[0].missed_since == NOW
    assert restore(status(replace(PLAN, conditions={"SloMet": Verdict(True, "Met")})))[0].missed_since is None


@pytest.mark.parametrize("keeps", [None, 12])
def test_what_manual_holds_is_written_at_once_and_survives_a_restart(keeps: int | None) -> None:
    held = status(replace(PLAN, memory=replace(PLAN.memory, unset=1, unset_keeps=keeps)))
    assert transition(status(), held)
    for known in (held, rejected("NameTaken", "", 1, held, NOW)):
        memory = restore(known)[0]
        assert (memory.unset, memory.unset_keeps) == (1, keeps)


@pytest.mark.parametrize(("quantile", "shown"), [(0.995, 99), (0.95, 95), (0.29, 29), (0.0, None)])
def test_a_percentile_is_never_rounded_up_and_absent_where_nothing_is_foreseen(
    quantile: float, shown: int | None
) -> None:
    assert status(figures=replace(FIGURES, quantile=quantile))["demand"].get("percentile") == shown


def test_nothing_written_is_nothing_remembered() -> None:
    assert restore({}) == (Memory(), ColdStarts(), Learned())


def test_conditions_keep_their_time_until_they_change() -> None:
    yes, no = {"Ready": Verdict(True, "A")}, {"Ready": Verdict(False, "B")}
    first = {"conditions": conditions(yes, {}, 1, NOW)}
    again = {"conditions": conditions({"Ready": Verdict(True, "C")}, first, 1, NOW + 10)}
    after = {"conditions": conditions(no, again, 1, NOW + 20)}
    times = [entry["conditions"][0]["lastTransitionTime"] for entry in (first, again, after)]
    assert times[0] == times[1] != times[2]


def test_a_refused_spec_leaves_what_runs_as_it_is() -> None:
    found = rejected("SpecInvalid", "no", 2, status(), NOW)
    assert (found["phase"], found["replicas"], found["variants"]) == ("Degraded", 3, status()["variants"])
    assert {entry["type"] for entry in found["conditions"]} == {"Ready", "Accepted"}
    assert rejected("SpecInvalid", "no", 1, {}, NOW)["phase"] == "Failed"


@pytest.mark.parametrize(
    ("after", "at_once", "in_a_while"),
    [
        (status(now=NOW + 30, figures=replace(FIGURES, as_of=NOW + 30)), False, False),
        (status(replace(PLAN, phase=Phase.DEGRADED)), True, None),
        (status(replace(PLAN, counts={"od": 4})), True, None),
        (status(replace(PLAN, conditions={"Ready": Verdict(False, "X")})), True, None),
        (status(replace(PLAN, memory=Memory((replace(UP, time=NOW), UP)))), True, None),
        (status(ready=2), False, True),
        (status(figures=replace(FIGURES, current=2.6)), False, False),
        (status(figures=replace(FIGURES, current=3.0)), False, True),
        (status(figures=replace(FIGURES, state="Idle")), False, True),
        (status(figures=replace(FIGURES, wape=0.2)), False, True),
        (status(replace(PLAN, usd_per_hour=9.0)), False, True),
        (status(replace(PLAN, message="All is well again")), False, True),
    ],
    ids=["nothing", "phase", "count", "condition", "decision", "readiness", "a little", "much", "state", "error",
         "cost", "sentence"],
)  # fmt: skip
def test_when_it_is_written(after: dict[str, Any], at_once: bool, in_a_while: bool | None) -> None:
    assert transition(status(), after) is at_once
    if in_a_while is not None:
        assert moved(status(), after) is in_a_while


@pytest.mark.parametrize(("record", "expected"), [("-2/41 -2:9.0:4.0", False), ("-3/41 -2:9.0:4.0", True)])
def test_another_capacity_is_worth_a_write_and_one_more_trial_is_none(record: str, expected: bool) -> None:
    before = status()
    after = {**before, "learned": {**before["learned"], "capacities": [capacity(record)]}}
    assert moved(before, after) is expected


async def test_a_service_that_may_run_in_a_hundred_pools_remembers_those_that_it_uses() -> None:
    written = await Desk(*(f"l4-{number}" for number in range(100))).look()
    parse_status(written)
    used = [entry["name"] for entry in written["variants"]]
    assert used
    assert [entry["variant"] for entry in written["learned"]["cpu"]] == used


def test_a_status_admits_what_is_written_of_any_number_of_variants() -> None:
    counts = {f"v{number}": number for number in range(VARIANTS_KEPT + 9)}
    many = replace(learned(), cpu=dict.fromkeys(counts, 8000), places=dict.fromkeys(counts, ()))
    written = body(replace(PLAN, counts=counts), 1, "chat", {}, (), FIGURES, many, {}, {}, NOW)
    parse_status(written)
    assert min(entry["replicas"] for entry in written["variants"]) == 9, "the smallest are left out"

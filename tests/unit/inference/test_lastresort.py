"""What may be used no more serves until others carry the work, whatever took it out of use."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.inference.mix import cheapest_mix
from berth.inference.plan import decide
from berth.inference.records import Offer
from berth.inference.service import Memory, Mode, Plan, Rules, Sight, SpotRules, Step, ZeroRules
from tests.builders.services import make_offer, make_replicas, make_sight
from tests.unit.inference.cases import PATIENT

HELD = replace(PATIENT, held=4, held_work=4.0, held_capacity=4.0)
ALL_DOWN = Step(share=1.0)


def closed(name: str = "old", room: int = 4, **fields: float) -> Offer:
    return make_offer(name, room, closed=True, **fields)


def plan(sight: Sight, rules: Rules | None = None, memory: Memory | None = None) -> Plan:
    return decide(rules or Rules(), memory or Memory(), sight, cheapest_mix)


@pytest.mark.parametrize(
    ("work", "others", "rules", "memory", "expected"),
    [
        pytest.param(4.0, [], Rules(), Memory(), {"old": 4}, id="nothing else may carry it"),
        pytest.param(9.0, [], Rules(), Memory(), {"old": 4}, id="nor is more asked for"),
        pytest.param(None, [], Rules(), Memory(), {"old": 4}, id="demand is not known"),
        pytest.param(4.0, [make_offer("od", 0)], Rules(), Memory(), {"old": 4}, id="others have no room"),
        pytest.param(4.0, [make_offer("od", 4)], Rules(), Memory(), {"od": 4, "old": 4}, id="others come first"),
        pytest.param(None, [make_offer("od", 4)], Rules(), HELD, {"od": 4, "old": 4}, id="also for the unknown"),
        pytest.param(4.0, [make_offer("od", 1)], Rules(), Memory(), {"od": 1, "old": 4}, id="others have little room"),
        pytest.param(4.0, [make_offer("od", 4, usd=99.0)], Rules(), Memory(), {"od": 4, "old": 4}, id="dear ones"),
        pytest.param(2.0, [], Rules(), Memory(), {"old": 4}, id="less is enough only since now"),
        pytest.param(2.0, [], Rules(), PATIENT, {"old": 2}, id="less has been enough for long"),
        pytest.param(0.0, [], Rules(max_down=ALL_DOWN), PATIENT, {"old": 1}, id="the floor"),
        pytest.param(2.0, [], Rules(max_replicas=1, max_down=ALL_DOWN), PATIENT, {"old": 1}, id="the ceiling"),
        pytest.param(4.0, [], Rules(mode=Mode.MANUAL, manual_replicas=3), Memory(), {"old": 3}, id="Manual"),
        pytest.param(4.0, [], Rules(mode=Mode.MANUAL, manual_replicas=0), Memory(), {}, id="Manual, none"),
        pytest.param(4.0, [], Rules(mode=Mode.ADVISORY), Memory(), {"old": 4}, id="Advisory"),
        pytest.param(4.0, [], Rules(spot=SpotRules(allowed=True, only=True)), Memory(), {"old": 4}, id="spot only"),
    ],
)
def test_what_serves_is_kept(
    work: float | None, others: list[Offer], rules: Rules, memory: Memory, expected: dict[str, int]
) -> None:
    made = plan(make_sight(work, {"old": 4}, offers=(*others, closed())), rules, memory)
    assert {name: count for name, count in made.counts.items() if count} == expected
    assert ("may be used no more" in made.message) == bool(expected)


def test_an_idle_service_rests() -> None:
    sight = make_sight(0.0, {"old": 1}, offers=(closed(room=1),), at_zero=True, cold_start_seconds=5.0)
    made = plan(sight, Rules(min_replicas=0, zero=ZeroRules()), replace(PATIENT, idle_since=0.0))
    assert made.replicas == 0


def test_spot_that_may_be_used_no_more_stays_until_the_others_serve() -> None:
    both = (make_offer("od", 3), closed("spot-a", 3))
    started = plan(make_sight(3.0, {"spot-a": 3}, offers=both))
    assert started.counts == {"od": 3, "spot-a": 3}
    ready = make_replicas(1) + make_replicas(3, "spot-a")
    one = plan(make_sight(3.0, started.counts, replicas=ready, offers=both), memory=started.memory)
    assert one.counts == {"od": 3, "spot-a": 2}
    done = plan(make_sight(3.0, started.counts, offers=both), memory=started.memory)
    assert {name: count for name, count in done.counts.items() if count} == {"od": 3}
    assert "may be used no more" not in done.message


@settings(max_examples=150, deadline=None)
@given(
    work=st.none() | st.floats(0, 8),
    there=st.integers(1, 5),
    ready=st.integers(0, 5),
    room=st.integers(0, 5),
    size=st.sampled_from([0.5, 1.0, 2.0]),
    missed=st.sampled_from([None, False]),
)
def test_no_more_are_asked_for_and_what_is_ready_carries_what_it_did(
    work: float | None, there: int, ready: int, room: int, size: float, missed: bool | None
) -> None:
    up = min(ready, there)
    pods = make_replicas(up, "old") + tuple(
        replace(pod, name=f"{pod.name}-new") for pod in make_replicas(there - up, "old", ready=False)
    )
    offers = (make_offer("od", room), closed(room=there, capacity=size))
    sight = make_sight(work, {"old": there}, replicas=pods, offers=offers, slo_met=missed)
    made = plan(sight)
    assert made.counts.get("old", 0) <= there
    left = min(made.counts.get("old", 0), up)
    need = max(work or 0.0, 0.0)
    assert left * size >= min(need, up * size) - 1e-9, "nothing else is ready"
    assert left >= min(1, up)
    assert plan(sight) == made

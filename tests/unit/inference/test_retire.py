"""Which replicas may go: what is replaced stays until its replacement serves, and nothing is counted twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.inference.records import Variant
from berth.inference.retire import leaving, settle, staying, victims
from berth.inference.service import Replica
from tests.builders.services import make_replica, make_replicas, make_variant

VARIANTS = {
    "dear": make_variant(name="dear", usd_per_hour=3.0),
    "od": make_variant(name="od", usd_per_hour=1.0),
    "big": make_variant(name="big", usd_per_hour=4.0, capacity=4.0),
}


def ready(**counts: int) -> tuple[Replica, ...]:
    return tuple(pod for name, count in counts.items() for pod in make_replicas(count, name))


def starting(variant: str, count: int) -> tuple[Replica, ...]:
    return tuple(make_replica(f"{variant}-new-{i}", variant, ready=False) for i in range(count))


def noticed(variant: str, count: int) -> tuple[Replica, ...]:
    return tuple(make_replica(f"{variant}-gone-{i}", variant, leaving_at=60.0) for i in range(count))


def settled(goal: dict[str, int], wanted: dict[str, int], pods: Any, work: float, **more: Any) -> dict[str, int]:
    rooms = more.pop("rooms", dict.fromkeys(VARIANTS, 50))
    return settle(goal, wanted, pods, VARIANTS, work, rooms, more.pop("least", 0), **more)


@pytest.mark.parametrize(
    ("goal", "wanted", "pods", "work", "expected"),
    [
        pytest.param({"od": 5}, {"od": 2}, ready(od=2), 5.0, {"od": 5}, id="growth goes in one jump"),
        pytest.param({"od": 2}, {"od": 5}, ready(od=5), 2.0, {"od": 2}, id="what the others carry goes"),
        pytest.param({"od": 2}, {"od": 5}, ready(od=5), 3.5, {"od": 4}, id="but no further than the proof"),
        pytest.param({"od": 3}, {"od": 5}, ready(od=3), 3.0, {"od": 3}, id="not ready first, they carry nothing"),
        pytest.param({"od": 2}, {"dear": 2}, ready(dear=2), 2.0, {"dear": 2, "od": 2}, id="made before broken"),
        pytest.param(
            {"od": 2}, {"dear": 2, "od": 2}, ready(dear=2, od=1), 2.0, {"dear": 1, "od": 2}, id="as the new get ready"
        ),
        pytest.param({"od": 2}, {"dear": 2, "od": 2}, ready(dear=2, od=2), 2.0, {"dear": 0, "od": 2}, id="until done"),
        pytest.param({"od": 4}, {"big": 1, "od": 4}, ready(big=1, od=3), 4.0, {"big": 1, "od": 4}, id="in work"),
        pytest.param({"od": 1}, {"gone": 1, "od": 1}, ready(gone=1), 1.0, {"gone": 1, "od": 1}, id="without an offer"),
    ],
)
def test_on_the_way_from_what_is_to_what_shall_be(
    goal: dict[str, int], wanted: dict[str, int], pods: Any, work: float, expected: dict[str, int]
) -> None:
    assert settled(goal, wanted, pods, work) == expected


def test_an_idle_service_that_moves_keeps_its_last_ready_replica_until_the_new_one_is() -> None:
    moving = {"goal": {"od": 1}, "wanted": {"dear": 1, "od": 1}, "work": 0.0, "least": 1}
    assert settled(pods=ready(dear=1) + starting("od", 1), **moving) == {"dear": 1, "od": 1}
    assert settled(pods=ready(dear=1, od=1), **moving) == {"dear": 0, "od": 1}


def test_replicas_that_a_notice_takes_are_replaced_first_and_then_drained() -> None:
    both = ready(od=1) + noticed("od", 1)
    assert settled({"od": 2}, {"od": 2}, both, 2.0) == {"od": 3}
    assert settled({"od": 2}, {"od": 3}, both + starting("od", 1), 2.0) == {"od": 3}
    assert settled({"od": 2}, {"od": 3}, ready(od=2) + noticed("od", 1), 2.0) == {"od": 2}


def test_a_spare_that_a_notice_takes_is_replaced_elsewhere_first_too_unless_its_time_is_short() -> None:
    goal, before, during = {"od": 3}, {"dear": 1, "od": 2}, {"dear": 1, "od": 3}
    pods = noticed("dear", 1) + ready(od=2)
    assert settled(goal, before, pods, 2.0) == during
    assert settled(goal, during, pods + starting("od", 1), 2.0) == during
    assert settled(goal, during, noticed("dear", 1) + ready(od=3), 2.0) == {"dear": 0, "od": 3}
    assert settled(goal, before, pods, 2.0, urgent=True) == {"dear": 0, "od": 3}
    assert settled(goal, before, pods, 3.0, urgent=True) == during, "none to spare"


def test_nothing_is_asked_for_beyond_room() -> None:
    pods = ready(od=1) + noticed("od", 1)
    assert settled({"od": 2}, {"od": 2}, pods, 2.0, rooms={"od": 2}) == {"od": 2}


@pytest.mark.parametrize(
    ("wanted", "pods", "expected"),
    [
        (2, ready(od=1) + noticed("od", 1), 1),
        (2, ready(od=2) + noticed("od", 1), 0),
        (3, ready(od=1) + noticed("od", 2), 2),
        (1, (make_replica(leaving_at=1.0, terminating=True),), 0),
        (0, noticed("od", 1), 0),
    ],
    ids=["one of two", "already given up", "two", "terminating is gone", "none wanted"],
)
def test_pods_with_a_notice_that_are_on_their_way_out_are_not_counted_again(
    wanted: int, pods: Any, expected: int
) -> None:
    assert leaving(wanted, pods, "od") == expected
    assert staying({"od": wanted}, pods) == {"od": wanted - expected}


def test_a_decrease_goes_by_what_is_asked_for_and_not_by_pods_that_are_still_there() -> None:
    first = settled({"od": 2}, {"dear": 3}, ready(dear=3), 2.0)
    assert first == {"dear": 2, "od": 2}
    assert settled({"od": 2}, first, ready(dear=3), 2.0) == first


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((make_replica("a", in_flight=9.0), make_replica("b", in_flight=1.0)), "b"),
        ((make_replica("a", in_flight=0.0), make_replica("b", ready=False)), "b"),
        ((make_replica("a", in_flight=0.0), make_replica("b", in_flight=9.0, leaving_at=60.0)), "b"),
        ((make_replica("a", in_flight=5.0), make_replica("b")), "a"),
        ((make_replica("a", created=5.0), make_replica("b", created=9.0)), "b"),
        ((make_replica("a", terminating=True), make_replica("b", in_flight=9.0)), "b"),
    ],
    ids=["least loaded", "not ready", "about to be taken", "unknown counts as much", "young", "not one that ends"],
)
def test_the_first_to_go(pods: Any, expected: str) -> None:
    alive = sum(not pod.terminating for pod in pods)
    assert victims(pods, "od", alive - 1) == (expected,)


def test_replicas_that_do_not_exist_yet_go_before_any_pod() -> None:
    assert victims(make_replicas(3), "od", 4) == ()


replicas = st.lists(
    st.builds(
        lambda variant, is_ready, gone, terminating: (variant, is_ready, gone, terminating),
        st.sampled_from(sorted(VARIANTS)), st.booleans(), st.booleans(), st.booleans(),
    ),
    max_size=12,
)  # fmt: skip
numbers = st.dictionaries(st.sampled_from(sorted(VARIANTS)), st.integers(0, 6))


def carry(counts: dict[str, int], pods: tuple[Replica, ...], variants: dict[str, Variant]) -> tuple[float, int]:
    """Work and number of the ready replicas that are left for sure when each variant keeps ``counts``."""
    left = {
        name: min(
            count, sum(p.variant == name and p.ready and not p.terminating and p.leaving_at is None for p in pods)
        )
        for name, count in counts.items()
    }
    return sum(variants[name].capacity * count for name, count in left.items()), sum(left.values())


@given(
    goal=numbers, wanted=numbers, drawn=replicas, work=st.floats(0, 20), least=st.integers(0, 8), urgent=st.booleans()
)
def test_our_own_decrease_never_takes_ready_work_below_the_need_and_settles_at_once(
    goal: dict[str, int], wanted: dict[str, int], drawn: Any, work: float, least: int, urgent: bool
) -> None:
    pods = tuple(
        make_replica(f"p{i}", variant, ready=is_ready, leaving_at=60.0 if gone else None, terminating=terminating)
        for i, (variant, is_ready, gone, terminating) in enumerate(drawn)
    )
    rooms = {name: max(goal.get(name, 0), wanted.get(name, 0)) for name in VARIANTS}
    work = min(work, sum(VARIANTS[name].capacity * count for name, count in goal.items()))
    least = min(least, sum(goal.values()))
    after = settle(goal, wanted, pods, VARIANTS, work, rooms, least, urgent=urgent)
    before_work, before_count = carry(staying(wanted, pods), pods, VARIANTS)
    after_work, after_count = carry(after, pods, VARIANTS)
    assert after_work >= min(work, before_work) - 1e-6
    assert after_count >= min(least, before_count)
    assert all(count <= max(rooms[name], wanted.get(name, 0)) for name, count in after.items())
    out = {pod for name in VARIANTS for pod in victims(pods, name, wanted.get(name, 0))}
    left = tuple(pod for pod in pods if pod.name not in out)
    assert settle(goal, after, left, VARIANTS, work, rooms, least, urgent=urgent) == after

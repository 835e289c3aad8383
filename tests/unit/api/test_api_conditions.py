"""Conditions: what moves lastTransitionTime, and that concluding the same changes nothing."""

from __future__ import annotations

from berth.api.common import MESSAGE_LIMIT, Condition, rfc3339, shorten, unix_seconds
from berth.api.conditions import find_condition, set_condition

NOW = 1_800_000_000.0
LATER = NOW + 3600


def placed(
    now: float, status: str = "True", message: str = "on 8 nodes", before: tuple[Condition, ...] = ()
) -> tuple[Condition, ...]:
    return set_condition(before, "Placed", status, "Placed", message, now=now, generation=1)  # type: ignore[arg-type]


def test_new_condition_comes_last_and_starts_now() -> None:
    both = set_condition(placed(NOW), "AllRunning", "False", "Starting", "5 of 8 run", now=LATER)
    assert [condition.type for condition in both] == ["Placed", "AllRunning"]
    assert [condition.last_transition_time for condition in both] == [rfc3339(NOW), rfc3339(LATER)]


def test_same_conclusion_changes_nothing() -> None:
    assert placed(LATER, before=placed(NOW)) == placed(NOW)


def test_new_message_keeps_the_time() -> None:
    after = placed(LATER, message="on 9 nodes", before=placed(NOW))[0]
    assert (after.message, after.last_transition_time) == ("on 9 nodes", rfc3339(NOW))


def test_new_status_moves_the_time() -> None:
    assert placed(LATER, status="False", before=placed(NOW))[0].last_transition_time == rfc3339(LATER)


def test_finding() -> None:
    conditions = placed(NOW)
    assert find_condition(conditions, "Placed") is conditions[0]
    assert find_condition(conditions, "AllRunning") is None


def test_dump_is_what_the_api_server_wants() -> None:
    assert placed(NOW)[0].dump() == {
        "type": "Placed",
        "status": "True",
        "observedGeneration": 1,
        "lastTransitionTime": "2027-01-15T08:00:00Z",
        "reason": "Placed",
        "message": "on 8 nodes",
    }


def test_times_round_trip() -> None:
    assert unix_seconds(rfc3339(NOW + 0.9)) == NOW
    assert unix_seconds("2027-01-15T09:00:00.5+01:00") == NOW + 0.5


def test_long_message_is_cut_to_what_the_schema_admits() -> None:
    assert shorten("short") == "short"
    cut = shorten("x" * (MESSAGE_LIMIT + 1))
    assert (len(cut), cut[-1]) == (MESSAGE_LIMIT, "…")

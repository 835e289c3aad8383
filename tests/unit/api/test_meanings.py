"""The reference's tables of conditions and events hold what the code can set, and nothing else."""

from __future__ import annotations

from dataclasses import fields

from berth.api.conditions import PoolCondition, ServiceCondition
from berth.api.meanings import CONDITIONS, EVENTS
from berth.api.names import ServiceEvent
from berth.api.trainingjob_status import Attempt
from berth.training.state import Cause, Reason
from tests.unit.api import reasons
from tests.unit.api.reasons import ANY, Set

TOLD = {
    Set(kind, entry.type, meaning.status, meaning.reason)
    for kind, entries in CONDITIONS.items()
    for entry in entries
    for meaning in entry.reasons
}


def meets(one: Set, other: Set) -> bool:
    return all(
        ANY in (mine := getattr(one, each.name), theirs := getattr(other, each.name)) or mine == theirs
        for each in fields(Set)
    )


def test_every_reason_that_the_code_sets_is_in_the_reference() -> None:
    missing = [found for found in reasons.conditions() if not any(meets(found, told) for told in TOLD)]
    assert sorted(map(str, missing)) == []


def test_every_reason_in_the_reference_is_set_by_the_code() -> None:
    found = reasons.conditions()
    assert sorted(str(told) for told in TOLD if not any(meets(told, each) for each in found)) == []


def test_events_in_the_reference_are_those_that_the_code_records() -> None:
    told = {(kind, event.reason) for kind, events in EVENTS.items() for event in events}
    assert told == reasons.events()


def test_each_reason_stands_once() -> None:
    for entries in CONDITIONS.values():
        assert len({entry.type for entry in entries}) == len(entries)
        for entry in entries:
            assert len({meaning.reason for meaning in entry.reasons}) == len(entry.reasons)


def test_every_named_type_and_event_is_in_the_reference() -> None:
    def named(holder: type) -> set[str]:
        return {value for name, value in vars(holder).items() if name.isupper()}

    assert {entry.type for entry in CONDITIONS["AcceleratorPool"]} == named(PoolCondition)
    assert {entry.type for entry in CONDITIONS["InferenceService"]} == named(ServiceCondition)
    assert {event.reason for event in EVENTS["InferenceService"]} == named(ServiceEvent)


def test_the_reference_names_what_ends_attempts() -> None:
    fields_of = Attempt.model_fields
    assert {reason for reason in Reason if reason not in (fields_of["reason"].description or "")} == set()
    assert {cause for cause in Cause if cause not in (fields_of["cause"].description or "")} == set()

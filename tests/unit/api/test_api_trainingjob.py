"""A TrainingJob's spec in numbers, with and without what the user left out; ranks as status holds them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.api.common import ContractProblem
from berth.api.trainingjob import TrainingJobSpec, parse_spec, parse_status
from berth.api.trainingjob_status import RANKS_LIMIT, RANKS_PLAIN_LIMIT, decode_ranks, encode_ranks
from tests.contract import tables

Json = dict[str, Any]


def job(**patch: Any) -> TrainingJobSpec:
    return parse_spec(tables.merged(tables.minimal("trainingjob")["spec"], patch), name="llama", namespace="research")


def test_defaults_of_what_is_left_out() -> None:
    spec = job()
    assert (spec.name, spec.namespace, spec.queue) == ("llama", "research", "research")
    assert (spec.smallest_workers, spec.framework, spec.suspend) == (8, "None", False)
    assert (spec.start_timeout_seconds, spec.start_attempts) == (600, 5)
    assert (spec.restart, spec.max_restarts, spec.spares, spec.recovery_rules) == ("Gang", 10, 0, ())
    assert (spec.checkpoints_kept, spec.preempt_signal, spec.bytes_per_parameter) == (2, "SIGTERM", 12)
    assert (spec.model_parallel, spec.slice_workers, spec.worker_step) == (1, 1, 1)
    assert spec.accelerators.types == ()


ABSENT = (
    "parameters_count", "model_bytes", "expected_duration_seconds", "max_duration_seconds", "checkpoint_uri",
    "checkpoint_interval_seconds", "checkpoint_bytes", "checkpoint_bytes_per_second", "preempt_deadline_seconds",
    "force_delete_after_seconds",
)  # fmt: skip


@pytest.mark.parametrize("accessor", ABSENT)
def test_absent_stays_absent(accessor: str) -> None:
    assert getattr(job(), accessor) is None


def test_contract_example_in_numbers() -> None:
    spec = parse_spec(tables.example("trainingjob")["spec"], name="llama-70b", namespace="research")
    assert (spec.parameters_count, spec.model_bytes) == (70 * 10**9, 840 * 10**9)
    assert (spec.model_parallel, spec.slice_workers, spec.worker_step, spec.data_parallel(64)) == (32, 1, 4, 16)
    assert (spec.expected_duration_seconds, spec.max_duration_seconds) == (72 * 3600, 720 * 3600)
    assert (spec.checkpoint_bytes, spec.checkpoint_bytes_per_second) == (840 * 10**9, 100 * 10**9)
    assert (spec.preempt_signal, spec.preempt_deadline_seconds) == ("SIGUSR1", 120)
    assert [rule.action for rule in spec.recovery_rules] == ["Fail", "RestartFree"]
    assert spec.force_delete_after_seconds == 600


AUTO_IS_ABSENT: list[tuple[Json, str, object]] = [
    ({"checkpoint": {"interval": "Auto"}}, "checkpoint_interval_seconds", None),
    ({"checkpoint": {"interval": "30m"}}, "checkpoint_interval_seconds", 1800),
    ({"recovery": {"spares": "Auto"}}, "spares", None),
    ({"recovery": {"spares": 2}}, "spares", 2),
    ({"recovery": {"maxRestarts": 0}}, "max_restarts", 0),
    ({"minWorkers": 4}, "smallest_workers", 4),
    ({"queueName": "other"}, "queue", "other"),
    ({"model": {"parameters": 7_000_000_000}}, "parameters_count", 7 * 10**9),
    ({"model": {"parameters": "1.8T", "bytesPerParameter": 16}}, "model_bytes", 288 * 10**11),
    ({"checkpoint": {"size": "512Gi"}}, "checkpoint_bytes", 512 * 2**30),
    ({"parallelism": {"tensor": 16}}, "slice_workers", 2),
    ({"parallelism": {"tensor": 4}}, "slice_workers", 1),
    ({"parallelism": {"tensor": 8, "pipeline": 3}}, "worker_step", 3),
]


@pytest.mark.parametrize(("patch", "accessor", "value"), AUTO_IS_ABSENT)
def test_given_values_in_numbers(patch: Json, accessor: str, value: object) -> None:
    assert getattr(job(**patch), accessor) == value


def test_spec_of_another_form_is_a_problem_that_names_every_field() -> None:
    with pytest.raises(
        ContractProblem, match=r"spec\.workers: .*; spec\.startTimeout: .*; spec\.template: Field required"
    ):
        job(workers=0, startTimeout="soon", template=None)


def test_fields_of_a_newer_release_are_ignored() -> None:
    assert job(novelty={"a": 1}) == job()


def test_status_dumps_what_it_was_parsed_from() -> None:
    status = tables.example("trainingjob")["status"]
    assert parse_status(status).dump() == status


def test_absent_status_is_empty() -> None:
    assert parse_status(None).dump() == {}


nodes = st.lists(st.from_regex(r"[a-z][a-z0-9.-]{0,30}", fullmatch=True), max_size=400)


@settings(max_examples=40)
@given(nodes)
def test_ranks_survive_their_encoding(names: list[str]) -> None:
    assert decode_ranks(encode_ranks(names)) == tuple(names)


def test_ranks_stay_readable_up_to_the_limit_and_fit_beyond() -> None:
    few = ["n" * (RANKS_PLAIN_LIMIT - 1)]
    assert encode_ranks(few) == few[0]
    many = [f"ip-10-{node // 62500}-{node // 250 % 250}-{node % 250}.ec2.internal" for node in range(25_000)]
    assert encode_ranks(many).startswith("z:")
    assert len(encode_ranks(many)) <= RANKS_LIMIT


@pytest.mark.parametrize("damaged", ["z:!", "z:AAAA", "z:" + "A" * 9])
def test_damaged_ranks_are_an_error(damaged: str) -> None:
    with pytest.raises(ValueError, match="ranks cannot be read"):
        decode_ranks(damaged)

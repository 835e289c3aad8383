"""What ranks are told of checkpoints and parallelism, and where the figures come from."""

from __future__ import annotations

from typing import Any

import pytest

from berth.api.trainingjob import TrainingJobSpec, parse_spec
from berth.controllers.gangs import environment, initial_checkpoint
from berth.training.state import Checkpoint
from tests.builders.fleet import catalogue
from tests.builders.training import make_placement

SIXTY_FOUR = make_placement(*(f"n{rank}" for rank in range(64)))
POLICY = Checkpoint(1862)


def make_spec(**fields: Any) -> TrainingJobSpec:
    raw = {
        "workers": 64,
        "accelerators": {"perWorker": 8},
        "template": {"spec": {"containers": [{"name": "worker", "image": "i"}]}},
        **fields,
    }
    return parse_spec(raw, name="llm", namespace="research")


def found(**fields: Any) -> Checkpoint:
    policy = initial_checkpoint(make_spec(**fields), SIXTY_FOUR, catalogue())
    assert policy is not None
    return policy


def test_the_contract_s_example() -> None:
    policy = found(checkpoint={"size": "840G", "writeBandwidth": "100G"})
    assert (policy.interval_seconds, policy.stall_milliseconds, policy.mtbf_seconds) == (1862, 8400, 207_692)
    assert policy.size_bytes == 840 * 10**9


def test_the_size_is_the_model_s_where_none_is_given() -> None:
    assert found(model={"parameters": "70B"}, checkpoint={"writeBandwidth": "100G"}).interval_seconds == 1862
    given = {"parameters": "70B", "bytesPerParameter": 16}
    assert found(model=given, checkpoint={"size": "840G"}).size_bytes == 840 * 10**9


def test_a_store_s_bandwidth_is_the_catalogue_s_where_none_is_given() -> None:
    known = next(
        (entry, scheme)
        for entry in catalogue().storage.values()
        for scheme in entry.schemes
        if catalogue().storage_of(scheme=scheme) is entry and entry.write_bandwidth(64) and scheme != "pvc"
    )
    store, scheme = known
    policy = found(checkpoint={"size": "840G", "uri": f"{scheme}://bucket/path"})
    bandwidth = store.write_bandwidth(64)
    assert bandwidth
    assert policy.stall_milliseconds == round(840e9 / bandwidth * 1000)


@pytest.mark.parametrize("fields", [{"checkpoint": {"keep": 3}}, {"model": {"parameters": "70B"}}])
def test_what_is_not_known_is_said(fields: dict[str, Any]) -> None:
    policy = found(**fields)
    assert policy.interval_seconds == 3600
    assert "unknown" in policy.reason


def test_nodes_count_once_however_many_ranks_they_hold() -> None:
    spec = make_spec(checkpoint={"size": "840G", "writeBandwidth": "100G"})
    shared = initial_checkpoint(spec, make_placement(*("n0", "n1") * 32), catalogue())
    assert shared is not None
    assert shared.mtbf_seconds == round(86_400 / (2 * 6.5e-3))


def test_a_job_that_says_nothing_of_checkpoints_has_no_policy_and_is_told_none() -> None:
    assert initial_checkpoint(make_spec(), SIXTY_FOUR, catalogue()) is None
    assert environment(make_spec(), None) == {}
    assert environment(make_spec(), POLICY) == {}


def test_ranks_are_told_how_to_save() -> None:
    spec = make_spec(checkpoint={"uri": "s3://b/k", "keep": 5, "onPreempt": {"signal": "SIGUSR1", "deadline": "2m"}})
    assert environment(spec, POLICY) == {
        "BERTH_CHECKPOINT_INTERVAL_SECONDS": "1862",
        "BERTH_CHECKPOINT_KEEP": "5",
        "BERTH_CHECKPOINT_URI": "s3://b/k",
        "BERTH_PREEMPT_SIGNAL": "SIGUSR1",
        "BERTH_PREEMPT_DEADLINE_SECONDS": "120",
    }


def test_without_a_deadline_of_its_own_a_preemption_leaves_the_template_s_grace_period() -> None:
    pod = {"containers": [{"name": "worker", "image": "i"}], "terminationGracePeriodSeconds": 45}
    spec = make_spec(checkpoint={"onPreempt": {"signal": "SIGUSR1"}}, template={"spec": pod})
    assert environment(spec, None)["BERTH_PREEMPT_DEADLINE_SECONDS"] == "45"


def test_ranks_are_told_how_the_model_is_cut() -> None:
    assert environment(make_spec(parallelism={"tensor": 8, "pipeline": 4}), None) == {
        "BERTH_TENSOR_PARALLEL": "8",
        "BERTH_PIPELINE_PARALLEL": "4",
        "BERTH_CONTEXT_PARALLEL": "1",
        "BERTH_EXPERT_PARALLEL": "1",
        "BERTH_DATA_PARALLEL": "16",
    }

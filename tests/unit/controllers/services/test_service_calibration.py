"""What a service's sources tell becomes what its replicas are planned to carry, and never a pod template."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.inferenceservice_parts import Signal
from berth.controllers.services.calibration import carries, listen, tried
from berth.controllers.services.plans import deployment_plan, pod_facts
from berth.controllers.services.supply import Choice, Market
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.calibrate import MOST_STEPS, WINDOW_SECONDS, Capacities, Curve, Kind
from berth.inference.room import Rooms
from berth.render.service.deployment import deployment_template
from berth.telemetry.readings import Reading, Telling
from tests.builders.fleet import make_fleet, make_node
from tests.builders.services import make_replica
from tests.unit.controllers.services.views import make_view

ENGINE = Signal.model_validate({"name": "engine", "source": "Prometheus", "preset": "vLLM"})
GATEWAY = Signal.model_validate({"name": "gateway", "source": "Prometheus", "preset": "EnvoyGateway"})
L40S = Kind("L40S", 1)
KEPT = {"ttft": 0.01, "itl": 0.001}
MISSED = {"ttft": 60.0, "itl": 1.0}


def market(*products: str) -> tuple[Fleet, Market]:
    found = products or ("NVIDIA-L40S",)
    nodes = [make_node(f"n-{name}", pool=None, labels={"nvidia.com/gpu.product": name}) for name in found]
    fleet = make_fleet(nodes, pools=())
    return fleet, Market(fleet, Rooms(fleet), pod_facts(fleet))


def serve(
    view: ServiceView, choice: Choice, each: float, seconds: dict[str, float], *, windows: int = 30,
    signal: Signal = ENGINE, waiting: float = 0.0,
) -> None:  # fmt: skip
    """Windows in which each of two replicas has ``each`` of what it was estimated to carry, ``waiting`` of it."""
    estimate = choice.found.reference_capacity
    assert estimate is not None
    unit = estimate.in_flight if signal is ENGINE else estimate.requests_per_second
    variant = choice.found.found[0].variant.name
    replicas, now = [make_replica(f"p{i}", variant) for i in range(2)], 0.0
    pods = [replica.name for replica in replicas]
    for _ in range(3 * windows):
        now += WINDOW_SECONDS / 2
        readings = {signal.name: Reading("Value", 2 * each * unit, now)}
        telling = Telling(readings, dict.fromkeys(pods, each * unit), dict.fromkeys(pods, waiting * unit), seconds)
        listen(view, choice, [signal], telling, replicas, now)


@pytest.mark.parametrize(
    ("each", "seconds", "signal", "expected"),
    [(2.0, KEPT, ENGINE, 2.0), (0.5, MISSED, ENGINE, 1.0), (0.8, MISSED, ENGINE, 0.75), (2.0, KEPT, GATEWAY, 2.0)],
    ids=["more", "missed at little load", "less", "counted at the gateway"],
)
def test_a_replica_is_planned_to_carry_what_it_was_found_to(
    each: float, seconds: dict[str, float], signal: Signal, expected: float
) -> None:
    _, offered = market()
    view = make_view()
    before = offered.choice(view)
    serve(view, before, each, seconds, signal=signal)
    after = offered.choice(view)
    name = before.found.found[0].variant.name
    assert after.variants[name].capacity == pytest.approx(expected, rel=0.1)
    assert after.sized == before.sized
    assert after.found.reference_capacity == before.found.reference_capacity


def test_a_full_engine_is_told_by_its_queue() -> None:
    _, offered = market()
    view = make_view()
    serve(view, offered.choice(view), 3.0, {}, waiting=2.4)
    assert view.capacities.factor(L40S) == pytest.approx(0.6, rel=0.1)


def test_what_was_found_is_told() -> None:
    _, offered = market()
    view = make_view()
    choice = offered.choice(view)
    assert carries(view, choice, [ENGINE]) == ""
    serve(view, choice, 2.0, KEPT)
    told = carries(view, offered.choice(view), [ENGINE])
    assert told.startswith("a replica on L40S carries ")
    assert " requests in flight, measured in 30 trials (" in told


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ([ENGINE], "engine"),
        ([GATEWAY, ENGINE], "gateway"),
        ([Signal.model_validate({**ENGINE.model_dump(), "perReplica": "8"}), GATEWAY], "gateway"),
        ([Signal.model_validate({"name": "q", "source": "Prometheus", "preset": "InferenceExtension"})], None),
        ([Signal.model_validate({"name": "c", "source": "Prometheus", "preset": "Custom", "query": "x"})], None),
        ([], None),
    ],
    ids=["engine", "first", "stated", "a queue alone", "custom", "none"],
)
def test_only_what_is_sized_is_tried(signals: list[Signal], expected: str | None) -> None:
    found = tried(signals)
    assert (found.name if found else None) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"name": "llama-3-8b", "parameters": "8B", "uri": "hf://meta/llama-3-8b", "bitsPerParameter": 8}},
        {"slo": {"percentile": 99, "ttft": "3s"}},
        {"runtime": {"engine": "vLLM", "args": ["--enforce-eager"]}},
        {"template": {"spec": {"containers": [{"name": "server", "image": "vllm:other"}]}}},
    ],
    ids=["model", "promise", "arguments", "image"],
)
def test_another_model_engine_or_promise_begins_anew(change: dict[str, Any]) -> None:
    _, offered = market()
    view = make_view()
    serve(view, offered.choice(view), 2.0, KEPT)
    kept, other = make_view(), make_view(**change)
    for again in (kept, other):
        again.capacities = Capacities.restore(view.capacities.record())
        offered.choice(again)
        offered.forget(again.uid)
    assert kept.capacities.factor(L40S) > 1.5
    assert other.capacities.factor(L40S) == 1.0


@given(st.integers(-MOST_STEPS, MOST_STEPS), st.integers(-MOST_STEPS, MOST_STEPS))
def test_capacity_that_was_learned_changes_no_template(first: int, second: int) -> None:
    fleet, offered = market("NVIDIA-L40S", "NVIDIA-L4")

    def templates(view: ServiceView) -> dict[str, Any]:
        variants = offered.choice(view).variants.values()
        made = {variant.name: deployment_template(deployment_plan(view, variant, fleet)) for variant in variants}
        offered.forget(view.uid)
        return made

    learned = make_view()
    before = templates(learned)
    learned.capacities.curves = {L40S: Curve(step=first), Kind("L4", 1): Curve(step=second)}
    learned.capacities.version += 1
    assert templates(learned) == before

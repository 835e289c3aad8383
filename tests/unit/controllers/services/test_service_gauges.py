"""What metrics say of services, and that they say nothing of those that are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from berth.controllers.services.demand import Known
from berth.controllers.services.forecaster import Forecaster
from berth.controllers.services.gauges import FAMILIES, Seen, ServiceGauges
from berth.controllers.services.supply import Choice
from berth.inference.calibrate import Curve, Kind
from berth.inference.candidates import Candidate, Candidates
from berth.inference.capacity import Promise
from berth.inference.records import DemandState
from berth.inference.request import ServiceRequest
from berth.inference.service import Memory, Phase, Plan
from berth.inference.service import Seen as Heard
from berth.inference.target import Target
from berth.telemetry.metrics import Metrics
from tests.builders.services import make_replica, make_variant
from tests.unit.controllers.services.views import make_view

OD = make_variant(name="od")
SPOT = make_variant(name="spot", capacity_type="Spot", zone="a", capacity=0.5)
CHOICE = Choice(
    ServiceRequest("chat", None, Promise()),
    Candidates(tuple(Candidate(variant, None, 0, "Catalogue") for variant in (OD, SPOT)), (), "L4"),
    {"od": 1.0, "spot": 0.5},
)
PLAN = Plan({"od": 2, "spot": 2}, Memory(), Phase.READY, "", {}, usd_per_hour=2.4, on_demand_only_usd_per_hour=3.2)
REPLICAS = (
    make_replica("a", "od"), make_replica("b", "od", leaving_at=9.0), make_replica("c", "spot"),
    make_replica("d", "spot", ready=False), make_replica("e", "od", terminating=True),
)  # fmt: skip


def seen(name: str = "chat", heard: Heard | None = None, **plan: Any) -> Seen:
    view = make_view(name)
    view.plan = replace(PLAN, **plan)
    known = Known(Forecaster(60.0), seen=heard or Heard(DemandState.VALUE, 2.75), target=Target(3.25))
    return Seen(view, CHOICE, known, REPLICAS)


def shown(*services: Seen) -> tuple[Metrics, ServiceGauges]:
    metrics = Metrics()
    gauges = ServiceGauges(metrics)
    for service in services:
        gauges.draw(service)
    gauges.show()
    return metrics, gauges


def sample(metrics: Metrics, name: str, service: str = "chat", **labels: str) -> float | None:
    mine = {"service_namespace": "serving", "service_name": service, **labels}
    return metrics.registry.get_sample_value(f"berth_service_{name}", mine)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("demand_replicas", 2.75),
        ("forecast_replicas", 3.25),
        ("unserved_replicas", 0.25),
        ("at_risk_replicas", 1.25),
        ("short_replicas", 0.25),
        ("usd_per_hour", 2.4),
        ("on_demand_only_usd_per_hour", 3.2),
    ],
)
def test_figures_of_a_service(name: str, expected: float) -> None:
    assert sample(shown(seen())[0], name) == pytest.approx(expected)


def test_replicas_are_told_by_variant() -> None:
    metrics, _ = shown(seen())
    od = {"variant": "od", "accelerator": "L4", "capacity_type": "OnDemand", "pool": "l4", "zone": ""}
    spot = {**od, "variant": "spot", "capacity_type": "Spot", "zone": "a"}
    assert [sample(metrics, "replicas_wanted", **labels) for labels in (od, spot)] == [2, 2]
    assert [sample(metrics, "replicas_ready", **labels) for labels in (od, spot)] == [2, 1]


@pytest.mark.parametrize(
    ("heard", "state", "demand"),
    [
        (Heard(DemandState.VALUE, 1.0), "Fresh", 1.0),
        (Heard(DemandState.IDLE, 0.0), "Fresh", 0.0),
        (Heard(DemandState.VALUE, 1.0, reason="engine: no answer"), "Stale", 1.0),
        (Heard(DemandState.UNKNOWN, reason="no answer"), "Unknown", None),
    ],
    ids=["value", "idle", "a part", "nothing"],
)
def test_what_is_known_of_demand(heard: Heard, state: str, demand: float | None) -> None:
    metrics, _ = shown(seen(heard=heard))
    told = {name for name in ("Fresh", "Stale", "Unknown") if sample(metrics, "demand_state", state=name)}
    assert told == {state}
    assert sample(metrics, "demand_replicas") == demand
    assert sample(metrics, "unserved_replicas") == (None if demand is None else 0.0)


def test_capacity_is_told_once_it_was_tried() -> None:
    service = seen()
    service.view.capacities.curves = {Kind("L4", 1): Curve(step=8, trials=3)}
    assert sample(shown(service)[0], "capacity_ratio", accelerator="L4") == 2.0
    assert sample(shown(seen())[0], "capacity_ratio", accelerator="L4") is None


def test_a_service_that_is_gone_has_no_series() -> None:
    metrics, gauges = shown(seen("chat"), seen("other"))
    assert sample(metrics, "demand_replicas", "other") == 2.75
    gauges.draw(seen("chat"))
    gauges.show()
    assert [sample(metrics, "demand_replicas", name) for name in ("chat", "other")] == [2.75, None]
    assert not any(
        "other" in entry.labels.values() for family in metrics.registry.collect() for entry in family.samples
    )
    gauges.show()
    assert not any(family.samples for family in metrics.registry.collect() if family.name in {f.name for f in FAMILIES})

"""What attempts cost: at the price that each began with, to a fraction of a cent, left out where it is unknown."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from berth.controllers.status import StatusUnreadable, restore
from tests.builders.training import StoredJob, make_job


def ran(live: StoredJob, seconds: float, price: str | None) -> dict[str, Any]:
    """One more attempt at ``price`` that held its devices so long and then failed; the cost shown."""
    live.price = None if price is None else Decimal(price)
    live.wait(700).start()
    live.price = Decimal(99)  # a change of the price under way changes nothing
    live.wait(seconds).fail()
    live.look()
    live.kubelets()
    return dict(live.status["cost"])


def test_every_attempt_is_paid_at_the_price_it_began_with() -> None:
    live = StoredJob(make_job(1))
    assert ran(live, 3600, "2")["usd"] == "16.00"
    assert ran(live, 1800, "4.5")["usd"] == "34.00"
    assert live.status["placement"]["usdPerAcceleratorHour"] == "4.5"


def test_cheap_attempts_do_not_vanish() -> None:
    live = StoredJob(make_job(1, max_restarts=100))
    for _ in range(50):
        cost = ran(live, 1, "0.01")
    assert Decimal(cost["usd"]) == 50 * Decimal("0.000022")
    assert cost["usd"] == cost["lostUsd"] == "0.0011"


@pytest.mark.parametrize("prices", [[None], ["2", None], [None, "2"]])
def test_a_price_that_is_not_known_leaves_the_money_out(prices: list[str | None]) -> None:
    live = StoredJob(make_job(1))
    for price in prices:
        cost = ran(live, 3600, price)
    assert cost.keys() == {"acceleratorHours", "acceleratorSeconds", "lostAcceleratorSeconds", "asOf"}
    assert cost["acceleratorSeconds"] == 3600 * 8 * len(prices)


def test_an_amount_that_no_job_can_have_cost_is_not_known_and_stops_no_restart() -> None:
    live = StoredJob(make_job(1))
    ran(live, 3600, "2")
    live.status["cost"]["usd"] = "9" * 30 + ".00"
    cost = ran(live, 3600, "2")
    assert "usd" not in cost
    assert cost["acceleratorSeconds"] == 2 * 3600 * 8


def test_what_an_earlier_release_wrote_is_read() -> None:
    assert restore({"cost": {"usd": "36449.28", "lostUsd": "0.00"}}).usd == Decimal("36449.28")
    assert restore({}).usd == 0
    with pytest.raises(StatusUnreadable, match="money"):
        restore({"cost": {"usd": "a lot"}})

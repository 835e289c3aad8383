"""Whether a forecast kept what was promised."""

from __future__ import annotations

import pytest

from berth.controllers.services.demand import Known
from berth.controllers.services.forecaster import Forecaster
from berth.inference.target import Target


@pytest.mark.parametrize(
    ("trusted", "served", "expected"),
    [
        (False, 0.5, (None, "TooLittleHistory")),
        (True, 0.995, (True, "BackTested")),
        (True, 0.9941, (True, "BackTested")),
        (True, 0.9939, (False, "PromiseMissed")),
    ],
)
def test_a_forecast_is_trusted_when_it_kept_the_promise(
    trusted: bool, served: float, expected: tuple[bool | None, str]
) -> None:
    target = Target(4.0, 3.0, 0.995, "Drift", coverage=0.9, trusted=trusted, served=served)
    verdict = Known(Forecaster(60.0), target=target).trusted
    assert (verdict.status, verdict.reason) == expected


def test_what_has_no_back_test_is_neither_trusted_nor_distrusted() -> None:
    verdict = Known(Forecaster(60.0), target=Target(4.0, 4.0, method="Persistence", basis="as there is now")).trusted
    assert (verdict.status, verdict.reason) == (None, "NotBackTested")
    assert "as there is now" in verdict.message

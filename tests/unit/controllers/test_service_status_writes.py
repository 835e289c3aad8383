"""When a service's status says something else, as against the same with other numbers."""

from __future__ import annotations

from typing import Any

import pytest

from berth.controllers.services.status import moved


def status(message: str, said: str = "") -> dict[str, Any]:
    return {"message": message, "conditions": [{"type": "MetricsAvailable", "status": "False", "message": said}]}


@pytest.mark.parametrize(
    ("before", "after", "is_moved"),
    [
        (status("unknown for 59s"), status("unknown for 1m2s"), False),
        (status("unknown for 59m59s"), status("unknown for 1h"), False),
        (status("demand is 9.5 (quantile 95%)"), status("demand is 1.2e+02 (quantile 99%)"), False),
        (status("", "stay for 29m"), status("", "stay for 2m"), False),
        (status("no signal can be asked without a replica"), status("no Prometheus is configured"), True),
        (status("", "no answer"), status("", "no series of a"), True),
    ],
)
def test_a_sentence_is_written_again_when_its_words_change(
    before: dict[str, Any], after: dict[str, Any], is_moved: bool
) -> None:
    assert moved(before, after) is is_moved

"""A template that fits no node is told where people look, and other pools are used where it fits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.services.test_service_former import placed
from tests.unit.controllers.services.test_service_refusals import Desk

HUGE = {"containers": [{"name": "server", "resources": {"requests": {"memory": "1Ei"}}}]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (HUGE, "asks for at least 8Pi of memory (spec.template.spec: resources)"),
        ({"nodeSelector": {"disk": "nvme"}}, "disk In nvme"),
    ],
    ids=["resources", "nodeSelector"],
)
async def test_a_template_that_fits_no_node_is_told(spec: dict[str, Any], words: str) -> None:
    desk = Desk()
    status = await desk.look(template={"spec": spec})
    assert placed(status)[:2] == ("False", "TemplateFitsNoNode")
    assert words in placed(status)[2]
    assert "L4 in pool l4: " in status["message"]
    assert status["message"].startswith("The template fits no node")
    (limited,) = (entry for entry in status["conditions"] if entry["type"] == "CapacityAvailable")
    assert words in limited["message"]
    status = await desk.look(replicas=1)
    assert placed(status)[:2] == ("True", "VariantsChosen")
    assert "fits no node" not in status["message"]

"""Which failed looks somebody has to hear of."""

from __future__ import annotations

import logging

import pytest

from berth.cluster.errors import ClusterError, Conflict, Unavailable, log_level

TAKEN = Conflict(409, "Conflict", "the object has been modified")


@pytest.mark.parametrize(
    ("problem", "failures", "level"),
    [
        pytest.param(TAKEN, 1, logging.INFO, id="another writer was first"),
        pytest.param(TAKEN, 2, logging.WARNING, id="a conflict that does not end"),
        pytest.param(Unavailable(503, "Unavailable", "etcd is gone"), 1, logging.WARNING, id="no answer"),
    ],
)
def test_only_a_first_conflict_is_no_warning(problem: ClusterError, failures: int, level: int) -> None:
    assert log_level(problem, failures) == level

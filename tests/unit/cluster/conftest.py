"""Servers and clocks that the tests of the shell share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.cluster.fakes import ApiServer, FakeClock, Server, listening


@pytest.fixture
def clock() -> FakeClock:
    """Stands still until it is advanced."""
    return FakeClock()


@pytest.fixture
def hasty() -> FakeClock:
    """Lets every sleep pass at once and remembers it."""
    return FakeClock(hasty=True)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Answers what its script says."""
    scripted = Server()
    async with listening(scripted):
        yield scripted


@pytest.fixture
async def pods() -> AsyncIterator[ApiServer]:
    """Keeps pods."""
    keeper = ApiServer()
    async with listening(keeper):
        yield keeper

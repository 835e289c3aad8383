"""What tests of the client share: one with the administrator's rights on the shared control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from berth.cluster.client import ApiClient
from berth.cluster.session import from_kubeconfig
from berth.cluster.transport import Transport
from berth.devcluster.cluster import DevCluster


@pytest.fixture
async def client(cluster: DevCluster) -> AsyncIterator[ApiClient]:
    """A client whose connections end with the test."""
    connection = from_kubeconfig(cluster.kubeconfig)
    yield ApiClient(Transport(connection))
    await connection.close()

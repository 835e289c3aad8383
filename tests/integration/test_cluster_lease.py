"""Leadership changes hands over a real Lease: at once when given up, after its duration when its holder froze."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from berth.cluster.client import ApiClient
from berth.cluster.lease import Election
from berth.cluster.session import from_kubeconfig
from berth.cluster.transport import Transport
from berth.devcluster.api import Api
from berth.devcluster.cluster import DevCluster

pytestmark = pytest.mark.cluster

DURATION, DEADLINE, RETRY = 3.0, 2.0, 0.25

# The same candidate as a process of its own, which can be stopped by a signal in the middle of everything.
CANDIDATE = """
import asyncio, os, sys
from pathlib import Path
from berth.cluster.client import ApiClient
from berth.cluster.lease import Election
from berth.cluster.session import from_kubeconfig
from berth.cluster.transport import Transport

async def main(kubeconfig, namespace):
    client = ApiClient(Transport(from_kubeconfig(Path(kubeconfig))))
    await Election(client, "berth", namespace, "process", duration=3.0, renew_deadline=2.0, retry=0.25,
                   on_started=lambda: print("leads", flush=True), end=lambda: os._exit(75)).run()

asyncio.run(main(*sys.argv[1:]))
"""


class Candidate:
    """A candidate in this process with a connection of its own."""

    def __init__(self, cluster: DevCluster, namespace: str, identity: str) -> None:
        self.ended: list[str] = []
        self.connection = from_kubeconfig(cluster.kubeconfig)
        self.election = Election(
            ApiClient(Transport(self.connection)),
            "berth",
            namespace,
            identity,
            duration=DURATION,
            renew_deadline=DEADLINE,
            retry=RETRY,
            end=lambda: self.ended.append(identity),
        )
        self.task = asyncio.create_task(self.election.run())

    async def expect_elected(self, within: float) -> None:
        await asyncio.wait_for(self.election.elected.wait(), within)

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        await self.election.release()
        await self.connection.close()


@pytest.fixture
async def first(cluster: DevCluster, namespace: str) -> AsyncIterator[Candidate]:
    candidate = Candidate(cluster, namespace, "first")
    await candidate.expect_elected(10)
    yield candidate
    await candidate.stop()


def spec(api: Api, namespace: str) -> dict[str, object]:
    return api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/berth")["spec"]


async def test_a_clean_stop_hands_over_before_the_lease_would_run_out(
    first: Candidate, cluster: DevCluster, api: Api, namespace: str
):
    second = Candidate(cluster, namespace, "second")
    await asyncio.sleep(0)
    assert (spec(api, namespace)["holderIdentity"], second.election.leading) == ("first", False)
    await first.stop()
    await second.expect_elected(DURATION - RETRY)
    stated = spec(api, namespace)
    assert (stated["holderIdentity"], stated["leaseTransitions"]) == ("second", 1)
    assert first.ended == []
    await second.stop()


async def test_a_frozen_leader_is_replaced_and_ends_itself_when_it_thaws(cluster: DevCluster, api: Api, namespace: str):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CANDIDATE, str(cluster.kubeconfig), namespace, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 20) == b"leads\n"
    second = Candidate(cluster, namespace, "second")
    try:
        os.kill(process.pid, signal.SIGSTOP)
        await second.expect_elected(DURATION * 4)
        os.kill(process.pid, signal.SIGCONT)
        assert await asyncio.wait_for(process.wait(), 10) == 75
        assert spec(api, namespace)["holderIdentity"] == "second"
        second.election.fence()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await second.stop()


async def test_renewing_writes_the_lease_and_nothing_else(first: Candidate, api: Api, namespace: str):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/berth"
    before = api.get(path)

    async def renewed() -> None:
        while api.get(path)["spec"]["renewTime"] == before["spec"]["renewTime"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    await asyncio.wait_for(renewed(), 10)
    after = api.get(path)
    assert after["spec"] | {"renewTime": ""} == before["spec"] | {"renewTime": ""}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]

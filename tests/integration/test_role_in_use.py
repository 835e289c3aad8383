"""What the operator asks for only after trouble, asked with the chart's own account."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.writes import AuditLog
from berth.api.names import pod_group_name
from berth.cluster.cache import Cache
from berth.cluster.client import ApiClient
from berth.cluster.events import EventRecorder, about
from berth.cluster.kinds import POD_GROUPS, PODS, SERVICES, TRAINING_JOBS
from berth.cluster.session import from_kubeconfig
from berth.cluster.transport import Transport
from berth.cluster.wire import TrainingJob
from berth.controllers.children import Children
from berth.controllers.observe import JobView
from berth.controllers.writer import StatusWriter
from berth.devcluster.binaries import Binaries
from berth.devcluster.cluster import DevCluster
from berth.devcluster.components import Features
from berth.devcluster.operator import OPERATOR_NAMESPACE, install_chart, write_kubeconfig
from berth.training.records import Placement
from berth.training.state import JobState, Phase
from tests.builders.access import AFTER_TROUBLE
from tests.builders.training import make_plan
from tests.contract import tables

pytestmark = pytest.mark.cluster
NAMESPACE = "default"


@dataclass
class Installed:
    """A cluster without nodes that has the chart, native gangs, and a record of what its account asks for."""

    cluster: DevCluster
    audit: AuditLog


@pytest.fixture(scope="module")
def installed(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    audit = AuditLog(tmp_path_factory.mktemp("audit"), f"system:serviceaccounts:{OPERATOR_NAMESPACE}", reads=True)
    audited, features = audit.kept_by(binaries), Features(native_gangs=True)
    cluster = DevCluster.up(f"roles-{os.getpid()}", fleet=None, binaries=audited, owned=True, features=features)
    try:
        install_chart(cluster, {"replicaCount": "0"})
        yield Installed(cluster, audit)
        asked = audit.accesses()
        assert [str(access) for access in asked if not access.allowed] == [], "asked for what its roles do not allow"
        assert {str(access) for access in asked} >= AFTER_TROUBLE
    finally:
        cluster.down()


@pytest.fixture
async def operator(installed: Installed, tmp_path: Path) -> AsyncIterator[ApiClient]:
    """A client with the chart's own account."""
    connection = from_kubeconfig(write_kubeconfig(installed.cluster, tmp_path / "kubeconfig"))
    yield ApiClient(Transport(connection))
    await connection.close()


@pytest.fixture
async def job(installed: Installed, operator: ApiClient, request: pytest.FixtureRequest) -> TrainingJob:
    """A job of the test's own, as watches show it, that nobody has looked at."""
    manifest = tables.minimal("trainingjob")
    manifest["metadata"] = {"name": f"job-{abs(hash(request.node.name)) % 10**6}", "namespace": NAMESPACE}
    installed.cluster.api().create(manifest)
    (found,) = (each for each in (await operator.list(TRAINING_JOBS, NAMESPACE)).items
                if each.metadata.name == manifest["metadata"]["name"])  # fmt: skip
    return found


async def test_children_that_are_there_already_are_taken_for_what_they_are(
    operator: ApiClient, job: TrainingJob
) -> None:
    observer: Any = SimpleNamespace(
        caches=SimpleNamespace(pods=Cache(operator, PODS), rendezvous=Cache(operator, SERVICES)), views={}
    )
    children, own = Children(operator, observer), {"name": job.metadata.name, "uid": job.metadata.uid}
    for attempt in (1, 1, 2):
        plan = make_plan(namespace=NAMESPACE, attempt=attempt, framework="PyTorch", pod_group=True, **own)
        assert await children.create(plan, [0, 1]) is None
    assert len(list(observer.caches.pods)) == 4
    name = job.metadata.name
    old, new = [await operator.find(POD_GROUPS, pod_group_name(name, attempt), NAMESPACE) for attempt in (1, 2)]
    assert old is None or old.metadata.deleting, "the server keeps it while it has pods"
    assert new is not None
    assert not new.metadata.deleting


async def test_a_job_that_was_edited_under_its_placement_is_looked_at_anew(
    installed: Installed, operator: ApiClient, job: TrainingJob
) -> None:
    seen: list[TrainingJob] = []
    observer: Any = SimpleNamespace(absorb=seen.append, retract=lambda uid: None)
    queue: Any = SimpleNamespace(add_after=lambda key, seconds: None)
    writer = StatusWriter(operator, observer, queue, wall=time.time)
    path = f"/apis/berth.dev/v1alpha1/namespaces/{NAMESPACE}/trainingjobs/{job.metadata.name}"
    installed.cluster.api().patch(path, {"spec": {"workers": 2}})
    placement = Placement("h100", ("n0",), "Optimal", {}, {})
    state = JobState(phase=Phase.STARTING, attempt=1, placement_attempt=1, placement=placement)
    assert not await writer.write_placement(JobView(job, state=state), state)
    assert [each.metadata.generation for each in seen] == [2]


async def test_an_event_that_repeats_is_counted_in_one_object(operator: ApiClient, job: TrainingJob) -> None:
    recorder = EventRecorder(operator, "berth.dev/operator", "test", hold=0.05, series_interval=0.05)
    for _ in range(3):
        recorder.warning(about(TRAINING_JOBS, job.metadata), "NodeLost", "gpu-1 is gone")
        await recorder.flush()
    assert (recorder.counts.written, recorder.counts.failed) == (1, 0)

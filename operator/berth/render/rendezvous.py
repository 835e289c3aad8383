"""How the ranks of a gang find each other, in each framework's own words.

Rank 0 is the meeting point. Names resolve through the gang's headless Service before any pod is ready, so the order
in which pods start does not matter. Variables carry what the launchers read: torchrun ``PET_*`` and the classic four
of ``torch.distributed``, ``jax.distributed.initialize``, ``TF_CONFIG``, and a host list for ``mpirun --host``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from berth.api.names import pod_name

if TYPE_CHECKING:
    from berth.render.gang import GangPlan

SERVICE_SUFFIX = "-workers"
TORCH_PORT = 29500
JAX_PORT = 1234
TENSORFLOW_PORT = 2222


def host(plan: GangPlan, rank: int) -> str:
    """The name under which other ranks reach ``rank``; a gang of one talks to itself."""
    if not plan.networked:
        return "localhost"
    return f"{pod_name(plan.name, plan.attempt, rank)}.{plan.name}{SERVICE_SUFFIX}.{plan.namespace}.svc"


def environment(plan: GangPlan, rank: int) -> dict[str, str]:
    """The variables of one rank: what its template cannot say, then the framework's own.

    Every one costs the API server time at each write of the pod, in which it is tracked as three managed fields.
    """
    common = {
        "BERTH_ATTEMPT": str(plan.attempt),
        "BERTH_RANK": str(rank),
        "BERTH_WORKERS": str(plan.workers),
    }
    makers = {"PyTorch": _pytorch, "JAX": _jax, "TensorFlow": _tensorflow, "MPI": _mpi}
    maker = makers.get(plan.framework)
    return {**common, **maker(plan, rank)} if maker else common


def _pytorch(plan: GangPlan, rank: int) -> dict[str, str]:
    master, port = host(plan, 0), str(TORCH_PORT)
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(plan.workers),
        "RANK": str(rank),
        "PET_NNODES": str(plan.workers),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": str(plan.accelerators_per_worker),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": port,
    }


def _jax(plan: GangPlan, rank: int) -> dict[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": f"{host(plan, 0)}:{JAX_PORT}",
        "JAX_NUM_PROCESSES": str(plan.workers),
        "JAX_PROCESS_ID": str(rank),
    }


def _tensorflow(plan: GangPlan, rank: int) -> dict[str, str]:
    workers = [f"{host(plan, other)}:{TENSORFLOW_PORT}" for other in range(plan.workers)]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
    return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}


def _mpi(plan: GangPlan, rank: int) -> dict[str, str]:
    hosts = ",".join(f"{host(plan, other)}:{plan.accelerators_per_worker}" for other in range(plan.workers))
    return {"BERTH_MPI_HOSTS": hosts, "BERTH_MPI_PROCESSES": str(plan.workers * plan.accelerators_per_worker)}

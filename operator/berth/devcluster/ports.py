"""Ports for several clusters side by side.

They come from below the kernel's ephemeral range, so that no outgoing connection can take one between the choice
and the bind, and never from those another cluster has written down.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from berth.devcluster.problems import DevClusterProblem

_FIRST, _LAST = 20000, 32000


def is_free(port: int) -> bool:
    """Whether ``port`` can be bound on the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def pick(count: int, taken: Collection[int] = ()) -> list[int]:
    """``count`` different free ports that are not in ``taken``. Raises: DevClusterProblem when there are too few."""
    chosen: list[int] = []
    for port in random.sample(range(_FIRST, _LAST), _LAST - _FIRST):
        if len(chosen) == count:
            break
        if port not in taken and is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise DevClusterProblem(f"no {count} free ports between {_FIRST} and {_LAST}")
    return chosen

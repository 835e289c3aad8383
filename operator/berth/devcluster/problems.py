"""What can go wrong while a local cluster is brought up, each with words that say what to do next."""

from __future__ import annotations

from berth.values import BerthError


class DevClusterProblem(BerthError):
    """Root of everything raised here."""


class ToolMissing(DevClusterProblem):
    """A program is neither present nor obtainable; the message names every place that was searched."""


class BuildFailed(DevClusterProblem):
    """A build or download ended with an error; the message ends with its last lines."""


class ComponentDied(DevClusterProblem):
    """A component ended by itself or never became ready; the message ends with its last log lines."""


class ApiRefused(DevClusterProblem):
    """The API server answered with an error. ``status`` is the HTTP code, ``reason`` the machine-readable word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status, self.reason, self.message = status, reason, message
        super().__init__(f"{status} {reason}: {message}")

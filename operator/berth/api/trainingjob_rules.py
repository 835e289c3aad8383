"""What the API server checks of a TrainingJob across fields and over time.

Arithmetic of the parallel layout is checked here rather than at the start, because a layout that cannot exist would
else wait in the queue for a placement that never comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth.api.cel import Rule, first_of, formatted, frozen, named, not_longer, required, unique

MAX_WORKERS: Final = 25_000
"""The largest gang whose compressed rank list was measured to fit into a status."""

TYPES_ONCE: Final = unique("names an accelerator twice; write each once, in order of preference")
RULES_ONCE: Final = unique("two rules have the same name; rename one, status tells by name which rule decided", "name")

_URI: Final = (
    r"^((s3|gs|az)://[a-zA-Z0-9][-a-zA-Z0-9._]*(/[^\\s]*)?|file:///[^\\s]+"
    r"|pvc://[a-z0-9][-a-z0-9.]*(/[^\\s]*)?)$"
)
CHECKPOINT_URI: Final = (
    Rule(
        f"self.matches('{_URI}')",
        "must be s3://bucket/path, gs://bucket/path, az://container/path, file:///path or pvc://claim/path",
    ),
    Rule("!self.matches('(^|/)[.][.](/|$)')", "must not contain '..': write the path out"),
)
PARENT: Final = Rule(
    "self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "must be the name of a TrainingJob, or namespace/name, such as research/llama-70b-pretrain",
)

CHECKPOINT: Final = (
    required(".uri", "has(self.cold)", "is where cold moves older checkpoints from: give it, or leave out cold"),
    required(".uri", "has(self.keep)", "is where keep counts checkpoints: give it, or leave out keep"),
    Rule(
        "!has(self.cold) || !has(self.uri) || self.cold.uri != self.uri",
        "must be another place than checkpoint.uri",
        path=".cold.uri",
    ),
)

NO_ZERO: Final = Rule(
    "self.operator != 'In' || !(0 in self.values)",
    "0 is success and never a failure; take it out",
    path=".values",
)
RECOVERY_RULE: Final = (
    Rule(
        "has(self.onExitCodes) != has(self.onPodConditions)",
        "must have exactly one of onExitCodes and onPodConditions; write two rules for two causes",
    ),
)


@dataclass(frozen=True, slots=True)
class _Layout:
    """A layout's numbers, each by the CEL expression for it: bound names in the rule, whole paths in its message."""

    workers: str
    each: str
    """Devices of a worker."""
    cut: str
    """The parallelism."""
    devices: str
    replica: str
    """Devices of a data-parallel replica."""

    def demands(self) -> tuple[tuple[str, str], ...]:
        """What must hold, and the message expression that says it does not."""
        floor = f"self.minWorkers * {self.each}"
        return (
            (
                f"!has({self.cut}.data) || {self.devices} % {self.replica} == 0"
                f" && {self.devices} / {self.replica} == {self.cut}.data",
                formatted(
                    "tensor x pipeline x context x data is %d but workers x accelerators.perWorker is %d;"
                    " make them equal, or leave out data",
                    f"{self.replica} * {self.cut}.data",
                    self.devices,
                ),
            ),
            (
                f"{self.devices} % {self.replica} == 0",
                formatted(
                    "workers x accelerators.perWorker is %d, no multiple of tensor x pipeline x context, which is %d;"
                    " change workers or the layout",
                    self.devices,
                    self.replica,
                ),
            ),
            (
                f"{self.devices} / {self.replica} % {self.cut}.expert == 0",
                formatted(
                    "expert must divide the data-parallel replicas, which are %d at %d workers",
                    f"{self.devices} / {self.replica}",
                    self.workers,
                ),
            ),
            (
                f"{self.cut}.tensor % {self.each} == 0 || {self.each} % {self.cut}.tensor == 0",
                formatted(
                    "tensor must divide accelerators.perWorker, which is %d, or be a multiple of it,"
                    " so that no tensor group shares a worker with another",
                    self.each,
                ),
            ),
            (
                f"!has(self.minWorkers) || {floor} % {self.replica} == 0",
                formatted(
                    "minWorkers must hold whole data-parallel replicas: minWorkers x accelerators.perWorker is %d,"
                    " no multiple of tensor x pipeline x context, which is %d",
                    floor,
                    self.replica,
                ),
            ),
        )


_REPLICA: Final = "cut.tensor * cut.pipeline * cut.context"
_BOUND: Final = _Layout("workers", "each", "cut", "devices", "replica")
_READ: Final = _Layout(
    workers="self.workers",
    each="self.accelerators.perWorker",
    cut="self.parallelism",
    devices="(self.workers * self.accelerators.perWorker)",
    replica=f"({_REPLICA.replace('cut', 'self.parallelism')})",
)
_LAYOUT_FITS: Final = Rule(
    "!has(self.parallelism) || [self.parallelism].all(cut, [self.workers].all(workers,"
    " [self.accelerators.perWorker].all(each,"
    f" [workers, each, cut.tensor, cut.pipeline, cut.context, cut.expert].exists(x, x < 1 || x > {MAX_WORKERS})"
    f" || [workers * each].all(devices, [{_REPLICA}].all(replica,"
    f" {' && '.join(f'({holds})' for holds, _ in _BOUND.demands())})))))",
    "must cut the gang whole: tensor x pipeline x context x data = workers x accelerators.perWorker,"
    " expert divides the data-parallel replicas, tensor divides accelerators.perWorker or is a multiple of it,"
    " minWorkers holds whole replicas",
    path=".parallelism",
    says=first_of(*_READ.demands()),
)
"""Also holds where a number is out of bounds, which is said already: no division by zero, no overflow."""

SPEC: Final = (
    Rule(
        "!has(self.minWorkers) || self.minWorkers <= self.workers",
        "must not exceed workers",
        path=".minWorkers",
        says=formatted("must not exceed workers, which is %d", "self.workers"),
    ),
    Rule(
        not_longer("self.expectedDuration", "self.maxDuration"),
        "must not exceed maxDuration: the job would be ended before it is done",
        path=".expectedDuration",
    ),
    _LAYOUT_FITS,
)

FROZEN: Final = {
    "workers": False,
    "minWorkers": True,
    "accelerators": False,
    "model": True,
    "parallelism": True,
    "fabric": True,
    "topology": True,
    "framework": False,
    "template": False,
}
"""Spec fields that are frozen from the first attempt on, and whether they may be absent."""

ROOT: Final = (*named(), frozen(FROZEN))

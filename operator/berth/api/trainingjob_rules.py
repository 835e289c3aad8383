"""What the API server checks of a TrainingJob across fields and over time.

Arithmetic of the parallel layout is checked here rather than at the start, because a layout that cannot exist would
else wait in the queue for a placement that never comes.
"""

from __future__ import annotations

from typing import Final

from berth.api.cel import Rule, formatted, frozen, named, not_longer, required, unique

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

_DEVICES: Final = "(self.workers * self.accelerators.perWorker)"
_REPLICA: Final = "(self.parallelism.tensor * self.parallelism.pipeline * self.parallelism.context)"
_DATA_GIVEN: Final = "has(self.parallelism.data)"
_IN_BOUNDS: Final = (
    "[self.workers, self.accelerators.perWorker, self.parallelism.tensor, self.parallelism.pipeline,"
    f" self.parallelism.context, self.parallelism.expert].all(x, x >= 1 && x <= {MAX_WORKERS})"
)
_NO_LAYOUT: Final = f"!has(self.parallelism) || !{_IN_BOUNDS}"
"""Also where a number is out of bounds, which is said already: no division by zero, no overflow."""

_DATA_FITS: Final = Rule(
    f"{_NO_LAYOUT} || !{_DATA_GIVEN}"
    f" || {_DEVICES} % {_REPLICA} == 0 && {_DEVICES} / {_REPLICA} == self.parallelism.data",
    "tensor x pipeline x context x data must equal workers x accelerators.perWorker",
    path=".parallelism",
    says=formatted(
        "tensor x pipeline x context x data is %d but workers x accelerators.perWorker is %d;"
        " make them equal, or leave out data",
        f"{_REPLICA} * self.parallelism.data",
        _DEVICES,
    ),
)
_REPLICAS_WHOLE: Final = Rule(
    f"{_NO_LAYOUT} || {_DATA_GIVEN} || {_DEVICES} % {_REPLICA} == 0",
    "workers x accelerators.perWorker must be a multiple of tensor x pipeline x context",
    path=".parallelism",
    says=formatted(
        "workers x accelerators.perWorker is %d, no multiple of tensor x pipeline x context, which is %d;"
        " change workers or the layout",
        _DEVICES,
        _REPLICA,
    ),
)
_EXPERT_DIVIDES: Final = Rule(
    f"{_NO_LAYOUT} || {_DEVICES} % {_REPLICA} != 0 || {_DEVICES} / {_REPLICA} % self.parallelism.expert == 0",
    "must divide the data-parallel replicas",
    path=".parallelism.expert",
    says=formatted(
        "must divide the data-parallel replicas, which are %d at %d workers", f"{_DEVICES} / {_REPLICA}", "self.workers"
    ),
)
_TENSOR_GROUPS_WHOLE: Final = Rule(
    f"{_NO_LAYOUT} || self.parallelism.tensor % self.accelerators.perWorker == 0"
    " || self.accelerators.perWorker % self.parallelism.tensor == 0",
    "must divide accelerators.perWorker or be a multiple of it",
    path=".parallelism.tensor",
    says=formatted(
        "must divide accelerators.perWorker, which is %d, or be a multiple of it,"
        " so that no tensor group shares a worker with another",
        "self.accelerators.perWorker",
    ),
)
_FLOOR_WHOLE: Final = Rule(
    f"{_NO_LAYOUT} || !has(self.minWorkers) || (self.minWorkers * self.accelerators.perWorker) % {_REPLICA} == 0",
    "must hold whole data-parallel replicas",
    path=".minWorkers",
    says=formatted(
        "must hold whole data-parallel replicas: minWorkers x accelerators.perWorker is %d, no multiple of"
        " tensor x pipeline x context, which is %d",
        "self.minWorkers * self.accelerators.perWorker",
        _REPLICA,
    ),
)

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
    _DATA_FITS,
    _REPLICAS_WHOLE,
    _EXPERT_DIVIDES,
    _TENSOR_GROUPS_WHOLE,
    _FLOOR_WHOLE,
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

ROOT: Final = (*named(), *(frozen(field, optional=optional) for field, optional in FROZEN.items()))

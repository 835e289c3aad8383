"""Every rival by its name, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.policies.base import Panel
from benchmarks.policies.dynamo import Arima, Constant, DynamoPanel, Kalman, ProphetLast
from benchmarks.policies.hpa import HpaPanel
from benchmarks.policies.reactive import AibrixPanel, KnativePanel, WvaPanel
from benchmarks.policies.seasonal import AwsPanel, CranePanel

HPA = "HPA"

RIVALS: Mapping[str, Callable[[], Panel]] = {
    HPA: HpaPanel,
    "Knative KPA": KnativePanel,
    "AIBrix APA": AibrixPanel,
    "WVA v2": WvaPanel,
    "Dynamo constant": lambda: DynamoPanel(Constant),
    "Dynamo Kalman": lambda: DynamoPanel(Kalman),
    "Dynamo ARIMA": lambda: DynamoPanel(Arima),
    "Crane DSP": CranePanel,
    "AWS predictive": AwsPanel,
}
FULL_RIVALS: Mapping[str, Callable[[], Panel]] = {"Dynamo Prophet": lambda: DynamoPanel(ProphetLast)}

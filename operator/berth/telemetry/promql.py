"""PromQL for many services at once, and which service a series in the answer belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from berth.telemetry.presets import Preset
from berth.telemetry.readings import ServiceName, ServiceQuery
from berth.values import parse_duration

RATE_WINDOW = "2m"
"""Holds two samples at scrapes of up to a minute."""
FRESH_WINDOW = "90s"
"""A series without a sample in it is left out, though the server's look-back still shows the last one for minutes."""
TIMES_WINDOW = "5m"
POD_NAME_BASE = 58
"""Characters of a ReplicaSet's name and its dash that a pod's name keeps, before five of its own (apiserver names)."""


def load_query(aliases: Sequence[str], labels: Sequence[str], *, counter: bool) -> str:
    """The load under the first of ``aliases`` that exists, over series that are fresh, summed by ``labels``."""
    by = ", ".join(labels)
    found = [f'{{__name__="{name}"}}' for name in aliases]
    return " or ".join(
        f"sum by ({by}) ({f'rate({name}[{RATE_WINDOW}])' if counter else name}"
        f" and present_over_time({name}[{FRESH_WINDOW}]))"
        for name in found
    )


def begun_query(aliases: Sequence[str], labels: Sequence[str]) -> str:
    """Requests a second of the counters that have begun within a window, which their rate does not show.

    A counter is there from its first request on, and a rate needs two samples: who asks once, and waits, is in none.
    One that has counted for long and is only new to the server counts for one request a second; for a server that is
    new itself nothing has begun.
    """
    by, window = ", ".join(labels), RATE_WINDOW
    seconds = round(parse_duration(window))
    begun = (
        f"{found} unless {found} offset {window} and present_over_time({found}[{FRESH_WINDOW}])"
        for found in (f'{{__name__="{name}"}}' for name in aliases)
    )
    return " or ".join(
        f"sum by ({by}) (clamp_max({each}, {seconds})) / {seconds} and on () count(up offset {window}) > 0"
        for each in begun
    )


def buckets_query(aliases: Sequence[str]) -> str:
    """The histogram under the first of ``aliases`` that exists, by pod and bucket."""
    return " or ".join(
        f'sum by (namespace, pod, le) (rate({{__name__="{name}_bucket"}}[{TIMES_WINDOW}]))' for name in aliases
    )


def service_query(aliases: Sequence[str], preset: Preset, service: ServiceQuery) -> str:
    """The load of one service alone, for its history; pods are told by the names that Deployments of its variants give.

    Pods that have gone are in no list, and another service's name may begin with this one's.
    """
    by = ", ".join(("namespace",))
    parts = []
    for name in aliases:
        for selector in _selectors(preset, service):
            expr = f'{{__name__="{name}", {selector}}}'
            expr = f"rate({expr}[{RATE_WINDOW}])" if preset.kind == "counter" else expr
            parts.append(f"sum by ({by}) ({expr})" if not preset.matchers else f"sum({expr})")
    return " or ".join(parts)


def _selectors(preset: Preset, service: ServiceQuery) -> list[str]:
    if not preset.matchers:
        names = "|".join(_regex(f"{variant}-"[:POD_NAME_BASE]) for variant in service.variants)
        return [f'namespace="{service.namespace}", pod=~"({names})[a-z0-9]+(-[a-z0-9]+)?"']
    return [
        ", ".join(f'{label}=~"{_pattern(text, service)}"' for label, text in sorted(matcher.items()))
        for matcher in preset.matchers
    ]


def owner_by_pod(services: Sequence[ServiceQuery]) -> dict[ServiceName, ServiceName]:
    """(namespace, pod) to the service that has it."""
    return {(service.namespace, pod): service.key for service in services for pod in service.pods}


def owner_by_labels(
    matcher: Mapping[str, str], series: Mapping[str, str], services: Mapping[ServiceName, ServiceQuery]
) -> ServiceName | None:
    """The service whose namespace and name ``matcher`` reads from the labels of ``series``."""
    found: dict[str, str] = {}
    for label, text in matcher.items():
        match = _capture(text).fullmatch(series.get(label, ""))
        if match is None:
            return None
        found |= match.groupdict()
    key = (found.get("namespace", ""), found.get("name", ""))
    return key if key in services else None


@cache
def _capture(text: str) -> re.Pattern[str]:
    parts = re.split(r"(\{namespace\}|\{name\}|\*)", text)
    known = {"{namespace}": "(?P<namespace>[^/]+)", "{name}": "(?P<name>[^/]+)", "*": ".*"}
    return re.compile("".join(known.get(part, re.escape(part)) for part in parts))


def _pattern(text: str, service: ServiceQuery) -> str:
    parts = re.split(r"(\{namespace\}|\{name\}|\*)", text)
    known = {"{namespace}": _regex(service.namespace), "{name}": _regex(service.name), "*": ".*"}
    return "".join(known.get(part, _regex(part)) for part in parts)


def _regex(text: str) -> str:
    return re.escape(text).replace("\\-", "-").replace("\\", "\\\\")

"""PromQL for many services at once, and which service a series in the answer belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from berth.telemetry.presets import POD_LABELS, Preset
from berth.telemetry.readings import ServiceName, ServiceQuery
from berth.values import parse_duration

RATE_WINDOW = "2m"
"""Holds two samples at scrapes of up to a minute."""
FRESH_WINDOW = "90s"
"""A series without a sample in it is left out, though the server's look-back still shows the last one for minutes."""
TIMES_WINDOW = "5m"
SCRAPE_LABELS = ("job", "instance", "prometheus_replica")
"""Tell one scrape of a pod from another; the pod is one, with the largest load that any of them has seen."""
POD_NAME_BASE = 58
"""Characters of a ReplicaSet's name and its dash that a pod's name keeps, before five of its own (apiserver names)."""


def load_query(aliases: Sequence[str], labels: Sequence[str], *, counter: bool) -> str:
    """The load under the first of ``aliases`` that exists, over series that are fresh, summed by ``labels``."""

    def fresh(series: str) -> str:
        load = f"rate({series}[{RATE_WINDOW}])" if counter else series
        return f"{load} and present_over_time({series}[{FRESH_WINDOW}])"

    return " or ".join(_total(labels, fresh, f'__name__="{name}"') for name in aliases)


def begun_query(aliases: Sequence[str], labels: Sequence[str]) -> str:
    """Requests a second of the counters that have begun within a window, which their rate does not show.

    A counter is there from its first request on, and a rate needs two samples: who asks once, and waits, is in none.
    One that has counted for long and is only new to the server counts for one request a second; for a server that is
    new itself nothing has begun.
    """
    window = RATE_WINDOW
    seconds = round(parse_duration(window))

    def begun(series: str) -> str:
        known = f"{series} offset {window}"
        return f"clamp_max({series} unless {known} and present_over_time({series}[{FRESH_WINDOW}]), {seconds})"

    totals = (_total(labels, begun, f'__name__="{name}"') for name in aliases)
    return " or ".join(f"{total} / {seconds} and on () count(up offset {window}) > 0" for total in totals)


def _total(labels: Sequence[str], load: Callable[[str], str], *matchers: str) -> str:
    """The sum by ``labels`` of the ``load`` of series that match, where what is scraped twice counts once.

    ``load`` makes an expression of a selector. Without the label ``pod`` series are of one target where ``instance`` is
    the same.
    """
    if "pod" in labels:
        return _once(labels, load(f"{{{', '.join(matchers)}}}"))
    found = _once((*labels, "namespace", "pod"), load(f'{{{", ".join(matchers)}, pod!=""}}'))
    nameless = _once((*labels, "instance"), load(f'{{{", ".join(matchers)}, pod=""}}'))
    return f"sum by ({', '.join(labels)}) ({found} or {nameless})"


def _once(labels: Sequence[str], load: str) -> str:
    by, scraped = (", ".join(dict.fromkeys(every)) for every in (labels, (*labels, *SCRAPE_LABELS)))
    return f"max by ({by}) (sum by ({scraped}) ({load}))"


def buckets_query(aliases: Sequence[str]) -> str:
    """The histogram under the first of ``aliases`` that exists, by pod and bucket."""

    def counted(series: str) -> str:
        return f"rate({series}[{TIMES_WINDOW}])"

    return " or ".join(_total((*POD_LABELS, "le"), counted, f'__name__="{name}_bucket"') for name in aliases)


def service_query(aliases: Sequence[str], preset: Preset, service: ServiceQuery) -> str:
    """The load of one service alone, for its history; pods are told by the names that Deployments of its variants give.

    Pods that have gone are in no list, and another service's name may begin with this one's.
    """
    rate = preset.kind == "counter"

    def load(series: str) -> str:
        return f"rate({series}[{RATE_WINDOW}])" if rate else series

    parts = []
    for name in aliases:
        for selector in _selectors(preset, service):
            matchers = (f'__name__="{name}"', selector)
            if preset.matchers:
                parts.append(_total((), load, *matchers))
            else:
                parts.append(f"sum by (namespace) ({_total(POD_LABELS, load, *matchers)})")
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

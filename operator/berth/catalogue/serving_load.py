"""Reads the sections on serving of the data files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields as fields_of
from types import MappingProxyType
from typing import Final, TypeVar, get_args

from berth.catalogue.labels import PROVENANCE, read_match, read_source
from berth.catalogue.located import Located, suggestion
from berth.catalogue.serving import (
    PLACEHOLDERS,
    ChoiceRule,
    Compute,
    Engine,
    Maturity,
    Means,
    Mode,
    Objective,
    Phase,
    ReclaimSignal,
    Serving,
    Sizing,
    SpotPrior,
    StartPhase,
    Trait,
    placeholders,
)
from berth.values import Role

E = TypeVar("E")
SECTIONS: Final = ("engines", "spot", "coldStart", "reclaims", "sizing", "traits", "rules")


def read_compute(value: Located) -> Compute:
    """The field ``compute`` of an accelerator. Raises: ConfigProblem."""
    fields = value.fields(("bf16", *PROVENANCE), ("fp8", "prefill", "decode"))
    return Compute(
        fields["bf16"].size(),
        fields["fp8"].size() if "fp8" in fields else 0,
        _share(fields["prefill"]) if "prefill" in fields else 0.0,
        _share(fields["decode"]) if "decode" in fields else 0.0,
        *read_source(fields),
    )


def read_serving(sections: Mapping[str, Located]) -> Serving:
    """The sections named in :data:`SECTIONS`. Raises: ConfigProblem."""
    traits = _by_name(sections["traits"], _trait)
    return Serving(
        engines=_by_name(sections["engines"], _engine),
        spot=_spots(sections["spot"]),
        cold_start=_phases(sections["coldStart"]),
        reclaims=tuple(_reclaim(name, value) for name, value in sections["reclaims"].entries().items()),
        sizing=_sizing(sections["sizing"]),
        traits=traits,
        rules=tuple(_rule(name, value, traits) for name, value in sections["rules"].entries().items()),
    )


def _by_name(section: Located, read: Callable[[str, Located], E]) -> Mapping[str, E]:
    return MappingProxyType({name: read(name, value) for name, value in section.entries().items()})


def _engine(name: str, value: Located) -> Engine:
    fields = value.fields(
        ("images", "command", "args", "port", "metrics", "ready", "alive", "phases", *PROVENANCE),
        ("preset", "continuousBatching", "speculative", "schemes", "fetch", "notes"),
    )
    source, as_of = read_source(fields)
    metrics = fields["metrics"].fields(("port", "path"))
    speculative = fields["speculative"].fields(("flags", "tokensPerStep")) if "speculative" in fields else {}
    phases: tuple[Phase, ...] = get_args(Phase)
    return Engine(
        name=name,
        images=MappingProxyType({runtime: image.text() for runtime, image in fields["images"].entries().items()}),
        command=tuple(_words(fields["command"])),
        args=_groups(fields["args"]),
        port=fields["port"].whole(1),
        metrics_port=metrics["port"].whole(1),
        metrics_path=_path(metrics["path"]),
        ready=_path(fields["ready"]),
        alive=_path(fields["alive"]),
        phases=tuple(item.one_of(phases) for item in fields["phases"].items()),
        source=source,
        as_of=as_of,
        preset=_text(fields, "preset"),
        continuous_batching=fields["continuousBatching"].flag() if "continuousBatching" in fields else False,
        speculative_flags=speculative["flags"].texts() if speculative else (),
        tokens_per_step=_number(speculative["tokensPerStep"], 1.0) if speculative else 1.0,
        schemes=_by_scheme(fields, "schemes"),
        fetch=_by_scheme(fields, "fetch"),
        notes=_text(fields, "notes"),
    )


def _by_scheme(fields: Mapping[str, Located], name: str) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    entries = fields[name].entries() if name in fields else {}
    return MappingProxyType({scheme: _groups(groups) for scheme, groups in entries.items()})


def _groups(value: Located) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(_words(group)) for group in value.items())


def _words(value: Located) -> Iterator[str]:
    for item in value.items():
        for name in placeholders(item.text()):
            if name not in PLACEHOLDERS:
                raise item.problem(f"{{{name}}} stands for nothing{suggestion(name, PLACEHOLDERS)}")
        yield item.text()


def _path(value: Located) -> str:
    if not value.text().startswith("/"):
        raise value.problem(f"{value.text()!r} is not a path; write for example /health")
    return value.text()


def _spots(section: Located) -> tuple[SpotPrior, ...]:
    """Those with a label first, so that what an overlay adds is asked whatever the order of the files."""
    found = [_spot(name, value) for name, value in section.entries().items()]
    rest = [prior for prior in found if prior.match is None]
    if len(rest) != 1:
        raise section.problem("needs exactly one entry without the field match, for all other nodes")
    return (*(prior for prior in found if prior.match is not None), *rest)


def _spot(name: str, value: Located) -> SpotPrior:
    fields = value.fields(
        ("discount", "reclaimsPerNodeDay", "noticeSeconds", "groupWindowSeconds", *PROVENANCE), ("match",)
    )
    return SpotPrior(
        name,
        read_match(fields["match"]) if "match" in fields else None,
        _share(fields["discount"]),
        _number(fields["reclaimsPerNodeDay"]),
        fields["noticeSeconds"].whole(),
        fields["groupWindowSeconds"].whole(),
        *read_source(fields),
    )


def _phases(section: Located) -> Mapping[Phase, StartPhase]:
    phases: tuple[Phase, ...] = get_args(Phase)
    section.fields(phases)
    return MappingProxyType({name: _phase(name, section.entries()[name]) for name in phases})


def _phase(name: Phase, value: Located) -> StartPhase:
    fields = value.fields(("p50", "p90", *PROVENANCE), ("bytesPerSecond", "cachedBytesPerSecond", "notes"))
    p50, p90 = _number(fields["p50"]), _number(fields["p90"])
    if p90 < p50:
        raise fields["p90"].problem("must be at least p50")
    return StartPhase(
        name,
        p50,
        p90,
        fields["bytesPerSecond"].size() if "bytesPerSecond" in fields else 0,
        fields["cachedBytesPerSecond"].size() if "cachedBytesPerSecond" in fields else 0,
        *read_source(fields),
        _text(fields, "notes"),
    )


def _reclaim(name: str, value: Located) -> ReclaimSignal:
    fields = value.fields(
        ("means", *PROVENANCE), ("taint", "condition", "noticeSeconds", "podSeconds", "spotNoticeSeconds", "notes")
    )
    if ("taint" in fields) == ("condition" in fields):
        raise fields.get("condition", value).problem("one of the fields taint and condition must be there, not both")
    means: tuple[Means, ...] = get_args(Means)
    notice, pods, spot = (
        fields[field].whole() if field in fields else None
        for field in ("noticeSeconds", "podSeconds", "spotNoticeSeconds")
    )
    return ReclaimSignal(
        name, _text(fields, "taint"), _text(fields, "condition"), fields["means"].one_of(means),
        notice, pods, spot, *read_source(fields), _text(fields, "notes"),
    )  # fmt: skip


def _sizing(section: Located) -> Sizing:
    names = {_camel(entry.name): entry.name for entry in fields_of(Sizing)}
    entries = section.fields(names)
    values = {}
    for name, field in names.items():
        fields = entries[name].fields(("value", *PROVENANCE))
        read_source(fields)
        values[field] = _number(fields["value"])
        if name.endswith(("Fraction", "Share", "Utilisation")):
            _share(fields["value"])
        elif values[field] <= 0:
            raise fields["value"].problem("must be above 0")
    return Sizing(**values)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _trait(name: str, value: Located) -> Trait:
    fields = value.fields(("annotation", *PROVENANCE), ("values", "default", "notes"))
    values, default = fields["values"].texts() if "values" in fields else (), _text(fields, "default")
    if values and default not in values:
        raise fields.get("default", value).problem(f"must be one of {', '.join(values)}")
    return Trait(name, fields["annotation"].text(), values, default, *read_source(fields), _text(fields, "notes"))


def _rule(name: str, value: Located, traits: Mapping[str, Trait]) -> ChoiceRule:
    fields = value.fields(("when", "reason", *PROVENANCE), ("rank",))
    when = fields["when"].fields((), ("modes", "objectives", "traits", "compiled", "poolRoles", "maturities"))
    modes: tuple[Mode, ...] = get_args(Mode)
    objectives: tuple[Objective, ...] = get_args(Objective)
    roles: tuple[Role, ...] = get_args(Role)
    maturities: tuple[Maturity, ...] = get_args(Maturity)
    return ChoiceRule(
        name=name,
        reason=fields["reason"].text(),
        rank=_integer(fields["rank"]) if "rank" in fields else None,
        modes=tuple(item.one_of(modes) for item in _items(when, "modes")),
        objectives=tuple(item.one_of(objectives) for item in _items(when, "objectives")),
        traits=_rule_traits(when["traits"], traits) if "traits" in when else MappingProxyType({}),
        compiled=when["compiled"].flag() if "compiled" in when else None,
        pool_roles=tuple(item.one_of(roles) for item in _items(when, "poolRoles")),
        maturities=tuple(item.one_of(maturities) for item in _items(when, "maturities")),
        source=fields["source"].text(),
        as_of=read_source(fields)[1],
    )


def _rule_traits(value: Located, traits: Mapping[str, Trait]) -> Mapping[str, tuple[str, ...]]:
    found = {}
    for name, wanted in value.entries().items():
        if name not in traits:
            raise wanted.problem(f"is not a trait{suggestion(name, traits)}")
        known = traits[name].values
        found[name] = tuple(item.one_of(known) if known else item.text() for item in wanted.items())
    return MappingProxyType(found)


def _items(fields: Mapping[str, Located], name: str) -> tuple[Located, ...]:
    return tuple(fields[name].items()) if name in fields else ()


def _number(value: Located, least: float = 0.0) -> float:
    number = float(value.money())
    if number < least:
        raise value.problem(f"must be at least {least:g}")
    return number


def _share(value: Located) -> float:
    share = _number(value)
    if not 0 < share <= 1:
        raise value.problem(f"{value.text()!r} is not a fraction above 0 and up to 1")
    return share


def _integer(value: Located) -> int:
    text = value.text()
    if not re.fullmatch(r"-?\d{1,4}", text):
        raise value.problem(f"{text!r} is not a whole number")
    return int(text)


def _text(fields: Mapping[str, Located], name: str) -> str:
    return fields[name].text() if name in fields else ""

"""Variants that may be used no more though they have replicas: what is known of them, and the offers that keep them.

What they were as candidates is remembered. A leader that comes later has what the status says, and estimates what they
carry, no more than the weakest of today's candidates: what is believed to carry more than it does goes too soon.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.catalogue.records import Catalogue
from berth.catalogue.sizing import serving_devices
from berth.controllers.facts import shorten
from berth.controllers.services.supply import Choice
from berth.controllers.services.view import ServiceView
from berth.inference.records import Offer, Variant
from berth.inference.service import Plan, Verdict
from berth.inference.sized import size
from berth.values import plural


def closed_offers(
    view: ServiceView, choice: Choice, wanted: Mapping[str, int], unplaced: Mapping[str, int], catalogue: Catalogue
) -> tuple[Offer, ...]:
    """The replicas there are of variants that may be used no more; of no more of them than have, or soon get, a node.

    ``unplaced``: pods that have waited for one for too long, by variant.
    """
    gone = {name: count for name, count in wanted.items() if name not in choice.variants}
    view.former = {name: view.former.get(name) or _recorded(name, view, choice, catalogue) for name in gone}
    return tuple(
        Offer(view.former[name], room=max(0, count - unplaced.get(name, 0)), closed=True)
        for name, count in gone.items()
        if count
    )


def _recorded(name: str, view: ServiceView, choice: Choice, catalogue: Catalogue) -> Variant:
    entry: Mapping[str, Any] = next(
        (entry for entry in view.persisted.get("variants") or () if entry["name"] == name), {}
    )
    return Variant(
        name=name,
        accelerator=entry.get("accelerator", ""),
        capacity_type=entry.get("capacityType", "OnDemand"),
        pool=entry.get("pool", ""),
        devices=1,
        usd_per_hour=float(entry.get("usdPerHour") or 0.0),
        capacity=_carries(entry.get("accelerator", ""), choice, catalogue),
        zone=entry.get("zone", ""),
    )


def _carries(accelerator: str, choice: Choice, catalogue: Catalogue) -> float:
    """Work of one replica on the fewest devices: as sized, or by the bandwidth of their memory where they miss today's
    promise."""
    weakest = min((variant.capacity for variant in choice.variants.values()), default=1.0)
    known, unit = catalogue.accelerators.get(accelerator), choice.found.reference_capacity
    reference = next((v for v in choice.variants.values() if v.accelerator == choice.found.reference), None)
    if known is None or reference is None:
        return weakest
    model, devices = choice.request.model, choice.request.devices or 1
    if model is not None and choice.request.devices is None and isinstance(held := serving_devices(known, model), int):
        devices = held
    sized = size(known, choice.request, devices, catalogue.serving.sizing)
    if unit is not None and unit.requests_per_second and not isinstance(sized, str) and sized.capacity is not None:
        return min(weakest, sized.capacity.requests_per_second / unit.requests_per_second)
    bandwidth = catalogue.accelerators[reference.accelerator].memory_bandwidth * reference.devices
    share = devices * known.memory_bandwidth / bandwidth if bandwidth else 0.0
    return min(weakest, share or weakest)


def placed(plan: Plan, choice: Choice, misfits: Mapping[str, str]) -> Verdict:
    """The condition Placed. ``misfits``: by variant, why the template fits none of its nodes."""
    gone = [words for name, words in choice.leaves.items() if plan.counts.get(name)]
    excluded = [entry.sentence for entry in choice.found.excluded if not entry.absent]
    notes = "; ".join([*misfits.values(), *gone, *excluded])
    count = sum(count for name, count in plan.counts.items() if name not in choice.variants)
    stays = f"{plural(count, 'running replica')} kept until others carry the work"
    if not choice.found.found:
        return Verdict(False, "NoCandidate", _joined(choice.found.why_none(), stays if count else ""))
    if unfit(choice, misfits):
        return Verdict(False, "TemplateFitsNoNode", shorten(notes))
    if count:
        return Verdict(False, "ReplicasKept", _joined(notes, stays))
    return Verdict(True, "VariantsChosen", shorten(notes))


def unfit(choice: Choice, misfits: Mapping[str, str]) -> str:
    """Why the template fits no node of any variant; empty where there is one that it fits."""
    return "; ".join(misfits.values()) if misfits.keys() >= choice.variants.keys() else ""


def _joined(why: str, stays: str) -> str:
    """Both in one message; what is long is the first."""
    return "; ".join(part for part in (shorten(why), stays) if part)

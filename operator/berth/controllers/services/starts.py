"""What is learned of starts: how long they took, and how long the next ones may.

A start that the start-up probe has ended counts too, as one that takes longer than it was given: left out, what is
learned would be of the quick ones alone, and the budget that ends the others would never grow. One that its node's
clock, which is ahead, lets end later than now is left out: how long it took is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from berth.api.names import LABEL_VARIANT
from berth.cluster import wire
from berth.controllers.services.facts import cut_short
from berth.controllers.services.supply import Choice, Market, start_key
from berth.controllers.services.view import ServiceView
from berth.controllers.services.warmth import Warmth
from berth.inference.coldstart import frozen_budget, step_above

STARTUP_QUANTILE: Final = 0.99
SKEW_SECONDS: Final = 5.0
"""By which the clocks of nodes may be ahead of this one."""


def learn_starts(
    view: ServiceView, choice: Choice, market: Market, warmth: Warmth, pods: Iterable[wire.Pod], now: float
) -> None:
    """Take in the starts of ``pods`` that were over since the last look, and set the budget of the next ones by them.

    The budget is that of every variant that may be used: pods of all carry the same, and a cheap one may be quick.
    """
    variants = choice.variants
    live = {pod.metadata.uid: pod for pod in pods}
    view.seen_starts &= live.keys()
    view.seen_cuts = {entry for entry in view.seen_cuts if entry[0] in live}
    for uid, pod in live.items():
        variant = variants.get(pod.metadata.labels.get(LABEL_VARIANT, ""))
        if variant is None:
            continue
        seconds = warmth.seconds(pod)
        if seconds is not None and uid not in view.seen_starts:
            view.seen_starts.add(uid)
            known = seconds <= now - pod.metadata.created + SKEW_SECONDS
            cached = warmth.cached(market, view, choice, variant, pod) if known else None
            if cached is not None:
                view.starts.observe(start_key(view, variant, cached=cached), seconds)
        cut = cut_short(pod)
        if cut is not None and (uid, cut.run) not in view.seen_cuts:
            view.seen_cuts.add((uid, cut.run))
            if cut.patience >= view.startup_seconds:  # else the budget has grown since that pod was made
                view.starts.observe(start_key(view, variant, cached=False), step_above(cut.patience))
    if variants:
        needed = max(market.startup(view, choice, variant, STARTUP_QUANTILE) for variant in variants.values())
        view.startup_seconds = frozen_budget(view.startup_seconds, needed, template_changes=view.template_changes)
        view.template_changes = False

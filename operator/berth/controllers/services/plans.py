"""From a service's view to the plans that its children are rendered from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final

import numpy as np

from berth import values
from berth.catalogue.records import Catalogue
from berth.controllers.services.places import occurs, seen_requirements, stated_requirements
from berth.controllers.services.rollout import bounds
from berth.controllers.services.view import Kept, ServiceView
from berth.fleet.fleet import Fleet
from berth.fleet.pool import Pool
from berth.inference.access import Access, Tolerations
from berth.inference.records import Variant
from berth.render.service.deployment import deployment_template, template_hash
from berth.render.service.plan import DeploymentPlan, ServicePlan
from berth.training.request import RequestProblem, node_terms
from berth.values import Requirements, Resources, Toleration, parse_resources

CPU_STEPS: Final = (16_000, 8_000, 4_000, 2_000, 1_000)
"""Millicores per device where the template names none: the most that every node of the pool can give to each."""
CPU_SHARE: Final = 0.9
"""Of a node's CPU; the rest is left to daemons."""


def service_plan(view: ServiceView, catalogue: Catalogue) -> ServicePlan:
    """What the service's children are a function of."""
    assert view.spec is not None
    meta = view.object.metadata
    return ServicePlan(meta.name, meta.namespace, meta.uid, view.spec, catalogue)


def deployment_plan(
    view: ServiceView,
    variant: Variant,
    fleet: Fleet,
    *,
    replicas: int = 0,
    paused: bool = False,
    surge: bool = False,
    yields: bool = False,
) -> DeploymentPlan:
    """One variant. ``surge``: a replica more than is asked for would find room; ``yields``: see :mod:`.rollout`."""
    assert view.spec is not None
    pool, kept = fleet.pools.get(variant.pool), view.kept.get(variant.name)
    up, unavailable = bounds(view.spec.rollout, surge=surge, yields=yields)
    return DeploymentPlan(
        service=service_plan(view, fleet.catalogue),
        variant=variant,
        nodes=_nodes(view, pool, variant, fleet) if kept is None else kept.nodes,
        tolerations=spot_tolerations(variant, fleet.catalogue),
        startup_seconds=view.startup_seconds or 600,
        cpu_millicores=view.cpu.setdefault(variant.name, serving_cpu(pool, variant.devices)),
        replicas=replicas,
        paused=paused,
        max_surge=up,
        max_unavailable=unavailable,
        pool="" if kept is None else kept.pool,
    )


def _nodes(view: ServiceView, pool: Pool | None, variant: Variant, fleet: Fleet) -> tuple[Requirements, ...]:
    """The node selector's terms: what the pool states, and what was frozen of the rest, else what is seen now."""
    seen = view.places.get(variant.name)
    if pool is None:
        return (seen,) if seen else ()
    return ((*stated_requirements(pool), *(seen_requirements(pool, variant, fleet) if seen is None else seen)),)


def freeze(
    view: ServiceView,
    counts: Mapping[str, int],
    variants: Mapping[str, Variant],
    live: Mapping[str, str],
    fleet: Fleet,
    kept: Mapping[str, Kept] | None = None,
) -> dict[str, str]:
    """Choose what of the world the template of each variant in use follows from, before any is rendered to be applied.

    What a Deployment runs with stays, though nodes of other labels come, until its template changes anyway: then all
    is chosen anew. Also where no node meets it any more: no replica could start. ``live``: the digest of the template
    that each Deployment has; ``counts``: replicas that shall be; ``kept``: what stays as it is of templates whose pool
    has another name now, until the rest of them changes. Returns the digest of the template that each variant in use is
    to run.
    """
    used = live.keys() | {name for name, count in counts.items() if count}
    view.places = {name: place for name, place in view.places.items() if name in used}
    digests = {}
    view.kept = {}
    for name in used & variants.keys():
        if kept is not None and name in kept:
            view.kept[name] = kept[name]
            digests[name] = template_hash(deployment_plan(view, variants[name], fleet))
            if digests[name] == live.get(name):
                continue
            del view.kept[name]
        variant, frozen = variants[name], view.places.get(name)
        pool = fleet.pools.get(variant.pool)
        if pool is not None:
            if frozen is not None and name in live and (occurs(frozen, pool) or not any(pool.labels)):
                digests[name] = template_hash(deployment_plan(view, variant, fleet))
                if digests[name] == live[name]:
                    continue
            if frozen is not None or name not in live:
                view.cpu.pop(name, None)
            view.places[name] = seen_requirements(pool, variant, fleet)
        digests[name] = template_hash(deployment_plan(view, variant, fleet))
    return digests


def spot_tolerations(variant: Variant, catalogue: Catalogue) -> Tolerations:
    """Spot nodes are often tainted with the label that marks them; whoever asks for spot tolerates it."""
    if not variant.spot:
        return ()
    return tuple(Toleration(entry.label, "Exists") for entry in catalogue.labels.capacity_type_labels)


def serving_cpu(pool: Pool | None, devices: int) -> int:
    """Millicores of a replica: a step of :data:`CPU_STEPS` for each device, 0 where no step fits or no node is known.

    A node that would join counts as one of the pool's, where the pool says what it holds.
    """
    if pool is None or pool.resource == values.CPU:
        return 0
    rows, joins = np.flatnonzero(pool.total_devices > 0), pool.spec.growth
    share = float((pool.total_cpu[rows] / (pool.total_devices[rows] / pool.unit)).min(initial=inf))
    if joins is not None and joins.cpu_per_node and joins.devices_per_node:
        share = min(share, joins.cpu_per_node / joins.devices_per_node)
    if share == inf:
        return 0
    share *= CPU_SHARE
    return next((step * devices for step in CPU_STEPS if step <= share), 0)


def pod_facts(fleet: Fleet) -> Callable[[ServiceView, Variant], tuple[Resources, Access]]:
    """What one pod of a variant asks for and which nodes it may go to, read from the template that it will have."""

    def facts(view: ServiceView, variant: Variant) -> tuple[Resources, Access]:
        state = (
            view.object.metadata.generation,
            fleet.catalogue_version,
            view.cpu.get(variant.name),
            variant.pool in fleet.pools,
        )
        before = view.pod_facts.get(variant.name)
        if before is not None and before[0] == state:
            return before[1]
        spec = deployment_template(deployment_plan(view, variant, fleet))["spec"]["template"]["spec"]
        state = (*state[:2], view.cpu.get(variant.name), state[3])
        assert view.spec is not None
        answer = (pod_needs(spec), Access(_tolerations(spec), own_terms(view.spec.template or {})))
        view.pod_facts[variant.name] = (state, answer)
        return answer

    return facts


def pod_needs(spec: Mapping[str, Any]) -> Resources:
    """What the scheduler counts for a pod of this spec."""
    whole = spec.get("resources") or {}
    return values.pod_needs(
        (_asked(container) for container in spec.get("containers") or ()),
        ((entry.get("restartPolicy") == "Always", _asked(entry)) for entry in spec.get("initContainers") or ()),
        parse_resources(whole.get("requests") or {}),
        parse_resources(whole.get("limits") or {}),
        parse_resources(spec.get("overhead") or {}),
    )


def own_terms(template: Mapping[str, Any]) -> tuple[Requirements, ...]:
    """Which nodes the user's template allows: ORed terms; none where it says nothing, or what only the server reads."""
    try:
        return node_terms(template.get("spec") or {})
    except (RequestProblem, KeyError, TypeError, AttributeError):
        return ()


def _asked(container: Mapping[str, Any]) -> dict[str, int]:
    needs = container.get("resources") or {}
    return parse_resources({**(needs.get("limits") or {}), **(needs.get("requests") or {})})


def _tolerations(spec: Mapping[str, Any]) -> Tolerations:
    return tuple(
        Toleration(
            entry.get("key", ""), entry.get("operator", "Equal"), entry.get("value", ""), entry.get("effect", "")
        )
        for entry in spec.get("tolerations") or ()
    )

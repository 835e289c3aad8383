"""From a service's view to the plans that its children are rendered from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from berth import values
from berth.catalogue.matching import CapacityLabel
from berth.catalogue.records import Catalogue
from berth.controllers.services.rollout import bounds
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.fleet.pool import Pool
from berth.inference.records import Variant
from berth.inference.room import Tolerations
from berth.render.service.deployment import deployment_template
from berth.render.service.plan import DeploymentPlan, ServicePlan
from berth.values import CapacityType, Requirement, Requirements, Resources, Toleration, parse_resources

CPU_STEPS: Final = (16_000, 8_000, 4_000, 2_000, 1_000)
"""Millicores per device where the template names none: the most that every node of the pool can give to each."""
CPU_SHARE: Final = 0.9
"""Of a node's CPU; the rest is left to daemons."""
ANY_VALUE: Final = "*"
"""In the catalogue's labels of capacity types: the label alone says it, whatever its value."""


def service_plan(view: ServiceView, catalogue: Catalogue) -> ServicePlan:
    """What the service's children are a function of."""
    assert view.spec is not None
    meta = view.object.metadata
    return ServicePlan(meta.name, meta.namespace, meta.uid, view.spec, catalogue)


def deployment_plan(
    view: ServiceView, variant: Variant, fleet: Fleet, *, replicas: int = 0, paused: bool = False, surge: bool = False
) -> DeploymentPlan:
    """One variant. ``surge``: a replica more than is asked for would find room."""
    assert view.spec is not None
    pool = fleet.pools.get(variant.pool)
    up, unavailable = bounds(view.spec.rollout, surge=surge)
    return DeploymentPlan(
        service=service_plan(view, fleet.catalogue),
        variant=variant,
        nodes=(place_requirements(pool, variant, fleet),) if pool is not None else (),
        tolerations=spot_tolerations(variant, fleet.catalogue),
        startup_seconds=view.startup_seconds or 600,
        cpu_millicores=view.cpu.setdefault(variant.name, serving_cpu(pool, variant.devices) if pool else 0),
        replicas=replicas,
        paused=paused,
        max_surge=up,
        max_unavailable=unavailable,
    )


def place_requirements(pool: Pool, variant: Variant, fleet: Fleet) -> Requirements:
    """The labels that a node of the variant's place has: the pool's, the capacity type's, on spot the zone's."""
    found = list(pool.spec.selector) if not pool.spec.discovered else _product_requirements(pool, fleet)
    found += _capacity_requirements(pool, variant, fleet.catalogue)
    if variant.zone and pool.site_level is not None:
        found.append(Requirement(pool.levels[pool.site_level].node_label, "In", (variant.zone,)))
    return tuple(found)


def _product_requirements(pool: Pool, fleet: Fleet) -> list[Requirement]:
    """What tells the nodes of a discovered pool: the product, as they name it, and that no stated pool selects them.

    A stated pool of several requirements cannot be excluded by one list of requirements; its nodes stay eligible.
    """
    if pool.accelerator is None:
        return []
    found: list[Requirement] = []
    for match in pool.accelerator.products:
        seen = sorted({labels[match.key] for labels in pool.labels if match.matches(labels)})
        if seen and all(match.matches(labels) for labels in pool.labels if labels):
            found.append(Requirement(match.key, "In", tuple(seen)))
            break
    for other in fleet.pools.values():
        selector, same = other.spec.selector, other.spec.accelerator == pool.spec.accelerator
        if same and not other.spec.discovered and len(selector) == 1 and selector[0].operator == "In":
            found.append(Requirement(selector[0].key, "NotIn", selector[0].values))
    return found


def _capacity_requirements(pool: Pool, variant: Variant, catalogue: Catalogue) -> list[Requirement]:
    """What tells the nodes of the variant's capacity type.

    Nothing where a stated pool is all of one. A discovered pool's product alone selects the nodes of its sisters too,
    those that are paid for in another way. The values are the catalogue's, so that nodes that come change no template.
    """
    if pool.spec.capacity_type is not None and not pool.spec.discovered:
        return []
    entries = [
        entry for entry in catalogue.labels.capacity_type_labels if pool.spec.capacity_label in (None, entry.label)
    ]
    if variant.capacity_type == "OnDemand":
        return [found for entry in entries if (found := _other_than(entry, variant.capacity_type)) is not None]
    for entry in entries:
        carried = [labels[entry.label] for labels in pool.labels if entry.label in labels]
        if any(entry.read(value) == variant.capacity_type for value in carried):
            return [_same_as(entry, variant.capacity_type)]
    return []


def _same_as(entry: CapacityLabel, kind: CapacityType) -> Requirement:
    values_of = tuple(value for value, means in entry.values.items() if means == kind)
    return Requirement(entry.label, "Exists") if ANY_VALUE in values_of else Requirement(entry.label, "In", values_of)


def _other_than(entry: CapacityLabel, kind: CapacityType) -> Requirement | None:
    """What nodes of another capacity type do not meet, and those without the label do."""
    foreign = tuple(value for value, means in entry.values.items() if means != kind)
    if not foreign:
        return None
    if ANY_VALUE in foreign:
        return Requirement(entry.label, "DoesNotExist")
    return Requirement(entry.label, "NotIn", foreign)


def spot_tolerations(variant: Variant, catalogue: Catalogue) -> Tolerations:
    """Spot nodes are often tainted with the label that marks them; whoever asks for spot tolerates it."""
    if not variant.spot:
        return ()
    return tuple(Toleration(entry.label, "Exists") for entry in catalogue.labels.capacity_type_labels)


def serving_cpu(pool: Pool, devices: int) -> int:
    """Millicores of a replica: a step of :data:`CPU_STEPS` for each device, 0 where no step fits."""
    rows = np.flatnonzero(pool.total_devices > 0)
    if not len(rows) or pool.resource == values.CPU:
        return 0
    share = float((pool.total_cpu[rows] * CPU_SHARE / (pool.total_devices[rows] / pool.unit)).min())
    return next((step * devices for step in CPU_STEPS if step <= share), 0)


def pod_facts(fleet: Fleet) -> Callable[[ServiceView, Variant], tuple[Resources, Tolerations]]:
    """What one pod of a variant asks for and tolerates, read from the template that it will have."""
    known: dict[tuple[str, str], tuple[tuple[object, ...], tuple[Resources, Tolerations]]] = {}

    def facts(view: ServiceView, variant: Variant) -> tuple[Resources, Tolerations]:
        state = (
            view.object.metadata.generation,
            id(fleet.catalogue),
            view.cpu.get(variant.name),
            variant.pool in fleet.pools,
        )
        before = known.get((view.uid, variant.name))
        if before is not None and before[0] == state:
            return before[1]
        spec = deployment_template(deployment_plan(view, variant, fleet))["spec"]["template"]["spec"]
        state = (*state[:2], view.cpu.get(variant.name), state[3])
        answer = (pod_needs(spec), _tolerations(spec))
        known[(view.uid, variant.name)] = (state, answer)
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

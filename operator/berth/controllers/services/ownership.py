"""Whose a child is, and children that have lost their owner.

A restored backup, or a service that was deleted without its children and made again, leaves children that are the
service's by name and labels while nothing owns them, or only the service that was there before under this name. They
are taken over: what runs goes on serving, and goes with the service again.
"""

from __future__ import annotations

from typing import Any

from berth.api.names import API_VERSION, GROUP, INFERENCE_SERVICE, LABEL_MANAGED_BY, LABEL_SERVICE_NAME, MANAGED_BY
from berth.cluster import wire
from berth.controllers.services.view import ServiceView


def orphaned(meta: wire.Meta, view: ServiceView) -> bool:
    """Whether a child of the service, by its labels, belongs to nothing that could still be there."""
    if meta.owned_by(view.uid) or meta.deleting or not _labelled(meta, view):
        return False
    controller = meta.controller()
    return controller is None or _former(controller, view)


def adoption(meta: wire.Meta, view: ServiceView) -> dict[str, Any]:
    """The merge patch by which the service owns this very object, as it is known; other owners stay."""
    others = [
        {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        for owner in meta.owner_references
        if not _former(owner, view)
    ]
    ours = {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_SERVICE.kind,
        "name": view.key[1],
        "uid": view.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    fixed = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return {"metadata": {**fixed, "ownerReferences": [*others, ours]}}


def foreign(meta: wire.Meta, view: ServiceView) -> str:
    """Why an object that has the name of a child is none, in a few words."""
    controller = meta.controller()
    if controller is not None and not _former(controller, view):
        return f"{controller.kind} {controller.name} controls it"
    if meta.deleting:
        return "it is being deleted"
    return f"its labels {LABEL_SERVICE_NAME} and {LABEL_MANAGED_BY} do not say that it is this service's"


def _labelled(meta: wire.Meta, view: ServiceView) -> bool:
    labels = meta.labels
    return (labels.get(LABEL_SERVICE_NAME), labels.get(LABEL_MANAGED_BY)) == (view.key[1], MANAGED_BY)


def _former(owner: wire.OwnerReference, view: ServiceView) -> bool:
    """A service of this name and another identity, which is gone; others have a kind of the same name."""
    ours = (owner.api_version.partition("/")[0], owner.kind, owner.name) == (GROUP, INFERENCE_SERVICE.kind, view.key[1])
    return ours and owner.uid != view.uid

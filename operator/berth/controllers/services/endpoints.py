"""Where the replicas of services show their metrics, for the source that asks them directly."""

from __future__ import annotations

from collections.abc import Callable

from berth.api.names import SERVER_CONTAINER
from berth.catalogue.records import Catalogue
from berth.cluster import wire
from berth.controllers.services.facts import service_key
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.render.service.exposure import PORT
from berth.telemetry.scrape import Endpoint


def endpoint(
    pod: wire.Pod | None, view_of: Callable[[ServiceKey], ServiceView | None], catalogue: Catalogue
) -> Endpoint | None:
    """Where a replica can be asked. None before its server has started, which is not the same as readiness: one that
    is too busy to be ready has a load to tell of."""
    key = service_key(pod) if pod is not None else None
    view = view_of(key) if key is not None else None
    if pod is None or view is None or view.spec is None or not pod.status.pod_ip or pod.metadata.deleting:
        return None
    if not any(status.started for status in pod.status.container_statuses if status.name == SERVER_CONTAINER):
        return None
    engine = catalogue.serving.engines.get(view.spec.runtime.engine) if view.spec.runtime is not None else None
    if engine is not None:
        return Endpoint(pod.status.pod_ip, engine.metrics_port, engine.metrics_path)
    port = view.spec.expose.port if view.spec.expose is not None else None
    return Endpoint(pod.status.pod_ip, port or PORT)

"""The operator's entry point, and the one place where everything is put together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import uuid
from pathlib import Path
from typing import Final

import click

from berth import __version__
from berth.catalogue.overlay import LiveCatalogue
from berth.cluster.client import ApiClient
from berth.cluster.clock import SYSTEM_CLOCK
from berth.cluster.kinds import POD_GROUPS
from berth.cluster.lease import Election
from berth.cluster.ratelimit import TokenBucket
from berth.cluster.session import connect
from berth.cluster.transport import Transport
from berth.controllers import shell
from berth.controllers.app import App, Identity, elect_and_lead
from berth.controllers.gangs import Settings
from berth.controllers.services.endpoints import endpoint
from berth.controllers.services.planner import PERIOD_SECONDS
from berth.telemetry.metrics import Metrics
from berth.telemetry.probes import ProbeServer
from berth.telemetry.prometheus import Prometheus, PrometheusSettings, PrometheusSource
from berth.telemetry.readings import DemandSource
from berth.telemetry.scrape import Endpoint, PodSource
from berth.telemetry.sources import Sources
from berth.values import BerthError

_LOG: Final = logging.getLogger("berth")


@click.command()
@click.version_option(__version__)
@click.option("--kubeconfig", type=click.Path(path_type=Path), default=None, help="Default: the pod's service account.")
@click.option("--namespace", default="berth-system", show_default=True, help="Where the Lease lives.")
@click.option("--lease-name", default="berth", show_default=True)
@click.option("--identity", default=None, help="Default: POD_NAME or the host name, and a random part.")
@click.option("--metrics-port", type=int, default=8080, show_default=True)
@click.option("--health-port", type=int, default=8081, show_default=True)
@click.option("--bind-address", default="0.0.0.0", show_default=True)  # noqa: S104 - probes come from the node
@click.option("--qps", type=float, default=300.0, show_default=True, help="Requests a second to the API server.")
@click.option("--burst", type=int, default=500, show_default=True)
@click.option("--native-gangs", type=click.Choice(["auto", "off"]), default="auto", show_default=True)
@click.option("--catalogue-overlay", type=click.Path(path_type=Path), default=None, help="Folder of overlay files.")
@click.option("--priority-class", default="berth-training", show_default=True, help="Of the pods of training jobs.")
@click.option("--prometheus-url", default="", help="Where demand of InferenceServices is asked for.")
@click.option("--prometheus-token-file", type=click.Path(path_type=Path), default=None, help="Bearer token for it.")
@click.option("--prometheus-ca-file", type=click.Path(path_type=Path), default=None, help="Its certificate authority.")
@click.option("--prometheus-enforcer-url", default="", help="Proxy that binds a custom query to its namespace.")
@click.option("--custom-queries/--no-custom-queries", default=False, show_default=True, help="Run users' own PromQL.")
@click.option("--service-period", type=float, default=PERIOD_SECONDS, show_default=True,
              help="Seconds between two decisions about a service.")  # fmt: skip
@click.option("--prefetch", type=click.IntRange(0), default=0, show_default=True,
              help="Nodes that get weights ahead of replicas at once; 0: none, and no node is labelled.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", default="INFO", show_default=True)
def main(**options: object) -> None:
    """Run the Berth operator."""
    _log_to_stderr(str(options["log_format"]), str(options["log_level"]))
    try:
        asyncio.run(operate(options))
    except BerthError as problem:
        _LOG.error("%s", problem)
        sys.exit(1)


async def operate(options: dict[str, object]) -> None:
    """Run until SIGTERM or SIGINT. Raises: ConfigProblem."""
    metrics = Metrics()
    folder = options["catalogue_overlay"]
    catalogue = LiveCatalogue(folder if isinstance(folder, Path) else None)
    if catalogue.problem is not None:
        _LOG.error("the catalogue overlay is not taken in: %s", catalogue.problem)
    connection = connect(options["kubeconfig"] if isinstance(options["kubeconfig"], Path) else None)
    limiter = TokenBucket(float(str(options["qps"])), int(str(options["burst"])), SYSTEM_CLOCK)
    transport = Transport(connection, limiter=limiter, on_call=metrics.called)
    client = ApiClient(transport)
    native = options["native_gangs"] == "auto" and await client.serves(POD_GROUPS)
    own = str(options["identity"] or f"{os.environ.get('POD_NAME') or socket.gethostname()}-{uuid.uuid4().hex[:8]}")
    identity = Identity(own, str(options["namespace"]), str(options["lease_name"]))
    settings = Settings(priority_class=str(options["priority_class"]), native_gangs=native)
    prometheus = _prometheus(options)
    period = float(str(options["service_period"]))
    pods = PodSource(lambda namespace, pod: _endpoint(app, namespace, pod))
    prefetches = int(str(options["prefetch"]))
    app = App(
        client, catalogue, identity, metrics, settings, _sources(prometheus, pods),
        default_source="Pods" if prometheus is None else "Prometheus", service_period=period, prefetches=prefetches,
    )  # fmt: skip
    election = Election(client, identity.lease, identity.namespace, identity.name, end=lambda: os._exit(1))
    transport.fence = election.fence
    _LOG.info("berth %s, %s gangs, %d accelerators known", __version__, "native" if native else "pinned",
              len(catalogue.catalogue.accelerators))  # fmt: skip
    servers = _serve(app, metrics, options)
    stop = asyncio.Event()
    try:
        await _run(app, election, stop)
    finally:
        for server in servers:
            server.stop()
        await connection.close()
        await pods.close()
        if prometheus is not None:
            await prometheus.close()
        _LOG.info("stopped")


def _prometheus(options: dict[str, object]) -> Prometheus | None:
    url = str(options["prometheus_url"])
    token, ca = options["prometheus_token_file"], options["prometheus_ca_file"]
    if not url:
        return None
    return Prometheus(
        PrometheusSettings(
            url,
            token_file=token if isinstance(token, Path) else None,
            ca_file=ca if isinstance(ca, Path) else None,
            allow_custom=bool(options["custom_queries"]),
            enforcer_url=str(options["prometheus_enforcer_url"]),
        )
    )


def _sources(prometheus: Prometheus | None, pods: PodSource) -> DemandSource:
    served: dict[str, DemandSource] = {"Prometheus": PrometheusSource(prometheus)} if prometheus is not None else {}
    return Sources({**served, "Pods": pods})


def _endpoint(app: App, namespace: str, pod: str) -> Endpoint | None:
    return endpoint(app.caches.pods.get(pod, namespace), app.services.observer.view, app.catalogue.catalogue)


async def _run(app: App, election: Election, stop: asyncio.Event) -> None:
    registry = shell.build_registry(lambda: app.client.transport.connection, app.wake, app.known)
    kopf_stop = asyncio.Event()
    _stop_on_signals(stop)
    tasks = {
        asyncio.create_task(app.keep_warm(), name="caches"),
        asyncio.create_task(shell.run(registry, kopf_stop, lambda: _stop_on_signals(stop)), name="kopf"),
        asyncio.create_task(_lead_when_warm(app, election), name="leader"),
    }
    stopping = asyncio.create_task(stop.wait(), name="stop")
    done, _ = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.get_name() != "kopf":
            task.cancel()
    await asyncio.wait({task for task in tasks if task.get_name() == "leader"}, timeout=15.0)
    kopf_stop.set()  # which closes the session that the leader gave its lease back through
    await asyncio.wait(tasks, timeout=5.0)
    for ended in done - {stopping}:
        with contextlib.suppress(asyncio.CancelledError):
            ended.result()
        raise BerthError(f"the task {ended.get_name()} ended by itself")


async def _lead_when_warm(app: App, election: Election) -> None:
    await app.synced()
    gc.collect()
    gc.freeze()
    await elect_and_lead(app, election)


def _serve(app: App, metrics: Metrics, options: dict[str, object]) -> list[ProbeServer]:
    """Serve probes and metrics; with two ports the health port, which is open to every node, tells no metrics."""
    host = str(options["bind_address"])
    health, port = int(str(options["health_port"])), int(str(options["metrics_port"]))
    probes = {"healthz": app.not_healthy, "readyz": app.not_ready}
    shared = health == port != 0
    servers = {"health": ProbeServer(host, health, **probes, registry=metrics.registry if shared else None)}
    if not shared:
        servers["metrics"] = ProbeServer(host, port, **probes, registry=metrics.registry)
    for name, server in servers.items():
        server.start()
        _LOG.info("%s on port %d", name, server.port)
    return list(servers.values())


def _stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT are ours, also after kopf has taken them for itself."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


class _JsonLines(logging.Formatter):
    """One JSON object a line, as log collectors want it."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": self.formatTime(record), "level": record.levelname, "logger": record.name,
                "message": record.getMessage()}  # fmt: skip
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _log_to_stderr(form: str, level: str) -> None:
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonLines() if form == "json" else plain)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("kopf", "httpx"):  # httpx tells each request with its address
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of every request


if __name__ == "__main__":
    main()

"""What ``helm test`` runs: is this release of Berth able to do its work?

It asks the API server to check one good and one bad TrainingJob by dry run, which shows that the definitions and
their rules are there, and it reads readiness and metrics from the operator's Service. Nothing is created. It needs
only the standard library, and takes every address as an argument, so that it runs outside a pod as well.
"""

import argparse
import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_SECONDS = 10


class CheckError(Exception):
    """A check found something else than it should; the message says what and what to look at."""


def call(url: str, *, body: Any = None, token: str = "", ca: str = "") -> tuple[int, str]:
    """Status and text of one request; POST when there is a body. Raises: CheckError when nobody answers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310 - the chart gives the address
    context = ssl.create_default_context(cafile=ca) if url.startswith("https:") else None
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode()
    except OSError as problem:
        raise CheckError(f"{url} does not answer: {problem}") from problem


def training_job(workers: int) -> dict[str, Any]:
    """The smallest TrainingJob; zero ``workers`` make it a bad one."""
    container = {"name": "worker", "image": "registry.example/none:1"}
    return {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "berth-selftest"},
        "spec": {
            "workers": workers,
            "accelerators": {"perWorker": 1},
            "template": {"spec": {"containers": [container]}},
        },
    }


def check_contract(options: argparse.Namespace) -> str:
    """A good TrainingJob is accepted and a bad one refused."""
    url = f"{options.api_server}/apis/berth.dev/v1alpha1/namespaces/{options.namespace}/trainingjobs?dryRun=All"
    access = {"token": Path(options.token_file).read_text().strip(), "ca": options.ca_file}
    status, text = call(url, body=training_job(1), **access)
    if status == 404:
        raise CheckError("the API server does not know TrainingJob: install the chart with crds.install=true")
    if status != 201:
        raise CheckError(f"a good TrainingJob was answered with {status}: {text}")
    status, text = call(url, body=training_job(0), **access)
    if status != 422 or "spec.workers" not in text:
        raise CheckError(f"a TrainingJob with 0 workers was answered with {status} instead of a refusal: {text}")
    return "TrainingJob: a good one is accepted, a bad one refused"


def check_ready(options: argparse.Namespace) -> str:
    """The operator says that its caches are synced."""
    status, text = call(f"{options.health}/readyz")
    if status != 200:
        raise CheckError(f"the operator is not ready ({status}): {text.strip()}")
    return "/readyz: the operator's caches are synced"


def check_metrics(options: argparse.Namespace) -> str:
    """The operator exposes metrics of its own."""
    status, text = call(f"{options.metrics}/metrics")
    if status != 200 or "\nberth_" not in f"\n{text}":
        raise CheckError(f"/metrics ({status}) has no metric of Berth")
    return "/metrics: Berth's metrics are there"


CHECKS: tuple[Callable[[argparse.Namespace], str], ...] = (check_contract, check_ready, check_metrics)


def main(arguments: list[str] | None = None) -> int:
    """Run every check, print a line for each; 1 when one fails."""
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc"),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--api-server", default=f"https://{f'[{host}]' if ':' in host else host}:{port}")
    parser.add_argument("--token-file", default=str(ACCOUNT / "token"))
    parser.add_argument("--ca-file", default=str(ACCOUNT / "ca.crt"))
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--health", required=True, help="where /readyz is, such as http://berth:8081")
    parser.add_argument("--metrics", required=True, help="where /metrics is, such as http://berth:8080")
    options = parser.parse_args(arguments)
    failed = 0
    for check in CHECKS:
        try:
            print("ok  ", check(options))
        except CheckError as problem:
            failed = 1
            print("FAIL", problem)
    return failed


if __name__ == "__main__":
    sys.exit(main())

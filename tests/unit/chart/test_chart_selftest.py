"""The script of ``helm test`` against servers that are right and servers that are wrong in one way."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from charts.berth.files import selftest

REFUSAL = json.dumps({"message": "spec.workers: should be greater than or equal to 1"})


@dataclass
class Answers:
    """What the server says: status and text of a good job, of a bad one, of /readyz and of /metrics."""

    good: tuple[int, str] = (201, "{}")
    bad: tuple[int, str] = (422, REFUSAL)
    ready: tuple[int, str] = (200, "ok")
    metrics: tuple[int, str] = (200, "# HELP berth_leading Whether this replica leads.\nberth_leading 1.0\n")
    url: str = ""
    seen: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Answers]:
    answers = Answers()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(answers.ready if self.path == "/readyz" else answers.metrics)

        def do_POST(self) -> None:
            answers.seen.append(f"{self.path} {self.headers['Authorization']}")
            job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(answers.good if job["spec"]["workers"] else answers.bad)

        def reply(self, answer: tuple[int, str]) -> None:
            self.send_response(answer[0])
            self.end_headers()
            self.wfile.write(answer[1].encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        answers.url = f"http://127.0.0.1:{listening.server_address[1]}"
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield answers
        listening.shutdown()


def run(server: Answers, tmp_path: Path) -> int:
    token = tmp_path / "token"
    token.write_text("secret\n")
    return selftest.main([
        "--api-server", server.url, "--token-file", str(token), "--namespace", "here",
        "--health", server.url, "--metrics", server.url,
    ])  # fmt: skip


def test_a_working_release_passes(server: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(server, tmp_path) == 0
    assert capsys.readouterr().out.count("ok  ") == len(selftest.CHECKS)


def test_nothing_is_created(server: Answers, tmp_path: Path) -> None:
    run(server, tmp_path)
    path = "/apis/berth.dev/v1alpha1/namespaces/here/trainingjobs?dryRun=All"
    assert server.seen == [f"{path} Bearer secret"] * 2


@pytest.mark.parametrize(
    ("what", "answer", "message"),
    [
        ("good", (404, ""), "FAIL the API server does not know TrainingJob: install the chart with crds.install=true"),
        ("good", (403, "forbidden"), "FAIL a good TrainingJob was answered with 403: forbidden"),
        ("bad", (201, "{}"), "FAIL a TrainingJob with 0 workers was answered with 201"),
        ("bad", (422, "other"), "FAIL a TrainingJob with 0 workers was answered with 422"),
        ("ready", (503, "pods: not synced\n"), "FAIL the operator is not ready (503): pods: not synced"),
        ("metrics", (200, "python_info 1\n"), "FAIL /metrics (200) has no metric of Berth"),
        ("metrics", (500, ""), "FAIL /metrics (500)"),
    ],
)
def test_a_broken_release_fails_and_says_how(
    server: Answers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    what: str,
    answer: tuple[int, str],
    message: str,
) -> None:
    setattr(server, what, answer)
    assert run(server, tmp_path) == 1
    output = capsys.readouterr().out
    assert message in output
    assert output.count("FAIL") == 1


def test_an_operator_that_does_not_answer_fails(
    server: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    nobody = "http://127.0.0.1:1"
    arguments = ["--api-server", server.url, "--token-file", str(token), "--namespace", "here"]
    assert selftest.main([*arguments, "--health", nobody, "--metrics", nobody]) == 1
    assert f"FAIL {nobody}/readyz does not answer" in capsys.readouterr().out

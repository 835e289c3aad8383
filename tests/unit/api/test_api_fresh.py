"""What is committed is what the models generate, and `--check` says so when it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from berth.api import crd, reference

ROOT = Path(__file__).resolve().parents[3]
Command = Callable[[list[str]], int]

each_command = pytest.mark.parametrize(
    ("command", "directory"), [(crd.main, "crds"), (reference.main, "docs/reference")], ids=["crds", "reference"]
)


@each_command
def test_committed_files_are_fresh(command: Command, directory: str) -> None:
    assert command(["--out", str(ROOT / directory), "--check"]) == 0


@each_command
def test_stale_file_is_named_with_the_way_to_renew_it(
    command: Command, directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["--out", str(tmp_path)]) == 0
    stale = sorted(tmp_path.iterdir())[0]
    stale.write_text(stale.read_text() + "\n")
    assert command(["--out", str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().err == f"{stale} is stale: run `make crds` and commit the result\n"


@each_command
def test_missing_file_is_stale(command: Command, directory: str, tmp_path: Path) -> None:
    assert command(["--out", str(tmp_path / "none"), "--check"]) == 1


@pytest.mark.parametrize("kind", ["trainingjob", "inferenceservice", "acceleratorpool"])
def test_reference_holds_every_message_of_the_server(kind: str) -> None:
    page = (ROOT / f"docs/reference/{kind}.md").read_text()
    definition = next(definition for definition in crd.DEFINITIONS if definition.names.singular == kind)
    for node in reference._nodes(definition.schema()):
        for rule in node.get("x-kubernetes-validations", ()):
            assert reference._cell(rule["message"]) in page

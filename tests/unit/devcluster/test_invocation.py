"""Printed commands run as they stand, whether `berth` is on PATH or in a folder of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from berth.devcluster.invocation import berth


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a virtual environment in it, which is the present folder and not on PATH."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "berth").write_text("#!/bin/sh\n")
    (programs / "berth").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_in_the_checkout_the_way_is_short(checkout: Path) -> None:
    assert berth("dev", "up") == ".venv/bin/berth dev up"


def test_elsewhere_the_way_is_whole(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert berth("dev", "up") == f"{str(checkout)[1:]}/.venv/bin/berth dev up"
    (checkout / "below").mkdir()
    monkeypatch.chdir(checkout / "below")
    assert berth("dev", "up") == f"{checkout}/.venv/bin/berth dev up"


def test_on_the_path_the_name_is_enough(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout / ".venv" / "bin"))
    assert berth("dev", "up") == "berth dev up"


def test_another_berth_on_the_path_is_not_ours(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = checkout / "other" / "berth"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert berth("dev", "up") == ".venv/bin/berth dev up"


def test_without_a_script_the_interpreter_is_named(checkout: Path) -> None:
    (checkout / ".venv" / "bin" / "berth").unlink()
    assert berth("dev", "up") == f"{sys.executable} -m berth.cli.main dev up"

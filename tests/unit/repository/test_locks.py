"""The locks pin everything that pyproject.toml asks for, by hash and from no particular place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; .*)? \\$", re.M)


def text(name: str) -> str:
    return (ROOT / "requirements" / name).read_text()


def pins(name: str) -> dict[str, Version]:
    return {package.lower().replace("_", "-"): Version(version) for package, version in PIN.findall(text(name))}


def expect_pinned(wanted: list[str], name: str) -> None:
    pinned = pins(name)
    for requirement in map(Requirement, wanted):
        version = pinned.get(requirement.name.lower().replace("_", "-"))
        assert version is not None, f"{requirement} is not in requirements/{name}; run: make lock"
        assert version in requirement.specifier, f"{name} pins {version}, not {requirement}; run: make lock"


def test_every_dependency_is_pinned_within_its_range() -> None:
    expect_pinned(PROJECT["project"]["dependencies"], "runtime.txt")
    expect_pinned(PROJECT["project"]["optional-dependencies"]["dev"], "dev.txt")
    expect_pinned(PROJECT["build-system"]["requires"], "build.txt")
    expect_pinned(PROJECT["build-system"]["requires"], "dev.txt")


def test_what_is_tested_is_what_is_shipped() -> None:
    assert pins("runtime.txt").items() <= pins("dev.txt").items()
    assert pins("build.txt").items() <= pins("dev.txt").items()


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt", "build.txt"])
def test_a_lock_holds_hashes_and_no_addresses(name: str) -> None:
    entries = re.split(r"\n(?=\S)", text(name))
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"://|--index|--find-links|--extra-index|/home/|/root/", text(name))


def test_what_builds_the_package_is_said_once() -> None:
    lines = [line for line in text("build.in").splitlines() if line and not line.startswith("#")]
    assert lines == PROJECT["build-system"]["requires"]

"""Files made from the models: written, or compared with what is committed so that CI fails on a stale one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_generated(files: Mapping[str, str], command: str, arguments: Sequence[str] | None) -> int:
    """Handle ``--out DIR [--check]`` for ``files`` (name to content); returns the exit status.

    With ``--check`` nothing is written: a file that differs is named, with ``command`` as the way to renew it.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="directory of the generated files")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    options = parser.parse_args(arguments)
    if options.check:
        return _check(files, options.out, command)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (options.out / name).write_text(content, encoding="utf-8")
    return 0


def _check(files: Mapping[str, str], directory: Path, command: str) -> int:
    stale = [name for name, content in files.items() if _content(directory / name) != content]
    for name in stale:
        print(f"{directory / name} is stale: run `{command}` and commit the result", file=sys.stderr)
    return 1 if stale else 0


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None

"""How a reader can call this program again: a command that is printed must run as it stands.

The usual checkout has `berth` in its own virtual environment and not on PATH.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def berth(*arguments: str) -> str:
    """A command line for ``berth`` with ``arguments``, to be run in the present folder."""
    return " ".join((_program(), *arguments))


def _program() -> str:
    own = Path(sys.executable).parent / "berth"
    found = shutil.which("berth")
    if found is not None and Path(found).resolve() == own.resolve():
        return "berth"
    if not own.exists():
        return f"{sys.executable} -m berth.cli.main"
    here = Path.cwd()
    return str(own.relative_to(here)) if own.is_relative_to(here) else str(own)

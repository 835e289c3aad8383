"""Everything that is made from the models, in its place: ``python -m berth.api.generate [--check]``.

Run from the top of the repository; ``--check`` writes nothing and fails where a file is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from berth.api import crd, reference


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check ``crds/`` and ``docs/reference/``; 1 when a checked file is stale."""
    flags = list(sys.argv[1:] if arguments is None else arguments)
    return max(crd.main(["--out", "crds", *flags]), reference.main(["--out", "docs/reference", *flags]))


if __name__ == "__main__":
    sys.exit(main())

"""Growing numpy arrays: decisions read whole columns at once, nodes come one at a time."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints8 = NDArray[np.int8]
Ints32 = NDArray[np.int32]
Ints64 = NDArray[np.int64]

S = TypeVar("S", bound=np.generic)


def grown(array: NDArray[S], size: int, fill: Any) -> NDArray[S]:
    """``array``, or a longer copy with room for ``size`` elements whose new ones are ``fill``."""
    if size <= len(array):
        return array
    bigger = np.full(max(size, 2 * len(array), 16), fill, dtype=array.dtype)
    bigger[: len(array)] = array
    return bigger

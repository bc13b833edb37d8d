"""Bounds for ``sys.setrecursionlimit``."""

import functools
import sys

MAXIMUM = 50_000
"""Frames. A program that fills this many and fails is reported within a second; with a million, which many
programs ask for and few use, it would take the better part of a minute."""
MINIMUM = 200
"""Frames. Fewer would not be enough for the code that reports how a cell ended."""

_set = sys.setrecursionlimit


@functools.wraps(_set)
def _set_bounded(limit: int, /) -> None:
    _set(limit if limit < 1 else min(max(limit, MINIMUM), MAXIMUM))


def install() -> None:
    """Replace the function; limits out of bounds are brought within them without complaint."""
    sys.setrecursionlimit = _set_bounded

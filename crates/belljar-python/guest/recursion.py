"""Bounds for ``sys.setrecursionlimit``."""

import functools
import sys

MAXIMUM = 50_000
"""In frames. A program that fails after this many is reported within a second; with a million, which many
programs request and few use, it would take almost a minute."""
MINIMUM = 200
"""In frames. The code that reports a cell's outcome needs as many."""

_set = sys.setrecursionlimit


@functools.wraps(_set)
def _set_bounded(limit: int, /) -> None:
    _set(limit if limit < 1 else min(max(limit, MINIMUM), MAXIMUM))


def install() -> None:
    """Replaces the function; limits out of bounds are silently clamped."""
    sys.setrecursionlimit = _set_bounded

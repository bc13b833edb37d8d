"""An upper bound for ``sys.setrecursionlimit``."""

import functools
import sys

MAXIMUM = 50_000
"""Frames. A program that fills this many and fails is reported within a second or so; with a million, which
many programs ask for without using, it would take the better part of a minute."""

_set = sys.setrecursionlimit


@functools.wraps(_set)
def _set_bounded(limit: int, /) -> None:
    _set(min(limit, MAXIMUM))


def install() -> None:
    """Replace the function; larger limits are lowered without complaint."""
    sys.setrecursionlimit = _set_bounded


class Room:
    """Room for our own frames while it is entered, whatever limit the program has set."""

    MINIMUM = 500

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        if self._limit < self.MINIMUM:
            _set(self.MINIMUM)

    def __exit__(self, *error: object) -> None:
        if self._limit < self.MINIMUM:
            _set(self._limit)

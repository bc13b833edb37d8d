"""Garbage collection in copies of an image.

A collection writes to the header of every object it visits, so that a copy would soon own private copies of most of the
image's pages. Frozen objects are not visited. However, the incremental collector of CPython 3.14 does not follow their
references either: a program's global variables, which the frozen ``__main__`` refers to, look unreachable at first, and
are traversed completely every few thousand allocations. Therefore the image's objects are frozen only until the first
collection, which small programs do not reach.
"""

import gc
from contextlib import suppress

_armed = False
"""Whether the image's objects are frozen and no collection has started since."""


def pause() -> None:
    """Disables collections until `freeze`: imports leave little garbage, and one collection at the end is enough."""
    gc.disable()


def freeze() -> None:
    """Excludes all existing objects from collections, until a program is large enough for a collection."""
    global _armed
    _disarm()
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.callbacks.append(_thaw)
    _armed = True


def collect_at_end() -> None:
    """Collects the program's garbage.

    Before the first collection all objects of the program are in the young generation. Collecting that one alone
    leaves the free lists as they are: a full collection returns them to the heap, which writes to many pages.
    """
    generation = 0 if _armed else 2
    _disarm()
    gc.collect(generation)


def _thaw(phase: str, info: dict[str, int]) -> None:
    """Unfreezes the objects. The collector calls this when a collection starts."""
    del phase, info
    _disarm()
    gc.unfreeze()


def _disarm() -> None:
    global _armed
    _armed = False
    # User code may have changed the list.
    with suppress(Exception):
        gc.callbacks.remove(_thaw)

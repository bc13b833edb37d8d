"""The garbage collector's part in copying images.

A collection writes to the header of every object it visits, so that a copy would soon have most of the image's pages
for itself. Frozen objects are not visited. But the incremental collector of CPython 3.14 does not look behind them
either: what a program keeps in its global variables, behind the frozen ``__main__``, looks unreachable at first, and is
traversed whole every few thousand allocations. So the image's objects are frozen until the first collection, which a
small program never sees.
"""

import gc
from contextlib import suppress


def pause() -> None:
    """No collections until `freeze`: modules that are being imported leave little behind, and one is enough for it."""
    gc.disable()


def freeze() -> None:
    """Keep the collector off all that is there now, until a program is large enough to need it."""
    _disarm()
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.callbacks.append(_thaw)


def collect_at_end() -> None:
    """Collect what the program leaves behind."""
    _disarm()
    gc.collect()


def _thaw(phase: str, info: dict[str, int]) -> None:
    """Called by the collector when it begins."""
    del phase, info
    _disarm()
    gc.unfreeze()


def _disarm() -> None:
    # The program may have done anything to the list.
    with suppress(Exception):
        gc.callbacks.remove(_thaw)

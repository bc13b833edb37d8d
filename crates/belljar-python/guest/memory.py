"""Memory kept back, so that running out of it can still be told."""

_SIZE = 1 << 20
"""Bytes: an arena of CPython's allocator, from which its small objects come."""
_ROOM = 8 << 20
"""Bytes that must be free before the reserve is taken again: the program has to be able to let go of things first."""

_kept: bytearray | None = bytearray(_SIZE)


def keep() -> None:
    """Take the reserve back, if it was given up and there is room again."""
    global _kept
    if _kept is None:
        try:
            bytearray(_ROOM)
            _kept = bytearray(_SIZE)
        except MemoryError:
            return


def give_up() -> None:
    """Free the reserve for those who report a MemoryError."""
    global _kept
    _kept = None

"""Memory kept back, so that running out of it can still be told."""

_SIZE = 1 << 20
"""Bytes: an arena of CPython's allocator, from which its small objects come."""

_kept: bytearray | None = None


def keep() -> None:
    """Take the reserve, if it is not held already and there is so much."""
    global _kept
    if _kept is None:
        try:
            _kept = bytearray(_SIZE)
        except MemoryError:
            return


def give_up() -> None:
    """Free the reserve for those who report a MemoryError."""
    global _kept
    _kept = None

"""A memory reserve, so that running out of memory can be reported."""

_SIZE = 1 << 20
"""The size in bytes: one arena of CPython's allocator, which provides its small objects."""
_MIN_FREE = 8 << 20
"""The free memory, in bytes, that is required to restore the reserve: the program must have freed some first."""

_reserved: bytearray | None = bytearray(_SIZE)


def reserve() -> None:
    """Restores the reserve if it was released and enough memory is free again."""
    global _reserved
    if _reserved is None:
        try:
            bytearray(_MIN_FREE)
            _reserved = bytearray(_SIZE)
        except MemoryError:
            return


def release() -> None:
    """Frees the reserve, for code that reports a MemoryError."""
    global _reserved
    _reserved = None

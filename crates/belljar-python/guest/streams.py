"""Standard streams that stay usable whatever a cell does to them."""

import io
import sys
from typing import Self, TextIO


class Guard:
    """Wraps every call: afterwards ``sys.stdin``, ``stdout`` and ``stderr`` are flushed, open and Python's own."""

    def __init__(self) -> None:
        self.leaves_streams = False
        """True if the cell waits: it may have replaced the streams, and goes on with its own. See `flush`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.leaves_streams:
            return
        for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
            current, original = getattr(sys, name, None), getattr(sys, f"__{name}__", None)
            if descriptor:
                _flush(current)
            if not _is_open(original):
                original = _reopened(descriptor)
                setattr(sys, f"__{name}__", original)
            if current is not original:
                setattr(sys, name, original)
                _flush(original)


def flush() -> None:
    """Flushes the streams of a cell that waits. Raises an interrupt that arrives meanwhile."""
    for name in ("stdout", "stderr"):
        _flush(getattr(sys, name, None), KeyboardInterrupt)


def _is_open(stream: object) -> bool:
    try:
        return not stream.closed  # type: ignore[attr-defined]
    except Exception:
        return False  # The stream is missing, or detached from its buffer.


def _flush(stream: object, *raised: type[BaseException]) -> None:
    # The stream may be the user's own, or closed; output that is lost then, and exceptions, do not matter here.
    try:
        stream.flush()  # type: ignore[attr-defined]
    except raised:
        raise
    except BaseException:
        return


def _reopened(descriptor: int) -> TextIO:
    """Opens a stream as CPython does at start: output is not buffered, so that it is delivered at once."""
    raw = io.FileIO(descriptor, "rb" if descriptor == 0 else "wb", closefd=False)
    if descriptor == 0:
        return io.TextIOWrapper(io.BufferedReader(raw), "utf-8", "surrogateescape")
    errors = "surrogateescape" if descriptor == 1 else "backslashreplace"
    return io.TextIOWrapper(raw, "utf-8", errors, newline="\n", write_through=True)  # type: ignore[arg-type]

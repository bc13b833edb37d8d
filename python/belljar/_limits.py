"""The limits of sandboxes."""

from __future__ import annotations

from typing import TypedDict, Union

Size = Union[int, str]
"""A number of bytes, or a text such as ``"512MB"``."""


class Limits(TypedDict, total=False):
    """The limits of a piece of code. Each has a default."""

    timeout: float
    """Seconds; no limit by default. Time that functions of the host take does not count."""
    cpu: float
    """Seconds of processor time; no limit by default."""
    memory: Size
    """Memory of the interpreter, 2 GB by default. More raises MemoryError in the code."""
    output: Size
    """Output, 64 MB by default."""
    disk: Size
    """The files that the code makes, 512 MB by default, including large values while they cross."""
    files: int
    """The number of files and directories that the code makes, 100,000 by default."""
    value: Size
    """The value of the code, 256 MB by default."""
    calls: int
    """The number of calls of functions of the host; no limit by default."""

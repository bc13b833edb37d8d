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
    tool_calls: int
    """The number of calls of tools of MCP servers, 100 by default."""
    tool_concurrency: int
    """The number of such calls at the same time, 8 by default. Further ones wait."""
    tool_timeout: float
    """The seconds of one such call, 60 by default."""
    tool_wait: float
    """The seconds for which code may wait for such calls, approval included; 600 by default."""
    tool_result: Size
    """The result of one such call, 8 MB by default."""
    tool_results: Size
    """The results of all such calls of a run, 64 MB by default."""
    net_connections: int
    """The number of connections of a run or session at the same time, 256 by default."""
    net_bytes: Size
    """The bytes that a run sends, and that it receives, 1 GB each by default."""
    net_idle: float
    """The seconds of a connection without data, 300 by default."""
    net_lifetime: float
    """The seconds of one connection, 6 hours by default."""
    net_time: float
    """The seconds of all connections of a run, from the beginning of the first; a day by default."""
    net_lookups: int
    """The number of look-ups of names by a run, 1,000 by default."""

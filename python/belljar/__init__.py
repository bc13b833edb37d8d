"""Runs the Python that language models write: real CPython, sealed in WebAssembly, in this process.

>>> from belljar import Sandbox
>>> with Sandbox() as box:
...     box.run("x * 7", globals={"x": 6}).value
42

The documentation is in https://github.com/belljar/belljar/blob/main/docs/python.md.
"""

from ._asyncio import AsyncSandbox, AsyncSession, AsyncSessionFiles
from ._compat import CodeSandbox, JsonData, RunError, RunSuccess, code_sandbox
from ._errors import (
    ArgumentError,
    ArgumentTypeError,
    BelljarError,
    CancelledRunError,
    CodeError,
    CrashError,
    DumpError,
    ExitError,
    FileError,
    FileMissingError,
    ForkError,
    InstallError,
    LimitError,
    RunFailedError,
    SandboxError,
)
from ._options import Limits
from ._run import Call, ErrorInfo, FileInfo, Image, Run, Stats
from ._sandbox import Sandbox, Session, SessionFiles
from ._tools import Tool, tool

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AsyncSandbox",
    "AsyncSession",
    "AsyncSessionFiles",
    "BelljarError",
    "Call",
    "CancelledRunError",
    "CodeError",
    "CodeSandbox",
    "CrashError",
    "DumpError",
    "ErrorInfo",
    "ExitError",
    "FileError",
    "FileInfo",
    "FileMissingError",
    "ForkError",
    "Image",
    "InstallError",
    "JsonData",
    "LimitError",
    "Limits",
    "Run",
    "RunError",
    "RunFailedError",
    "RunSuccess",
    "Sandbox",
    "SandboxError",
    "Session",
    "SessionFiles",
    "Stats",
    "Tool",
    "code_sandbox",
    "tool",
]

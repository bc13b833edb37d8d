"""Runs the Python that language models write: real CPython, sealed in WebAssembly, in this process.

>>> from belljar import Sandbox
>>> with Sandbox() as box:
...     box.run("x * 7", globals={"x": 6}).value
42

The documentation is in https://github.com/belljar/belljar/blob/main/docs/python.md.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from ._asyncio import AsyncRun, AsyncSandbox, AsyncSession, AsyncSessionFiles
    from ._compat import CodeSandbox, JsonData, RunError, RunSuccess, code_sandbox
    from ._connect import connect, connect_async
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
        ServerError,
        UnsupportedError,
    )
    from ._limits import Limits
    from ._mcp import ApprovalRequest, McpServer
    from ._run import Call, Connection, ErrorInfo, FileInfo, Image, Run, Stats
    from ._sandbox import Sandbox, Session, SessionFiles
    from ._tools import Tool, tool

# Loaded when they are first used: importing asyncio takes longer than a run.
_MODULES = {
    "_asyncio": ("AsyncRun", "AsyncSandbox", "AsyncSession", "AsyncSessionFiles"),
    "_compat": ("CodeSandbox", "JsonData", "RunError", "RunSuccess", "code_sandbox"),
    "_connect": ("connect", "connect_async"),
    "_errors": (
        "ArgumentError",
        "ArgumentTypeError",
        "BelljarError",
        "CancelledRunError",
        "CodeError",
        "CrashError",
        "DumpError",
        "ExitError",
        "FileError",
        "FileMissingError",
        "ForkError",
        "InstallError",
        "LimitError",
        "RunFailedError",
        "SandboxError",
        "ServerError",
        "UnsupportedError",
    ),
    "_limits": ("Limits",),
    "_mcp": ("ApprovalRequest", "McpServer"),
    "_run": ("Call", "Connection", "ErrorInfo", "FileInfo", "Image", "Run", "Stats"),
    "_sandbox": ("Sandbox", "Session", "SessionFiles"),
    "_tools": ("Tool", "tool"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "ApprovalRequest",
    "ArgumentError",
    "ArgumentTypeError",
    "AsyncRun",
    "AsyncSandbox",
    "AsyncSession",
    "AsyncSessionFiles",
    "BelljarError",
    "Call",
    "Connection",
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
    "McpServer",
    "Run",
    "RunError",
    "RunFailedError",
    "RunSuccess",
    "Sandbox",
    "SandboxError",
    "ServerError",
    "Session",
    "SessionFiles",
    "Stats",
    "Tool",
    "UnsupportedError",
    "code_sandbox",
    "connect",
    "connect_async",
    "tool",
]

"""Sandboxes with the settings of another one and further functions."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, TypeVar

from ._base import BaseSandbox, BaseSession
from ._errors import ArgumentError, ArgumentTypeError, UnsupportedError
from ._tools import Tool

SessionType = TypeVar("SessionType", bound=BaseSession)
SandboxType = TypeVar("SandboxType", bound=BaseSandbox[Any])


def choose(kind: type[SandboxType], sandbox: SandboxType | None, options: dict[str, Any]) -> SandboxType:
    """Returns the sandbox of the caller, or a new one with options. Its code cannot pause."""
    if sandbox is not None and not isinstance(sandbox, kind):
        raise ArgumentTypeError(f"sandbox: {kind.__name__} is needed, not {type(sandbox).__name__}")
    if sandbox is not None and options:
        raise ArgumentError(f"{', '.join(options)}: a sandbox that is passed has its own options")
    chosen = kind(**options) if sandbox is None else sandbox
    refuse_pauses(chosen)
    return chosen


def refuse_pauses(sandbox: BaseSandbox[Any]) -> None:
    """Raises `ArgumentError` if the code of a sandbox can pause: its caller would have to answer."""
    if sandbox._options.pauses_for_approval:
        raise ArgumentError("approve: 'pause' is not supported here; pass a function")
    if deferred := [tool.name for tool in sandbox._options.tools.values() if tool.deferred]:
        raise ArgumentError(f"tools: {deferred[0]!r} is deferred, which is not supported here")


def with_tools(sandbox: SandboxType, tools: Iterable[Tool]) -> SandboxType:
    """Returns a sandbox with the settings and connections of another one, and functions in addition to its own.

    Its sessions are to be closed, but not the sandbox itself: that would close the connections of the other one.
    """
    sandbox._check_open()
    functions = dict(sandbox._options.tools)
    for tool in tools:
        if tool.name in functions:
            raise ArgumentError(f"tools: two functions have the name {tool.name!r}")
        functions[tool.name] = tool
    if len(functions) > len(sandbox._options.tools) and sandbox._options.remote_runtime is not None:
        raise UnsupportedError("tools: a server cannot call functions of its client; use a sandbox in this process")
    options = copy.copy(sandbox._options)
    options.tools = functions
    return type(sandbox)._with_options(options)


def session_with_tools(session: SessionType, tools: Iterable[Tool]) -> SessionType:
    """Returns the same session with functions in addition to those of its sandbox."""
    view = type(session)(with_tools(session._sandbox, tools), session._native)
    view._modules = session._modules
    return view

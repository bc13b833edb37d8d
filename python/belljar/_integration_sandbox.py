"""The sandbox of an integration: that of the caller or a new one, and views of it with further functions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ._base import BaseSandbox, BaseSession
from ._errors import ArgumentError, ArgumentTypeError, UnsupportedError
from ._sandbox import Sandbox
from ._tools import collect

if TYPE_CHECKING:
    from ._options import Options
    from ._tools import Tool

    AnySandbox = BaseSandbox[Any]

SessionType = TypeVar("SessionType", bound=BaseSession)
SandboxType = TypeVar("SandboxType", bound=BaseSandbox[Any])


def choose(kind: type[SandboxType], sandbox: SandboxType | None, options: dict[str, Any]) -> SandboxType:
    """Returns the sandbox of the caller, or a new one with options. Its code cannot pause."""
    if sandbox is None:
        sandbox = kind(**options)
    elif not isinstance(sandbox, kind):
        raise ArgumentTypeError(f"sandbox: {kind.__name__} is needed, not {type(sandbox).__name__}")
    else:
        refuse_options(options, "sandbox")
    refuse_pauses(sandbox._options)
    return sandbox


def choose_any(sandbox: object, options: dict[str, Any]) -> AnySandbox:
    """Returns the sandbox of the caller, sync or async, or a new one with options. Its code cannot pause."""
    given = Sandbox(**options) if sandbox is None else any_sandbox(sandbox)
    if sandbox is not None:
        refuse_options(options, "sandbox")
    refuse_pauses(given._options)
    return given


def choose_session(
    kind: type[BaseSandbox[Any]], sandbox: object, options: dict[str, Any]
) -> tuple[AnySandbox | None, BaseSession, bool]:
    """Returns a session: that of the caller, or one of the caller's sandbox or of a new one.

    The result is a sandbox to be closed with its session, the session, and whether it is to be closed.
    """
    if isinstance(sandbox, kind._session_type):
        refuse_options(options, "session")
        refuse_pauses(sandbox._sandbox._options)
        return None, sandbox, False
    if sandbox is not None and not isinstance(sandbox, kind):
        raise ArgumentTypeError(f"sandbox: {kind.__name__} or a session is needed, not {type(sandbox).__name__}")
    chosen = choose(kind, sandbox, options)
    return (chosen if sandbox is None else None), chosen.session(), True


def any_sandbox(sandbox: object) -> AnySandbox:
    """Returns a sandbox of the caller, sync or async. Raises `ArgumentTypeError` for other objects."""
    if not isinstance(sandbox, BaseSandbox):
        raise ArgumentTypeError(f"sandbox: a Sandbox or AsyncSandbox is needed, not {type(sandbox).__name__}")
    return sandbox


def refuse_options(options: Collection[str], passed: str) -> None:
    """Raises `ArgumentError` if there are options for a new sandbox where the caller has passed one."""
    if options:
        raise ArgumentError(f"{', '.join(options)}: a {passed} that is passed has its own options")


def refuse_pauses(options: Options) -> None:
    """Raises `ArgumentError` if the code of a sandbox can pause: its caller would have to answer."""
    if options.pauses_for_approval:
        raise ArgumentError("approve: 'pause' is not supported here; pass a function")
    if deferred := [tool.name for tool in options.tools.values() if tool.deferred]:
        raise ArgumentError(f"tools: {deferred[0]!r} is deferred, which is not supported here")


def options_with_tools(options: Options, tools: Iterable[Tool | Callable[..., Any]]) -> Options:
    """Returns options with further functions that code can call, for the same runtime."""
    added, servers = collect(tools)
    if servers:
        raise ArgumentError("tools: pass MCP servers to the sandbox")
    if added and options.remote_runtime is not None:
        raise UnsupportedError(
            "tools: a server cannot call functions of this process; a sandbox in this process can, and so can a server"
            " whose option --servers names an MCP server with these functions"
        )
    for name in added:
        if name in options.tools:
            raise ArgumentError(f"tools: two functions have the name {name!r}")
    changed = copy.copy(options)
    changed.tools = {**options.tools, **added}
    return changed


def with_tools(sandbox: SandboxType, tools: Iterable[Tool]) -> SandboxType:
    """Returns a sandbox with the settings and connections of another one, and functions in addition to its own.

    Its sessions are to be closed, but not the sandbox itself: that would close the connections of the other one.
    """
    sandbox._check_open()
    return type(sandbox)._with_options(options_with_tools(sandbox._options, tools))


def session_with_tools(session: SessionType, tools: Iterable[Tool]) -> SessionType:
    """Returns the same session with functions in addition to those of its sandbox."""
    sandbox = with_tools(session._sandbox, tools)
    return session_view(session, sandbox, type(session))


def session_view(session: BaseSession, sandbox: AnySandbox, kind: type[SessionType]) -> SessionType:
    """Returns the same session with the options of another sandbox, which may be sync or async."""
    view = kind(sandbox, session._native)
    view._modules = session._modules
    return view

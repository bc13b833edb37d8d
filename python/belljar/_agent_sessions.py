"""The sessions of a tool of agents: one for each conversation, for sync and async callers."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._asyncio import AsyncSandbox, AsyncSession
from ._base import BaseSandbox, BaseSession
from ._errors import ArgumentError, ArgumentTypeError, SandboxError, UnsupportedError
from ._jobs import native_call, wait
from ._sandbox import Sandbox, Session
from ._tools import collect

if TYPE_CHECKING:
    from ._options import Options
    from ._run import Run
    from ._tools import Tool

    AnySandbox = BaseSandbox[Any]


def sandbox_of(sandbox: object, options: dict[str, Any]) -> tuple[AnySandbox, bool]:
    """Returns the sandbox of the caller, or one with these options, and whether it is new."""
    if sandbox is None:
        return Sandbox(**options), True
    if not isinstance(sandbox, BaseSandbox):
        raise ArgumentTypeError(f"sandbox: a Sandbox or AsyncSandbox is needed, not {type(sandbox).__name__}")
    if options:
        raise ArgumentError(f"{next(iter(options))}: a sandbox that is passed has its own options")
    return sandbox, False


def with_tools(options: Options, tools: Iterable[Tool | Callable[..., Any]]) -> Options:
    """Returns options with further functions that code can call, for the same runtime."""
    added, servers = collect(tools)
    if servers:
        raise ArgumentError("tools: pass MCP servers to the Sandbox")
    if not added:
        return options
    if options.remote_runtime is not None:
        raise UnsupportedError(
            "tools: a server cannot call functions of this process; its option --servers names MCP servers with tools"
        )
    for name in added:
        if name in options.tools:
            raise ArgumentError(f"tools: two functions have the name {name!r}")
    changed = copy.copy(options)
    changed.tools = {**options.tools, **added}
    return changed


class AgentSession:
    """A session that sync and async callers can use."""

    def __init__(self, sandbox: AnySandbox, options: Options | None = None) -> None:
        """Creates a session of a sandbox. ``options`` replace those of the sandbox; their runtime must be the same."""
        self._owned: BaseSession = sandbox.session()
        self.set_options(options if options is not None else sandbox._options)

    def set_options(self, options: Options) -> None:
        """Replaces the options of further calls."""
        native = self._owned._native
        self.sync = Session(Sandbox._with_options(options), native)
        """The session for sync callers."""
        self.asynchronous = AsyncSession(AsyncSandbox._with_options(options), native)
        """The session for async callers."""
        modules = self._owned._modules
        self.sync._modules = self.asynchronous._modules = modules

    def close(self) -> None:
        """Ends the session."""
        self._owned._remove()
        wait(native_call(self._owned._native.close, None))

    async def aclose(self) -> None:
        """Ends the session."""
        self._owned._remove()
        await self.asynchronous.close()


class AgentSessions:
    """Sessions by key. Beyond a number of sessions, the one that was not used for the longest time is closed."""

    def __init__(
        self,
        sandbox: object,
        tools: Iterable[Tool | Callable[..., Any]],
        max_sessions: int,
        options: dict[str, Any],
    ) -> None:
        """Creates sessions of a sandbox of the caller, or of a new one with these options."""
        if max_sessions < 1:
            raise ArgumentError(f"max_sessions: {max_sessions!r} is not a positive number")
        self.sandbox, self._is_own = sandbox_of(sandbox, options)
        self.options = with_tools(self.sandbox._options, tools)
        self._max = max_sessions
        self._lock = threading.Lock()
        self._sessions: OrderedDict[Hashable, tuple[AgentSession, list[None]]] = OrderedDict()
        self._is_closed = False

    def stubs(self) -> str:
        """Returns the functions that code can call as Python stubs."""
        return "\n\n".join(tool.stub() for tool in self.options.tools.values())

    def run(self, key: Hashable, code: str, timeout: float | None) -> Run:
        """Runs a cell in the session with this key, or in a new interpreter without a key."""
        with self._borrowed(key) as (session, unused):
            try:
                return session.sync.run(code, timeout=timeout)
            finally:
                for each in unused():
                    each.close()

    async def arun(self, key: Hashable, code: str, timeout: float | None) -> Run:
        """Runs a cell in the session with this key, or in a new interpreter without a key."""
        with self._borrowed(key) as (session, unused):
            try:
                return await session.asynchronous.run(code, timeout=timeout)
            finally:
                for each in unused():
                    await each.aclose()

    def session(self, key: Hashable) -> AgentSession:
        """Returns the session with this key, such as for its files."""
        with self._borrowed(key) as (session, unused):
            for each in unused():
                each.close()
            return session

    @contextmanager
    def _borrowed(self, key: Hashable) -> Iterator[tuple[AgentSession, Callable[[], list[AgentSession]]]]:
        """Yields the session with this key, and a function that returns the sessions that the caller has to close."""
        with self._lock:
            if self._is_closed:
                raise SandboxError("the tool is closed")
            if key is None:
                session, users = AgentSession(self.sandbox, self.options), [None]
            else:
                if key not in self._sessions:
                    self._sessions[key] = AgentSession(self.sandbox, self.options), []
                self._sessions.move_to_end(key)
                session, users = self._sessions[key]
                users.append(None)

        def unused() -> list[AgentSession]:
            with self._lock:
                users.pop()
                if key is None:
                    return [session]
                return self._take_unused()

        yield session, unused

    def _take_unused(self) -> list[AgentSession]:
        """Removes the sessions beyond the limit that no call uses."""
        taken = []
        for key in list(self._sessions):
            if len(self._sessions) <= self._max:
                break
            session, users = self._sessions[key]
            if not users:
                del self._sessions[key]
                taken.append(session)
        return taken

    def _take(self, key: Hashable) -> list[AgentSession]:
        with self._lock:
            taken = self._sessions.pop(key, None)
        return [taken[0]] if taken is not None else []

    def _take_all(self) -> list[AgentSession]:
        with self._lock:
            self._is_closed = True
            sessions = [session for session, _ in self._sessions.values()]
            self._sessions.clear()
        return sessions

    def reset(self, key: Hashable) -> None:
        """Ends the session with this key. The next call with it creates another one."""
        for session in self._take(key):
            session.close()

    async def areset(self, key: Hashable) -> None:
        """Ends the session with this key. The next call with it creates another one."""
        for session in self._take(key):
            await session.aclose()

    def close(self) -> None:
        """Ends all sessions."""
        for session in self._take_all():
            session.close()
        if self._is_own:
            self.sandbox.close()  # type: ignore[attr-defined]

    async def aclose(self) -> None:
        """Ends all sessions."""
        for session in self._take_all():
            await session.aclose()
        if self._is_own:
            await asyncio.to_thread(self.sandbox.close)  # type: ignore[attr-defined]

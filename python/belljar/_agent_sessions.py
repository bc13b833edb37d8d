"""The sessions of a tool of agents: one for each conversation, for sync and async callers."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._asyncio import AsyncSandbox, AsyncSession
from ._errors import ArgumentError, SandboxError
from ._integration_sandbox import choose_any, options_with_tools, refuse_pauses, session_view
from ._sandbox import Sandbox, Session

if TYPE_CHECKING:
    from ._base import BaseSession
    from ._integration_sandbox import AnySandbox
    from ._options import Options
    from ._run import Run
    from ._tools import Tool


class AgentSession:
    """A session that sync and async callers can use."""

    def __init__(self, sandbox: AnySandbox, options: Options | None = None) -> None:
        """Creates a session of a sandbox. ``options`` replace those of the sandbox; their runtime must be the same."""
        self._owned: BaseSession = sandbox.session()
        self.set_options(options if options is not None else sandbox._options)

    def set_options(self, options: Options) -> None:
        """Replaces the options of further calls."""
        self.sync = session_view(self._owned, Sandbox._with_options(options), Session)
        """The session for sync callers."""
        self.asynchronous = session_view(self._owned, AsyncSandbox._with_options(options), AsyncSession)
        """The session for async callers."""

    def close(self) -> None:
        """Ends the session."""
        self._owned._close()

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
        self.sandbox = choose_any(sandbox, options)
        self._is_own = sandbox is None
        self.options = options_with_tools(self.sandbox._options, tools)
        refuse_pauses(self.options)
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

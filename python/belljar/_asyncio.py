"""Sandboxes and sessions for asynchronous code. Cancelling a call stops its code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from . import _native, _options
from ._calls import Callbacks, Write
from ._errors import ArgumentTypeError, SandboxError, from_native
from ._options import Limits, Options
from ._run import FileInfo, Run
from ._sandbox import contents_of, native_call, start, to_run
from ._tools import Tool


class AsyncSandbox:
    """The same as `Sandbox`, for asyncio. Async tools run on the event loop that awaits the code."""

    def __init__(
        self,
        packages: Iterable[str] = (),
        *,
        limits: Limits | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        install: bool = True,
        index_url: str | None = None,
        find_links: Iterable[str | os.PathLike[str]] = (),
        offline: bool = False,
        cache: str | os.PathLike[str] | None = None,
        network: object = None,
    ) -> None:
        """Creates a sandbox. The arguments are those of `Sandbox`."""
        self._options = Options(packages, limits, tools, install, index_url, find_links, offline, cache, network)
        self._sessions: list[AsyncSession] = []
        self._is_closed = False

    async def run(
        self,
        code: str,
        *,
        globals: Mapping[str, Any] | None = None,
        packages: Iterable[str] = (),
        timeout: float | None = None,
        on_stdout: Write | None = None,
        on_stderr: Write | None = None,
    ) -> Run:
        """Runs code in a new interpreter, which nothing survives. The arguments are those of `Sandbox.run`.

        ``on_stdout`` and ``on_stderr`` are called on the thread that runs the code.
        """
        self._check_open()
        text, buffers, _ = _options.request(code, globals, timeout, packages, self._options.tools)
        return await self._execute(self._options.runtime.run, text, buffers, on_stdout, on_stderr)

    def session(self) -> AsyncSession:
        """Creates a session: an IPython that keeps its variables and files. Its first call starts it."""
        self._check_open()
        return self._add(self._options.runtime.session())

    def load(self, dump: bytes) -> AsyncSession:
        """Creates a session that continues from the bytes of a dump."""
        self._check_open()
        if not isinstance(dump, (bytes, bytearray, memoryview)):
            raise ArgumentTypeError(f"dump: bytes are needed, not {type(dump).__name__}")
        try:
            native = self._options.runtime.load(bytes(dump))
        except _native.NativeError as error:
            raise from_native(error) from None
        return self._add(native)

    async def close(self) -> None:
        """Ends the sandbox's sessions."""
        self._is_closed = True
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            await session.close()

    async def __aenter__(self) -> AsyncSandbox:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _execute(
        self,
        function: Callable[..., _native.Job],
        text: str,
        buffers: list[bytes],
        on_stdout: Write | None,
        on_stderr: Write | None,
    ) -> Run:
        options, callbacks = self._options, None
        streams = on_stdout is not None or on_stderr is not None
        if options.tools or streams:
            loop = asyncio.get_running_loop()
            callbacks = Callbacks(options.tools, loop, on_stdout, on_stderr, options.max_calls)
        try:
            job = await _wait(lambda on_end: start(callbacks, function, text, buffers, streams, on_end))
        finally:
            if callbacks is not None:
                callbacks.end()
        return to_run(job.result, callbacks)

    def _add(self, native: _native.Session) -> AsyncSession:
        session = AsyncSession(self, native)
        self._sessions.append(session)
        return session

    def _check_open(self) -> None:
        if self._is_closed:
            raise SandboxError("the sandbox is closed")


class AsyncSession:
    """The same as `Session`, for asyncio."""

    def __init__(self, sandbox: AsyncSandbox, native: _native.Session) -> None:
        self._sandbox = sandbox
        self._native = native
        self._modules: set[str] = set()
        self.files = AsyncSessionFiles(native)
        """The session's files."""

    async def run(
        self,
        code: str,
        *,
        globals: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_stdout: Write | None = None,
        on_stderr: Write | None = None,
    ) -> Run:
        """Runs a cell. The arguments are those of `AsyncSandbox.run`."""
        text, buffers, needed = _options.request(code, globals, timeout, (), self._sandbox._options.tools)
        for name in sorted(needed - self._modules):
            imported, _, _ = _options.request(f"import {name} as _", None, None, (), {})
            await self._sandbox._execute(self._native.execute, imported, [], None, None)
            self._modules.add(name)
        return await self._sandbox._execute(self._native.execute, text, buffers, on_stdout, on_stderr)

    async def fork(self) -> AsyncSession:
        """Creates a session with the same variables and files. From then on they are independent."""
        return self._sandbox._add(await _result(self._native.fork))

    async def dump(self) -> bytes:
        """Returns the variables and files as bytes, with which `AsyncSandbox.load` continues the session."""
        dump: bytes = await _result(self._native.dump)
        return dump

    async def restart(self) -> None:
        """Replaces the interpreter by a new one. The files stay."""
        self._modules.clear()
        await _result(self._native.restart)

    async def close(self) -> None:
        """Ends the session and frees its memory."""
        if self in self._sandbox._sessions:
            self._sandbox._sessions.remove(self)
        await _result(self._native.close)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class AsyncSessionFiles:
    """The files in a session's working directory."""

    def __init__(self, native: _native.Session) -> None:
        self._native = native

    async def list(self) -> list[FileInfo]:
        """Returns the files, without hidden ones."""
        return [FileInfo(path, size) for path, size in await _result(self._native.list_files)]

    async def read(self, path: str) -> bytes:
        """Returns the contents of a file."""
        contents: bytes = await _result(self._native.read_file, path)
        return contents

    async def write(self, path: str, contents: bytes | bytearray | memoryview) -> None:
        """Writes a file, replacing its contents."""
        await _result(self._native.write_file, path, contents_of(contents))


async def _wait(begin: Callable[[Callable[[], object]], _native.Job]) -> _native.Job:
    """Starts a job and waits for its end. If the caller is cancelled, the job is, and its end is awaited."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    job = begin(lambda: loop.call_soon_threadsafe(end))
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        job.cancel()
        # The code ends soon, and until then its output and calls may arrive.
        while not ended.done():
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError:
                continue
        raise
    return job


async def _result(function: Callable[..., _native.Job], *arguments: Any) -> Any:
    job = await _wait(lambda on_end: native_call(function, *arguments, on_end))
    try:
        return job.result()
    except _native.NativeError as error:
        raise from_native(error) from None

"""Sandboxes and sessions for asynchronous code. Cancelling a call stops its code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _native
from ._arguments import name_of_new_file, path as to_text
from ._base import BaseSandbox, BaseSession
from ._errors import from_native
from ._jobs import begin_job, contents_of, native_call, start, to_run
from ._options import request
from ._run import FileInfo, Run

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from ._calls import Callbacks, Write
    from ._options import Network


class AsyncSessionFiles:
    """The files in a session's working directory."""

    def __init__(self, native: _native.Session) -> None:
        self._native = native

    async def list(self) -> list[FileInfo]:
        """Returns the files, without hidden ones."""
        return [FileInfo(path, size) for path, size in await _result(self._native.list_files)]

    async def read(self, path: str | os.PathLike[str]) -> bytes:
        """Returns the contents of a file."""
        contents: bytes = await _result(self._native.read_file, to_text(path, "path"))
        return contents

    async def write(self, path: str | os.PathLike[str], contents: bytes | bytearray | memoryview) -> None:
        """Writes a file into the session's directory, replacing its contents."""
        await _result(self._native.write_file, name_of_new_file(path), contents_of(contents))


class AsyncRun(Run):
    """The same as `Run`, for asyncio."""

    async def resume(  # type: ignore[override]
        self, answers: Mapping[int, Any], *, on_stdout: Write | None = None, on_stderr: Write | None = None
    ) -> AsyncRun:
        """Continues a run with the status ``paused``. The arguments are those of `Run.resume`."""
        paused = self._take_paused()
        callbacks, arguments = paused.begin(self, answers, asyncio.get_running_loop(), on_stdout, on_stderr)
        return await _run_job(
            lambda on_end: begin_job(callbacks, paused.native.resume, *arguments, on_end), callbacks, paused.sandbox
        )

    async def dump(self) -> bytes:  # type: ignore[override]
        """Returns a run with the status ``paused`` as bytes, with which `AsyncSandbox.load` continues it."""
        dump: bytes = await _result(self._take_paused().native.dump)
        return dump


class AsyncSession(BaseSession):
    """The same as `Session`, for asyncio."""

    def __init__(self, sandbox: AsyncSandbox, native: _native.Session) -> None:
        super().__init__(sandbox, native)
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
    ) -> AsyncRun:
        """Runs a cell. The arguments are those of `AsyncSandbox.run`."""
        text, buffers, imports = self._requests(code, globals, timeout)
        for name, imported in imports:
            await self._sandbox._execute(self._native.execute, imported, [], None, None)
            self._modules.add(name)
        run: AsyncRun = await self._sandbox._execute(self._native.execute, text, buffers, on_stdout, on_stderr)
        return run

    async def fork(self) -> AsyncSession:
        """Creates a session with the same variables and files. From then on they are independent."""
        session: AsyncSession = self._sandbox._add(await _result(self._native.fork))
        return session

    async def dump(self) -> bytes:
        """Returns the variables and files as bytes, with which `AsyncSandbox.load` continues the session."""
        dump: bytes = await _result(self._native.dump)
        return dump

    async def paused(self) -> AsyncRun | None:
        """Returns the run of the paused cell, or None: see `Session.paused`."""
        run = self._paused_run(await _result(self._native.paused)) if self._can_pause else None
        assert run is None or isinstance(run, AsyncRun)
        return run

    async def restart(self) -> None:
        """Replaces the interpreter by a new one. The files stay."""
        self._modules.clear()
        await _result(self._native.restart)

    async def close(self) -> None:
        """Ends the session and frees its memory."""
        self._remove()
        await _result(self._native.close)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class AsyncSandbox(BaseSandbox[AsyncSession]):
    """The same as `Sandbox`, for asyncio. Async tools run on the event loop that awaits the code."""

    _session_type = AsyncSession
    _run_type = AsyncRun

    async def run(
        self,
        code: str,
        *,
        globals: Mapping[str, Any] | None = None,
        packages: Iterable[str] = (),
        timeout: float | None = None,
        network: Network | None = None,
        on_stdout: Write | None = None,
        on_stderr: Write | None = None,
    ) -> AsyncRun:
        """Runs code in a new interpreter, which nothing survives. The arguments are those of `Sandbox.run`.

        ``on_stdout`` and ``on_stderr`` are called on the thread that runs the code.
        """
        self._check_open()
        text, buffers, _ = request(code, globals, timeout, packages, self._options, network)
        return await self._execute(self._options.runtime.run, text, buffers, on_stdout, on_stderr)

    def load(self, dump: bytes) -> AsyncSession | AsyncRun:
        """Continues a session or a paused run from bytes: see `Sandbox.load`."""
        loaded = self._load(dump)
        assert isinstance(loaded, (AsyncSession, AsyncRun))
        return loaded

    async def prepare(self, *, sessions: bool = False) -> None:
        """Loads what the first run, or the first session, would otherwise wait for. On a server, it connects."""
        self._check_open()
        self._warn(await _result(self._options.runtime.prepare, sessions, None))

    async def tool_stubs(self) -> str:
        """Returns the tools as Python stubs, for a model that writes the code. Connects to MCP servers for that."""
        if self._options.remote_runtime is not None:
            from ._guest_sources import guest_source

            text: str = (await self.run(guest_source("tool_stubs"))).check().value
            return text
        functions = self._function_stubs()
        if (runtime := self._options.stubs_runtime) is None:
            return functions
        return "\n\n".join(filter(None, [functions, await _result(runtime.stubs)]))

    async def close(self) -> None:
        """Ends the sandbox's sessions, and its connections to servers."""
        for session in self._take_sessions():
            await session.close()
        if (runtime := self._options.connected_runtime) is not None:
            await _result(runtime.close)

    async def __aenter__(self) -> AsyncSandbox:
        self._check_open()
        if (runtime := self._options.remote_runtime) is not None:
            await _result(runtime.prepare, False, None)
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
    ) -> AsyncRun:
        callbacks = self._callbacks(asyncio.get_running_loop(), on_stdout, on_stderr)
        streams = on_stdout is not None or on_stderr is not None
        return await _run_job(
            lambda on_end: start(callbacks, function, text, buffers, streams, on_end), callbacks, self
        )


async def _run_job(
    begin: Callable[[Callable[[], object]], _native.Job], callbacks: Callbacks | None, sandbox: AsyncSandbox
) -> AsyncRun:
    """Starts code and waits for its end."""
    try:
        job = await _wait(begin)
    finally:
        if callbacks is not None:
            callbacks.end()
    run = to_run(job.result, callbacks, sandbox)
    assert isinstance(run, AsyncRun)
    return run


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

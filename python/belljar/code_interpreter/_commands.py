"""`Sandbox.commands` and `AsyncSandbox.commands`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _background
from ._background import AsyncCommandHandle, AsyncCommandInputHandle, CommandHandle
from ._cells import answer_of, seconds_of, texts_by_name
from ._errors import InvalidArgumentException, SandboxException, TimeoutException, UnsupportedException
from ._info import CommandExitException, CommandResult, ProcessInfo
from ._relay import relayed
from .._steps import Steps, T

if TYPE_CHECKING:
    from ._background import Output
    from ._core import Core
    from ._output import Write


def _run(
    core: Core,
    cmd: str,
    envs: dict[str, str] | None,
    cwd: str | None,
    timeout: float | None,
    on_stdout: Write | None,
    on_stderr: Write | None,
    is_retained: bool,
) -> Steps[CommandResult]:
    """Runs a command to its end."""
    _check(cmd)
    arguments = {"line": cmd, "envs": texts_by_name(envs, "envs"), "cwd": cwd}
    # As in E2B, None means no limit.
    run = yield from core.run_call("command", timeout or 0, on_stdout, on_stderr, **arguments)
    try:
        code = answer_of("command", run)
    except UnsupportedException as error:
        raise UnsupportedException(
            f"failed to run {cmd!r}: {error}. Sandboxes of a server with native kernels run all commands"
        ) from None
    if isinstance(code, bool) or not isinstance(code, int):
        raise SandboxException("the interpreter has sent an exit code that cannot be read")
    stdout: Any = run.stdout if is_retained else None
    stderr: Any = run.stderr if is_retained else None
    if code:
        raise CommandExitException(stderr, stdout, code, None)
    return CommandResult(stderr, stdout, code, None)


def _start(
    core: Core,
    cmd: str,
    background: bool | None,
    envs: dict[str, str] | None,
    cwd: str | None,
    stdin: bool | None,
    timeout: float | None,
    is_retained: bool,
) -> Steps[Output]:
    """Starts a command that goes on while other calls of the sandbox are made."""
    _check(cmd)
    yield from _background.require_native(core, "background" if background else "stdin")
    return (yield from _background.start(core, cmd, envs, cwd, bool(stdin), timeout, is_retained))


def _check(cmd: str) -> None:
    if not isinstance(cmd, str):
        raise InvalidArgumentException(f"cmd: a text is needed, not {type(cmd).__name__}")


class Commands:
    """The commands of a sandbox.

    With native kernels all programs run. In WebAssembly there are no processes, and ``python``, ``pip``, ``ls``,
    ``cat``, ``echo`` and ``pwd`` are stood in for, without pipes and redirections; others raise `UnsupportedException`,
    as does all that needs a command in the background.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def _do(self, work: Steps[T]) -> T:
        return self._core.perform(work)

    @overload
    def run(
        self,
        cmd: str,
        background: Literal[False] | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandResult: ...

    @overload
    def run(
        self,
        cmd: str,
        background: Literal[True],
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: None = None,
        on_stderr: None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandHandle: ...

    def run(
        self,
        cmd: str,
        background: bool | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandResult | CommandHandle:
        """Runs a command line, and waits for its end, or returns a handle of it.

        Args:
            cmd: The command line, as for ``sh -c``.
            background: If true, the command goes on after the call. Needs native kernels.
            envs: Environment variables for the command.
            cwd: Its working directory, ``/home/user`` by default.
            on_stdout: Receives its output while it runs, on the thread that runs it. Not in the background.
            on_stderr: The same for standard error.
            stdin: If true, the command has a standard input: see `send_stdin`. Needs native kernels.
            timeout: The most seconds, after which the command is killed; 0 is no limit.
            retain_output: If false, the output of the result is None.

        Raises:
            CommandExitException: The exit code is not 0.
            TimeoutException: It took longer.
        """
        if not background and not stdin:
            return self._do(_run(self._core, cmd, envs, cwd, timeout, on_stdout, on_stderr, retain_output))
        handle = CommandHandle(self._do(_start(self._core, cmd, background, envs, cwd, stdin, timeout, retain_output)))
        return handle if background else handle.wait(on_stdout=on_stdout, on_stderr=on_stderr)

    def list(self, request_timeout: float | None = None) -> list[ProcessInfo]:
        """Returns the commands that run in the background."""
        return self._do(_background.processes(self._core))

    def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """Kills a command in the background with its children. Returns False if there is none."""
        return self._do(_background.kill(self._core, pid))

    def connect(
        self,
        pid: int,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandHandle:
        """Returns a handle of a command in the background, with its output from now on.

        Args:
            timeout: The seconds after which the handle stops to wait; 0 is no limit. The command goes on.

        Raises:
            NotFoundException: There is no such command, or it has ended.
        """
        return CommandHandle(self._do(_background.attach(self._core, pid, timeout, retain_output)))

    def send_stdin(self, pid: int, data: str | bytes, request_timeout: float | None = None) -> None:
        """Writes to the standard input of a command that was started with ``stdin=True``."""
        self._do(_background.send(self._core, pid, data, "send_stdin", request_timeout))

    def close_stdin(self, pid: int, request_timeout: float | None = None) -> None:
        """Closes the standard input of a command."""
        self._do(_background.close_input(self._core, pid, request_timeout))

    def stream_input(self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = 60) -> None:
        """Writes each piece to the standard input of a command. A timeout of 0 or None is no limit."""
        if isinstance(data, (str, bytes)):
            raise InvalidArgumentException("data: an iterable of texts or bytes is needed; `send_stdin` sends one")
        limit = seconds_of(timeout or 0, "timeout")
        end = None if limit is None else time.monotonic() + limit
        for piece in data:
            remaining = None if end is None else end - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimeoutException("stream_input: the `timeout` has passed")
            self._do(_background.send(self._core, pid, piece, "stream_input", remaining))


class AsyncCommands:
    """The same as `Commands`, for asyncio."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @overload
    async def run(
        self,
        cmd: str,
        background: Literal[False] | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandResult: ...

    @overload
    async def run(
        self,
        cmd: str,
        background: Literal[True],
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> AsyncCommandHandle: ...

    async def run(
        self,
        cmd: str,
        background: bool | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandResult | AsyncCommandHandle:
        """Runs a command line: see `Commands.run`. The receivers of output may be async, and also those of a command
        in the background are called.
        """
        core = self._core
        if background or stdin:
            output = await core.perform_async(_start(core, cmd, background, envs, cwd, stdin, timeout, retain_output))
            handle = AsyncCommandHandle(output, on_stdout, on_stderr)
            return handle if background else await handle.wait()

        async def begin(stdout: Write | None, stderr: Write | None) -> CommandResult:
            return await core.perform_async(_run(core, cmd, envs, cwd, timeout, stdout, stderr, retain_output))

        return await relayed(begin, on_stdout, on_stderr)

    async def list(self, request_timeout: float | None = None) -> list[ProcessInfo]:
        """Returns the commands that run in the background."""
        return await self._core.perform_async(_background.processes(self._core))

    async def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """Kills a command in the background with its children. Returns False if there is none."""
        return await self._core.perform_async(_background.kill(self._core, pid))

    async def connect(
        self,
        pid: int,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        *,
        retain_output: bool = True,
    ) -> AsyncCommandHandle:
        """Returns a handle of a command in the background: see `Commands.connect`."""
        output = await self._core.perform_async(_background.attach(self._core, pid, timeout, retain_output))
        return AsyncCommandHandle(output, on_stdout, on_stderr)

    async def send_stdin(self, pid: int, data: str | bytes, request_timeout: float | None = None) -> None:
        """Writes to the standard input of a command that was started with ``stdin=True``."""
        await self._core.perform_async(_background.send(self._core, pid, data, "send_stdin", request_timeout))

    async def close_stdin(self, pid: int, request_timeout: float | None = None) -> None:
        """Closes the standard input of a command."""
        await self._core.perform_async(_background.close_input(self._core, pid, request_timeout))

    def stream_input(self, pid: int, *, timeout: float | None = 60) -> AsyncCommandInputHandle:
        """Returns a handle with which pieces are written to the standard input of a command."""
        return AsyncCommandInputHandle(self._core, pid, timeout)

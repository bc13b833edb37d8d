"""Commands in the background: `CommandHandle`, `AsyncCommandHandle`, and the operations of `Sandbox.commands`."""

from __future__ import annotations

import asyncio
import base64
import codecs
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from .._guest_sources import guest_source
from .._steps import Steps
from . import _relay
from ._cells import seconds_of, texts_by_name
from ._errors import InvalidArgumentException, SandboxException, TimeoutException, UnsupportedException
from ._info import CommandExitException, CommandResult, ProcessInfo

if TYPE_CHECKING:
    from typing_extensions import Self, TypeAlias

    from ._core import Core

Event: TypeAlias = "tuple[str | None, str | None, None]"
"""A piece of standard output, or of standard error. The third part of E2B is the output of terminals."""

_WAIT = 0.05
"""The seconds for which the interpreter waits for output, in which it does nothing else."""
_MAX_PAUSE = 0.5
"""The longest pause between questions for output."""
_PIECE = 1 << 20
"""The bytes of input that one request carries."""
_GRACE = 5.0
"""The seconds after its limit of time in which a command is killed inside."""


def require_native(core: Core, name: str) -> Steps[None]:
    """Raises if the sandbox has no processes."""
    yield from core.prepare()
    if not core.is_native:
        raise UnsupportedException(
            f"{name}: commands in the background need native kernels, such as those of `belljar.native.NativeServer`"
        )


def _ask(core: Core, name: str, **arguments: Any) -> Steps[Any]:
    return (yield from core.call("background", None, name=name, arguments=arguments))


def start(
    core: Core,
    cmd: str,
    envs: dict[str, str] | None,
    cwd: str | None,
    stdin: bool,
    timeout: float | None,
    is_retained: bool,
) -> Steps[Output]:
    """Starts a command that is killed at its timeout."""
    limit = seconds_of(timeout or 0, "timeout") or 0
    source, variables = guest_source("background"), texts_by_name(envs, "envs")
    arguments = {"source": source, "line": cmd, "envs": variables, "cwd": cwd, "stdin": stdin, "timeout": limit}
    pid = yield from core.call("start_background", None, **arguments)
    if isinstance(pid, bool) or not isinstance(pid, int):
        raise _unreadable()
    return Output(core, pid, [0, 0], limit, _GRACE, is_retained)


def attach(core: Core, pid: int, timeout: float | None, is_retained: bool) -> Steps[Output]:
    """Connects to a command that runs. The timeout is that of the connection."""
    limit = seconds_of(timeout or 0, "timeout") or 0
    yield from require_native(core, "connect")
    places = yield from _ask(core, "attach", pid=_checked_pid(pid))
    if not isinstance(places, list) or [type(each) for each in places] != [int, int]:
        raise _unreadable()
    return Output(core, pid, places, limit, 0, is_retained)


def processes(core: Core) -> Steps[list[ProcessInfo]]:
    """Returns the commands that run."""
    yield from core.prepare()
    if not core.is_native:
        return []
    found = yield from _ask(core, "processes")
    try:
        return [
            ProcessInfo(int(each["pid"]), None, "/bin/sh", ["-c", str(each["line"])], dict(each["envs"]), each["cwd"])
            for each in found
        ]
    except (TypeError, KeyError, ValueError):
        raise _unreadable() from None


def kill(core: Core, pid: int) -> Steps[bool]:
    """Kills a command. Returns False if there is none that runs."""
    yield from core.prepare()
    return core.is_native and (yield from _ask(core, "kill", pid=_checked_pid(pid))) is True


def send(core: Core, pid: int, data: str | bytes, name: str, timeout: float | None = None) -> Steps[None]:
    """Writes to the standard input of a command."""
    contents = data.encode() if isinstance(data, str) else data
    if not isinstance(contents, (bytes, bytearray, memoryview)):
        raise InvalidArgumentException(f"data: a text or bytes are needed, not {type(data).__name__}")
    yield from require_native(core, name)
    for at in range(0, len(contents), _PIECE):
        text = base64.b64encode(contents[at : at + _PIECE]).decode()
        arguments = {"pid": _checked_pid(pid), "data": text}
        yield from core.call("background", timeout, name="send", arguments=arguments)


def close_input(core: Core, pid: int, timeout: float | None) -> Steps[None]:
    """Closes the standard input of a command."""
    yield from require_native(core, "close_stdin")
    arguments = {"pid": _checked_pid(pid)}
    yield from core.call("background", timeout, name="close_input", arguments=arguments)


def _checked_pid(pid: int) -> int:
    if isinstance(pid, bool) or not isinstance(pid, int):
        raise InvalidArgumentException(f"pid: {pid!r} is not a process ID")
    return pid


def _unreadable() -> SandboxException:
    return SandboxException("the interpreter has sent an answer that cannot be read")


class Output:
    """The output of a command since a handle was connected to it, and its result."""

    def __init__(
        self, core: Core, pid: int, places: list[int], timeout: float, grace: float, is_retained: bool
    ) -> None:
        self.core = core
        self.pid = pid
        self.result: CommandResult | None = None
        self.is_connected = True
        self.pause = 0.0
        """The seconds before the next question for output."""
        self._places = places
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout + grace if timeout else None
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(2)]
        self._texts: list[list[str]] | None = [[], []] if is_retained else None

    def text(self, number: int) -> Any:
        """Returns the output so far, None if it is not retained."""
        return None if self._texts is None else "".join(self._texts[number])

    def poll(self) -> Steps[list[Event]]:
        """Reads further output. Sets the result at the end of the command."""
        answer = yield from _ask(self.core, "poll", pid=self.pid, at=self._places, seconds=_WAIT)
        try:
            pieces = [base64.b64decode(each, validate=True) for each in answer["output"]]
            code, is_late = answer["code"], answer["is_late"] is True
        except (TypeError, KeyError, ValueError):
            raise _unreadable() from None
        if len(pieces) != 2 or not (code is None or type(code) is int):
            raise _unreadable()
        events: list[Event] = []
        for number, piece in enumerate(pieces):
            self._places[number] += len(piece)
            if text := self._decoders[number].decode(piece, code is not None):
                if self._texts is not None:
                    self._texts[number].append(text)
                events.append((text, None, None) if number == 0 else (None, text, None))
        self.pause = 0.0 if events else min(_MAX_PAUSE, 2 * self.pause + 0.01)
        if code is not None:
            if is_late:
                raise self._late()
            self.result = CommandResult(self.text(1), self.text(0), code, None)
        elif self._deadline is not None and time.monotonic() > self._deadline:
            raise self._late()
        return events

    def _late(self) -> TimeoutException:
        limit = f"{self._timeout:g} s" if self._timeout else "its limit of time"
        return TimeoutException(
            f"the command {self.pid} took longer than {limit}; a longer `timeout` extends the limit"
        )

    def ended(self) -> CommandResult:
        """Returns the result. Raises if the exit code is not 0."""
        if self.result is None:
            raise SandboxException(f"the handle of the command {self.pid} was disconnected before it ended")
        if self.result.exit_code:
            raise CommandExitException(self.result.stderr, self.result.stdout, self.result.exit_code, None)
        return self.result


class CommandHandle:
    """A command in the background. Iterating yields its output as it arrives."""

    def __init__(self, output: Output) -> None:
        self._output = output

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._output.pid

    def __iter__(self) -> Generator[Event, None, None]:
        output = self._output
        while output.result is None and output.is_connected:
            time.sleep(output.pause)
            yield from output.core.perform(output.poll())

    def wait(
        self,
        on_pty: Callable[[bytes], object] | None = None,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
    ) -> CommandResult:
        """Waits for the end of the command.

        Args:
            on_pty: Never called: there are no terminals.
            on_stdout: Receives output, and may call the sandbox.
            on_stderr: The same for standard error.

        Raises:
            CommandExitException: The exit code is not 0.
            TimeoutException: The command took longer than its ``timeout``, or than that of the connection.
        """
        for stdout, stderr, _ in self:
            if stdout is not None and on_stdout is not None:
                on_stdout(stdout)
            elif stderr is not None and on_stderr is not None:
                on_stderr(stderr)
        return self._output.ended()

    def disconnect(self) -> None:
        """Stops to read the output. The command goes on."""
        self._output.is_connected = False

    def kill(self) -> bool:
        """Kills the command with its children. Returns False if it has ended."""
        output = self._output
        return output.core.perform(kill(output.core, output.pid))

    def send_stdin(self, data: str | bytes, request_timeout: float | None = None) -> None:
        """Writes to the standard input of a command that was started with ``stdin=True``."""
        output = self._output
        output.core.perform(send(output.core, output.pid, data, "send_stdin", request_timeout))

    def close_stdin(self, request_timeout: float | None = None) -> None:
        """Closes the standard input."""
        output = self._output
        output.core.perform(close_input(output.core, output.pid, request_timeout))


class AsyncCommandHandle:
    """A command in the background, whose output a task receives while it runs."""

    def __init__(
        self, output: Output, on_stdout: Callable[[str], Any] | None, on_stderr: Callable[[str], Any] | None
    ) -> None:
        self._output = output
        self._failure: Exception | None = None
        self._task = asyncio.create_task(self._receive(on_stdout, on_stderr))

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._output.pid

    @property
    def stdout(self) -> str:
        """The output so far."""
        text: str = self._output.text(0)
        return text

    @property
    def stderr(self) -> str:
        """The output to standard error so far."""
        text: str = self._output.text(1)
        return text

    @property
    def error(self) -> str | None:
        """Always None."""
        return None

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while the command runs."""
        return None if self._output.result is None else self._output.result.exit_code

    async def _receive(self, on_stdout: Callable[[str], Any] | None, on_stderr: Callable[[str], Any] | None) -> None:
        output = self._output
        try:
            while output.result is None:
                await asyncio.sleep(output.pause)
                for stdout, stderr, _ in await output.core.perform_async(output.poll()):
                    await _relay.call(on_stdout if stderr is None else on_stderr, stdout if stderr is None else stderr)
        except Exception as error:  # noqa: BLE001
            # It is raised by `wait`.
            self._failure = error

    async def wait(self) -> CommandResult:
        """Waits for the end of the command: see `CommandHandle.wait`."""
        await asyncio.wait([self._task])
        if self._failure is not None:
            raise self._failure
        return self._output.ended()

    async def disconnect(self) -> None:
        """Stops to read the output. The command goes on."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def kill(self) -> bool:
        """Kills the command with its children. Returns False if it has ended."""
        output = self._output
        return await output.core.perform_async(kill(output.core, output.pid))

    async def send_stdin(self, data: str | bytes, request_timeout: float | None = None) -> None:
        """Writes to the standard input of a command that was started with ``stdin=True``."""
        output = self._output
        await output.core.perform_async(send(output.core, output.pid, data, "send_stdin", request_timeout))

    async def close_stdin(self, request_timeout: float | None = None) -> None:
        """Closes the standard input."""
        output = self._output
        await output.core.perform_async(close_input(output.core, output.pid, request_timeout))


class AsyncCommandInputHandle:
    """Ordered input for a command."""

    def __init__(self, core: Core, pid: int, timeout: float | None) -> None:
        self._core = core
        self._pid = pid
        limit = seconds_of(timeout or 0, "timeout")
        self._deadline = None if limit is None else time.monotonic() + limit
        self._is_closed = False

    async def send(self, data: str | bytes) -> None:
        """Writes to the standard input of the command."""
        if self._is_closed:
            raise SandboxException("send: this handle is closed; `stream_input` returns another one")
        remaining = None if self._deadline is None else self._deadline - time.monotonic()
        if remaining is not None and remaining <= 0:
            raise TimeoutException("send: the `timeout` of the input has passed")
        await self._core.perform_async(send(self._core, self._pid, data, "stream_input", remaining))

    async def close(self) -> None:
        """Ends the use of the handle. The standard input stays open: see `AsyncCommands.close_stdin`."""
        self._is_closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

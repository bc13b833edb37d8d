"""Commands and files in a session with a native kernel, for sync and async callers."""

from __future__ import annotations

import base64
import errno
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from ._agent_sessions import AgentSession
from ._errors import BelljarError, FileMissingError, SandboxError
from ._guest_sources import module_cell
from ._integration_sandbox import any_sandbox
from ._jobs import contents_of
from ._model_text import error_text
from ._steps import Steps, T, perform, perform_async

if TYPE_CHECKING:
    from ._integration_sandbox import AnySandbox
    from ._run import Run

_PIECE = 8 << 20
"""The bytes of a file that one request carries. Requests of a server are limited to 16 MB by default."""
_INLINE = 64 << 10
_GRACE = 15.0
"""Seconds beyond a command's own limit after which its cell is interrupted."""
_NAME = "_belljar_shell"
_MODULE = f"__import__('sys').modules[{_NAME!r}]"
_DESCRIBE = "print(__import__('json').dumps([__import__('sys').platform, __import__('os').getcwd()]))"

Command = Union[str, "Sequence[str]"]


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    exit_code: int
    """The exit status; negative numbers are signals."""
    stdout: bytes
    """The output; with that to standard error if both were merged."""
    stderr: bytes
    """The output to standard error."""
    timed_out: bool
    """True if the command was stopped at its limit of time."""
    truncated: bool
    """True if the middle of the output was left out."""


class Shell:
    """A session with a native kernel in which commands run. They run one after the other.

    Files and the processes in the background stay until the session is closed. Relative paths begin at `root`.
    """

    def __init__(self, sandbox: AnySandbox, *, max_output: int = 1 << 20) -> None:
        """Creates a session of a sandbox with native kernels. Its first call starts it.

        Args:
            sandbox: A sandbox of `NativeServer`, or of `belljar.connect` to a server with ``--sandbox native``.
            max_output: The bytes of a command's output beyond which its middle is left out, for each stream.
        """
        self._session = AgentSession(any_sandbox(sandbox))
        self._max_output = max_output
        self._root: str | None = None
        self.is_closed = False
        """True after `close`."""

    def root(self) -> str:
        """Returns the directory of the session, such as ``/session``. Starts the session."""
        return self._run(self._prepare())

    async def aroot(self) -> str:
        """Returns the directory of the session, such as ``/session``. Starts the session."""
        return await self._arun(self._prepare())

    def execute(
        self,
        command: Command,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        merged: bool = False,
    ) -> CommandResult:
        """Runs a command.

        Args:
            command: A text for ``sh -c``, or a program with its arguments.
            timeout: The seconds after which the command and its processes are killed. None: the server's limit.
            cwd: The directory; that of the session by default.
            env: Further environment variables.
            merged: If true, standard error is written to standard output.
        """
        return self._run(self._execute(command, timeout, cwd, env, merged))

    async def aexecute(
        self,
        command: Command,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        merged: bool = False,
    ) -> CommandResult:
        """Runs a command. Cancelling the call kills it. The arguments are those of `execute`."""
        return await self._arun(self._execute(command, timeout, cwd, env, merged))

    def read(self, path: str) -> bytes:
        """Returns the contents of a file. Raises the classes of `OSError` that `open` raises."""
        return self._run(self._read(path))

    async def aread(self, path: str) -> bytes:
        """Returns the contents of a file. Raises the classes of `OSError` that `open` raises."""
        return await self._arun(self._read(path))

    def write(self, path: str, contents: bytes) -> None:
        """Writes a file, and the directories in which it is."""
        self._run(self._write(path, contents))

    async def awrite(self, path: str, contents: bytes) -> None:
        """Writes a file, and the directories in which it is."""
        await self._arun(self._write(path, contents))

    async def astart(
        self, number: int, command: Sequence[str], *, cwd: str | None, env: Mapping[str, str], terminal: bool
    ) -> None:
        """Starts a process that goes on during further calls.

        Args:
            number: The number by which `apoll` and `akill` find it.
            command: The program and its arguments.
            cwd: The directory; that of the session by default.
            env: Further environment variables.
            terminal: If true, the process has a terminal, to which `apoll` can write. Else it has no standard input.
        """
        reply = await self._arun(self._call("start", (number, list(command), cwd, dict(env), terminal)))
        _raise_error(reply, command[0])

    async def apoll(self, number: int, text: str = "", seconds: float = 0.25) -> tuple[bytes, int | None]:
        """Writes to a process, waits for its end for some seconds, and returns its further output and its status.

        A process that runs has the status None. Raises `ProcessLookupError` for a number without a process.
        """
        reply = await self._arun(self._call("poll", (number, text, seconds)))
        _raise_error(reply, str(number))
        code = reply.get("code")
        return _bytes(reply.get("output")), code if isinstance(code, int) else None

    async def akill(self, number: int) -> None:
        """Kills a process and its children."""
        await self._arun(self._call("kill", (number,)))

    def close(self) -> None:
        """Ends the session with its processes and files."""
        if not self.is_closed:
            self.is_closed = True
            self._session.close()

    async def aclose(self) -> None:
        """Ends the session with its processes and files."""
        if not self.is_closed:
            self.is_closed = True
            await self._session.aclose()

    def _run(self, steps: Steps[T]) -> T:
        """Performs steps, which are functions of a session."""
        return perform(steps, self._session.sync)

    async def _arun(self, steps: Steps[T]) -> T:
        return await perform_async(steps, self._session.asynchronous)

    def _prepare(self) -> Steps[str]:
        """Defines the functions of `_guest/shell.py` in a session whose interpreter is new."""
        if self.is_closed:
            raise SandboxError("the session is closed")
        if self._root is None:
            yield from self._define()
        assert self._root is not None
        return self._root

    def _define(self) -> Steps[None]:
        code = module_cell(_NAME, "shell", _DESCRIBE)
        run: Run = yield lambda session: session.run(code)
        described = _parsed(run)
        if not isinstance(described, list) or len(described) != 2 or not isinstance(described[1], str):
            raise SandboxError("the session has sent an invalid description of itself")
        if described[0] != "linux":
            raise SandboxError(
                "commands need native kernels: pass no sandbox, or connect to a server with --sandbox native"
            )
        self._root = described[1]

    def _call(self, function: str, arguments: Sequence[Any], timeout: float | None = None) -> Steps[dict[str, Any]]:
        """Calls a function in the session and returns its reply."""
        yield from self._prepare()
        name = f"belljar-{secrets.token_hex(8)}"
        code = f"{_MODULE}.{function}({', '.join(map(repr, [*arguments, name]))})"
        run: Run = yield lambda session: session.run(code, timeout=timeout)
        if run.error is not None and run.error.name == "KeyError" and _NAME in run.error.message:
            # The interpreter was replaced since the last call, and nothing of this one has run.
            yield from self._define()
            run = yield lambda session: session.run(code, timeout=timeout)
        reply = _parsed(run)
        if isinstance(reply, dict) and reply.get("in_file") is True:
            reply = _loaded((yield from self._fetch(name)))
        if isinstance(reply, dict) and reply.get("file") is True:
            reply = {"contents": (yield from self._fetch(name))}
        if not isinstance(reply, dict):
            raise SandboxError("the session has sent an invalid reply")
        return reply

    def _fetch(self, name: str) -> Steps[bytes]:
        try:
            contents: bytes = yield lambda session: session.files.read(name)
        except FileMissingError as error:
            raise SandboxError(f"a file of the session has disappeared: {error}") from None
        finally:
            yield lambda session: session.run(f"{_MODULE}.remove({name!r})")
        return contents

    def _execute(
        self, command: Command, timeout: float | None, cwd: str | None, env: Mapping[str, str] | None, merged: bool
    ) -> Steps[CommandResult]:
        program = command if isinstance(command, str) else [str(part) for part in command]
        limit = None if timeout is None else timeout + _GRACE
        arguments = (program, cwd, dict(env or {}), timeout, self._max_output, merged)
        reply = yield from self._call("run", arguments, limit)
        _raise_error(reply, program if isinstance(program, str) else program[0])
        code, stdout, stderr = reply.get("code"), _bytes(reply.get("stdout")), _bytes(reply.get("stderr"))
        if not isinstance(code, int):
            raise SandboxError("the session has sent an invalid reply")
        return CommandResult(code, stdout, stderr, reply.get("late") is True, reply.get("truncated") is True)

    def _read(self, path: str) -> Steps[bytes]:
        reply = yield from self._call("read", (path,))
        _raise_error(reply, path)
        return _bytes(reply.get("contents"))

    def _write(self, path: str, contents: bytes) -> Steps[None]:
        contents = contents_of(contents)
        if len(contents) <= _INLINE:
            text = base64.b64encode(contents).decode()
            _raise_error((yield from self._call("write", (path, text, None, True))), path)
            return
        yield from self._prepare()
        for start in range(0, len(contents), _PIECE):
            piece = f"belljar-{secrets.token_hex(8)}"
            try:
                part = contents[start : start + _PIECE]
                yield lambda session, piece=piece, part=part: session.files.write(piece, part)
                reply = yield from self._call("write", (path, None, piece, start == 0))
            except BaseException:
                yield lambda session, piece=piece: session.run(f"{_MODULE}.remove({piece!r})")
                raise
            _raise_error(reply, path)


def shell_status(code: int) -> int:
    """Returns an exit status as a shell reports it: also for a program that was ended by a signal."""
    return code if code >= 0 else 128 - code


def _parsed(run: Run) -> Any:
    """Returns what the functions of `_guest/shell.py` have printed. The session may have printed anything."""
    if not run.ok:
        raise CommandError(error_text(run), run.limit)
    lines = run.stdout.strip().splitlines()
    return _loaded(lines[-1].encode() if lines else b"")


def _loaded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SandboxError(f"the session has sent an invalid reply: {error}") from None


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise SandboxError("the session has sent an invalid reply") from None


def _raise_error(reply: Mapping[str, Any], path: str) -> None:
    """Raises the error of a reply: the class of `OSError` for its number."""
    if (error := reply.get("error")) is not None:
        number = reply.get("errno")
        raise OSError(number if isinstance(number, int) else errno.EIO, str(error)[:1000], path)


class CommandError(BelljarError):
    """A session has not run a command: its interpreter was ended, or the server's limits were reached."""

    def __init__(self, message: str, limit: str | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        """The limit that was reached, such as ``time``."""

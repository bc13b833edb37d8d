"""`Sandbox.commands` and `AsyncSandbox.commands`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ._cells import answer_of, texts_by_name
from ._errors import InvalidArgumentException, SandboxException, UnsupportedException
from ._info import CommandExitException, CommandResult
from ._relay import relayed
from .._steps import Steps, T

if TYPE_CHECKING:
    from ._core import Core
    from ._output import Write

_NO_BACKGROUND = "commands run to their end, so that none can be connected to, killed or sent input"


def _run(
    core: Core,
    cmd: str,
    background: bool | None,
    envs: dict[str, str] | None,
    cwd: str | None,
    stdin: bool | None,
    timeout: float | None,
    on_stdout: Write | None,
    on_stderr: Write | None,
) -> Steps[CommandResult]:
    """Runs a command."""
    if not isinstance(cmd, str):
        raise InvalidArgumentException(f"cmd: a text is needed, not {type(cmd).__name__}")
    for name, value in (("background", background), ("stdin", stdin)):
        if value:
            raise UnsupportedException(f"{name}: {_NO_BACKGROUND}")
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
    if code:
        raise CommandExitException(run.stderr, run.stdout, code, None)
    return CommandResult(run.stderr, run.stdout, code, None)


class Commands:
    """The commands of a sandbox.

    With native kernels all programs run. In WebAssembly there are no processes, and ``python``, ``pip``, ``ls``,
    ``cat``, ``echo`` and ``pwd`` are stood in for, without pipes and redirections; others raise `UnsupportedException`.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def _do(self, work: Steps[T]) -> T:
        return self._core.perform(work)

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
    ) -> CommandResult:
        """Runs a command line, and waits for its end.

        Args:
            cmd: The command line, as for ``sh -c``.
            envs: Environment variables for the command.
            cwd: Its working directory, ``/home/user`` by default.
            on_stdout: Receives its output while it runs, on the thread that runs it.
            on_stderr: The same for standard error.
            timeout: The most seconds; 0 is no limit.

        Raises:
            CommandExitException: The exit code is not 0.
            TimeoutException: It took longer.
        """
        return self._do(_run(self._core, cmd, background, envs, cwd, stdin, timeout, on_stdout, on_stderr))

    def list(self, request_timeout: float | None = None) -> list[Any]:
        """Returns the commands that run in the background: none."""
        return []

    def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """Returns False: no commands run in the background."""
        return False

    def connect(
        self,
        pid: int,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> Any:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"connect: {_NO_BACKGROUND}")

    def send_stdin(self, pid: int, data: str | bytes, request_timeout: float | None = None) -> None:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"send_stdin: {_NO_BACKGROUND}")

    def close_stdin(self, pid: int, request_timeout: float | None = None) -> None:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"close_stdin: {_NO_BACKGROUND}")

    def stream_input(self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = 60) -> None:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"stream_input: {_NO_BACKGROUND}")


class AsyncCommands:
    """The same as `Commands`, for asyncio."""

    def __init__(self, core: Core) -> None:
        self._core = core

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
    ) -> CommandResult:
        """Runs a command line, and waits for its end: see `Commands.run`. The receivers of output may be async."""

        async def begin(stdout: Write | None, stderr: Write | None) -> CommandResult:
            return await self._core.perform_async(
                _run(self._core, cmd, background, envs, cwd, stdin, timeout, stdout, stderr)
            )

        return await relayed(begin, on_stdout, on_stderr)

    async def list(self, request_timeout: float | None = None) -> list[Any]:
        """Returns the commands that run in the background: none."""
        return []

    async def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """Returns False: no commands run in the background."""
        return False

    async def connect(
        self,
        pid: int,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        *,
        retain_output: bool = True,
    ) -> Any:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"connect: {_NO_BACKGROUND}")

    async def send_stdin(self, pid: int, data: str | bytes, request_timeout: float | None = None) -> None:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"send_stdin: {_NO_BACKGROUND}")

    async def close_stdin(self, pid: int, request_timeout: float | None = None) -> None:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"close_stdin: {_NO_BACKGROUND}")

    def stream_input(self, pid: int, *, timeout: float | None = 60) -> Any:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"stream_input: {_NO_BACKGROUND}")

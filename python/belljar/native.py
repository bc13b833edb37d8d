"""Native kernels: a server of this machine whose sessions run every wheel and shell commands, in a Linux sandbox.

>>> from belljar.native import NativeServer, Shell
>>> with NativeServer() as server, server.connect() as box:
...     Shell(box).execute("echo $((6 * 7))").stdout
b'42\\n'

docs/native.md describes the sandbox. `belljar native setup` creates the environment of Python that it needs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._arguments import texts
from ._connect import connect, connect_async
from ._errors import SandboxError
from ._shell import CommandError, CommandResult, Shell

if TYPE_CHECKING:
    from types import TracebackType

    from ._asyncio import AsyncSandbox
    from ._sandbox import Sandbox

__all__ = ["CommandError", "CommandResult", "NativeServer", "Shell"]

_READY = "listening on "
_MAX_ERROR = 4000
_CLOSE_TIMEOUT = 15
# The server ends when standard input does, which the end of this process closes however it ends.
_GUARD = """exec 3<&0; "$@" </dev/null 3<&- & server=$!
(cat <&3; kill "$server") >/dev/null 2>&1 & wait "$server\""""


class NativeServer:
    """A server process on the loopback interface that gives sessions native kernels.

    Only this process has its token. The server ends with `close`, with the end of this process, or when the object is
    no longer used.
    """

    def __init__(
        self,
        *,
        venv: str | os.PathLike[str] | None = None,
        memory: int | str | None = None,
        disk: int | str | None = None,
        timeout: float = 3600,
        network: Iterable[str] = (),
        options: Iterable[str] = (),
        command: Iterable[str] | None = None,
    ) -> None:
        """Starts a server. Raises `SandboxError` if the machine lacks what native kernels need, with the reason.

        Args:
            venv: The environment of Python for the code, which must contain ipykernel. By default that which `belljar
                native setup` has created.
            memory: The memory of a session, such as ``"2GB"``.
            disk: The files of a session, such as ``"1GB"``.
            timeout: The most seconds for a command or a piece of code.
            network: The hosts that code may connect to. By default none.
            options: Further options of `belljar streamable-http`.
            command: The command `belljar`. By default that of this package.
        """
        if not sys.platform.startswith("linux"):
            raise SandboxError(f"native kernels need Linux, and this is {sys.platform}")
        program = [sys.executable, "-m", "belljar"] if command is None else texts(command, "command")
        arguments = ["streamable-http", "--host", "127.0.0.1", "--port", "0", "--sandbox", "native"]
        arguments += ["--toolset", "all", "--timeout", str(timeout), "--session-timeout", str(7 * 86400)]
        for option, value in (("--venv", venv), ("--session-memory", memory), ("--session-disk", disk)):
            if value is not None:
                arguments += [option, os.fspath(value) if not isinstance(value, int) else str(value)]
        for host in texts(network, "network"):
            arguments += ["--allow-net", host]
        self._token = secrets.token_urlsafe(32)
        with tempfile.TemporaryDirectory(prefix="belljar-") as directory:
            tokens = os.path.join(directory, "tokens")
            with open(os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(f"{self._token}\n")
            arguments += ["--auth-token-file", tokens, *texts(options, "options")]
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", *program, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                # The command is that of this package, whatever the current directory contains.
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                start_new_session=True,
            )
            self._finalizer = weakref.finalize(self, _end, self._process, os.getpid())
            try:
                self.url = self._wait_until_ready()
                """The address of the server."""
            except BaseException:
                self.close()
                raise

    def connect(self, **options: Any) -> Sandbox:
        """Returns a `Sandbox` on the server. The options are those of `belljar.connect`."""
        return connect(self.url, token=self._token, **options)

    def connect_async(self, **options: Any) -> AsyncSandbox:
        """Returns an `AsyncSandbox` on the server. The options are those of `belljar.connect_async`."""
        return connect_async(self.url, token=self._token, **options)

    def close(self) -> None:
        """Ends the server, its sessions and their processes."""
        self._finalizer()

    def __enter__(self) -> NativeServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _wait_until_ready(self) -> str:
        stderr = self._process.stderr
        assert stderr is not None
        messages: list[str] = []
        for raw in stderr:
            line = raw.decode(errors="replace").strip()
            if line.startswith(_READY):
                # Read on, or the server would fill the pipe.
                threading.Thread(target=_drain, args=(stderr,), name="belljar-native", daemon=True).start()
                return line.removeprefix(_READY)
            messages.append(line.removeprefix("belljar: "))
        hints = [message.removeprefix("hint: ") for message in messages if message.startswith("hint: ")]
        reasons = [message for message in messages if message and not message.startswith("hint: ")]
        reason = "; ".join(reasons)[:_MAX_ERROR] or f"the server ended with status {self._process.wait()}"
        hint = f" (hint: {'; '.join(hints)})" if hints else ""
        raise SandboxError(f"failed to start native kernels: {reason}{hint}")


def _drain(stream: Any) -> None:
    with contextlib.suppress(OSError, ValueError):
        while stream.read(1 << 16):
            pass


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Ends a server by the end of its standard input, in the process that has started it and not in a fork of it."""
    if os.getpid() != owner:
        return
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout=_CLOSE_TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

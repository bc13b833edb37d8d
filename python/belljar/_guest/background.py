"""Commands in the background of a native kernel. `code_interpreter.py` compiles this text when the first one starts.

Their output goes to files, so that it waits for its readers, each of which has its own place in it. It is not written
by threads: ipykernel may take what they write for output of an earlier cell.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO, Any

MAX_RUNNING = 64
MAX_ENDED = 64
"""The ended commands whose output can still be read."""
MAX_PIECE = 6_000
"""The bytes of each stream in one answer. Servers shorten long answers."""
_PAUSE = 0.02

_processes: dict[int, Process] = {}


class Process:
    """A command with its output."""

    def __init__(self, line: str, envs: dict[str, str], cwd: str, has_input: bool, timeout: float) -> None:
        self.line, self.envs, self.cwd = line, envs, cwd
        self.is_late = False
        self.files: list[IO[bytes]] = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", line],
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=self.files[0],
            stderr=self.files[1],
            bufsize=0,
            cwd=cwd,
            env={**os.environ, **envs},
            start_new_session=True,
        )
        self._timer = threading.Timer(timeout, self._end_late) if timeout else None
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, None while the command runs."""
        return self._process.poll()

    def _end_late(self) -> None:
        if self.code is None:
            self.is_late = True
            self.kill()

    def kill(self) -> bool:
        """Kills the command with its children. Returns False if it has ended."""
        if self.code is not None:
            return False
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        return True

    def write(self, data: bytes) -> None:
        """Writes to standard input, and waits while the command does not read."""
        stdin = self._stdin()
        if stdin.closed:
            raise ValueError(f"stdin: that of the command {self.pid} was closed")
        rest = memoryview(data)
        while rest:
            # An interrupt at the time limit ends the wait.
            select.select([], [stdin], [])
            rest = rest[os.write(stdin.fileno(), rest[: select.PIPE_BUF]) :]

    def close_input(self) -> None:
        """Closes standard input, unless it is closed."""
        self._stdin().close()

    def _stdin(self) -> IO[bytes]:
        stdin = self._process.stdin
        if stdin is None:
            raise ValueError(f"stdin: the command {self.pid} has none; start it with `stdin=True`")
        return stdin

    def forget(self) -> None:
        """Removes the output."""
        if self._timer is not None:
            self._timer.cancel()
        for file in self.files:
            file.close()


def _known(pid: int) -> Process:
    process = _processes.get(pid)
    if process is None:
        raise LookupError(f"there is no command with the pid {pid}")
    return process


def _running() -> list[Process]:
    return [each for each in _processes.values() if each.code is None]


def start(line: str, envs: dict[str, str], cwd: str, stdin: bool, timeout: float) -> int:
    """Starts a command, and returns its process ID. A timeout of 0 is no limit."""
    if len(_running()) >= MAX_RUNNING:
        raise ValueError(f"background: {MAX_RUNNING} commands run already")
    ended = [each for each in _processes.values() if each.code is not None]
    for process in ended[: max(0, len(ended) - MAX_ENDED + 1)]:
        _processes.pop(process.pid).forget()
    process = Process(line, envs, cwd, stdin, timeout)
    # The process ID of an ended command may have been used again.
    if (old := _processes.pop(process.pid, None)) is not None:
        old.forget()
    _processes[process.pid] = process
    return process.pid


def attach(pid: int) -> list[int]:
    """Returns the sizes of the output of a running command so far."""
    process = _known(pid)
    if process.code is not None:
        raise LookupError(f"the command {pid} has ended")
    return [os.fstat(file.fileno()).st_size for file in process.files]


def poll(pid: int, at: list[int], seconds: float) -> dict[str, Any]:
    """Returns the output after these places, and the exit code if the command has ended and this is all.

    Waits for output or the end for some seconds.
    """
    process = _known(pid)
    deadline = time.monotonic() + seconds
    while True:
        # In this order: what is written before the end is read after it.
        code = process.code
        pieces = [os.pread(file.fileno(), MAX_PIECE, place) for file, place in zip(process.files, at)]
        if any(pieces) or code is not None or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE)
    is_all = all(len(piece) < MAX_PIECE for piece in pieces)
    texts = [base64.b64encode(piece).decode() for piece in pieces]
    return {"output": texts, "code": code if is_all else None, "is_late": process.is_late}


def kill(pid: int) -> bool:
    """Kills a command. Returns False if there is none that runs."""
    process = _processes.get(pid)
    return process is not None and process.kill()


def send(pid: int, data: str) -> None:
    """Writes bytes in base64 to the standard input of a command."""
    _known(pid).write(base64.b64decode(data))


def close_input(pid: int) -> None:
    """Closes the standard input of a command."""
    _known(pid).close_input()


def processes() -> list[dict[str, Any]]:
    """Describes the commands that run."""
    return [{"pid": each.pid, "line": each.line, "envs": each.envs, "cwd": each.cwd} for each in _running()]

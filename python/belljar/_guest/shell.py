"""Commands and files of a session with a native kernel. `belljar.native` runs this text there; it is not imported."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any

MAX_LINE = 12_000
"""The characters of a reply that is printed. Sessions save longer output in a file of their own."""
MAX_INLINE = 8_000
"""The bytes of a file that is part of a reply."""

MAX_PENDING = 1 << 20
"""The bytes of a process's output that wait for the host. Older ones are dropped."""
MAX_PROCESSES = 64

ROOT = os.getcwd()

_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
"""Makes standard input the terminal of its session, and becomes another program."""


def reply(value: dict[str, Any], name: str) -> None:
    """Prints a value for the host; a long one is left in a file of the session for it."""
    text = json.dumps(value)
    if len(text) > MAX_LINE:
        with open(os.path.join(ROOT, name), "w", encoding="ascii") as file:
            file.write(text)
        text = json.dumps({"in_file": True})
    print(text)


def run(
    command: str | list[str],
    cwd: str | None,
    env: dict[str, str],
    timeout: float | None,
    max_output: int,
    is_merged: bool,
    name: str,
) -> None:
    """Runs a command until it ends or is at its limit of time. Processes that it has left in the background go on."""
    arguments = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    # Not pipes: a process in the background would keep them open.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if is_merged else errors,
                cwd=cwd or ROOT,
                env={**os.environ, **env},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reply({"error": str(error), "errno": getattr(error, "errno", None)}, name)
            return
        is_late = False
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            is_late = True
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output_text, is_long = _contents(output, max_output)
        errors_text, are_long = _contents(errors, max_output)
    result = {"code": process.returncode, "late": is_late, "truncated": is_long or are_long}
    try:
        reply({**result, "stdout": output_text, "stderr": errors_text}, name)
    except OSError:
        # The session has no space left.
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(ROOT, name))
        reply({**result, "stdout": output_text[:4000], "stderr": errors_text[:4000], "truncated": True}, name)


def read(path: str, name: str) -> None:
    """Replies with the contents of a file, or leaves them in a file of the session."""
    try:
        path = os.path.realpath(os.path.join(ROOT, path))
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            number = 21 if stat.S_ISDIR(found.st_mode) else 22
            raise OSError(number, "is not a file", path)
        if found.st_size <= MAX_INLINE:
            with open(path, "rb") as file:
                contents = file.read(MAX_INLINE + 1)
            if len(contents) <= MAX_INLINE:
                reply({"contents": base64.b64encode(contents).decode()}, name)
                return
        target = os.path.join(ROOT, name)
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target)
        reply({"file": True}, name)
    except OSError as error:
        _fail(error, name)


def write(path: str, contents: str | None, piece: str | None, is_first: bool, name: str) -> None:
    """Writes a file from contents in base64, or appends a file of the session, which it deletes."""
    try:
        path = os.path.join(ROOT, path)
        if is_first:
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            except FileExistsError as error:
                raise NotADirectoryError(20, "Not a directory", error.filename) from None
        with open(path, "wb" if is_first else "ab") as target:
            if contents is not None:
                target.write(base64.b64decode(contents))
            if piece is not None:
                with open(os.path.join(ROOT, piece), "rb") as source:
                    shutil.copyfileobj(source, target)
        reply({}, name)
    except OSError as error:
        _fail(error, name)
    finally:
        if piece is not None:
            remove(piece)


class _Process:
    """A process that goes on between the calls of the host."""

    def __init__(self, arguments: list[str], cwd: str | None, env: dict[str, str], has_terminal: bool) -> None:
        self.output = bytearray()
        self.dropped = 0
        self.is_drained = False
        self.changed = threading.Condition()
        if has_terminal:
            self.descriptor, other = os.openpty()
            arguments = [sys.executable, "-c", _TERMINAL, *arguments]
            stdin = other
        else:
            self.descriptor, other = os.pipe()
            stdin = subprocess.DEVNULL
        self.has_terminal = has_terminal
        try:
            self.process = subprocess.Popen(
                arguments,
                stdin=stdin,
                stdout=other,
                stderr=other,
                cwd=cwd or ROOT,
                env={**os.environ, **env},
                start_new_session=True,
            )
        except BaseException:
            os.close(self.descriptor)
            raise
        finally:
            os.close(other)
        for work in (self._drain, self._wait):
            threading.Thread(target=work, daemon=True).start()

    def _drain(self) -> None:
        # The end of a terminal is an error.
        with contextlib.suppress(OSError):
            while data := os.read(self.descriptor, 1 << 16):
                with self.changed:
                    self.output += data
                    if (excess := len(self.output) - MAX_PENDING) > 0:
                        del self.output[:excess]
                        self.dropped += excess
        with self.changed:
            self.is_drained = True
            self.changed.notify_all()

    def _wait(self) -> None:
        self.process.wait()
        with self.changed:
            self.changed.notify_all()

    def take(self, seconds: float) -> tuple[bytes, int | None]:
        """Waits for the end, and returns the output since the last call and the status; None while it runs."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not (self.is_drained and self.process.poll() is not None):
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self.changed.wait(left)
            output, dropped = bytes(self.output), self.dropped
            self.output.clear()
            self.dropped = 0
            # Processes that it has left in the background may hold its output.
            code = self.process.poll()
        if dropped:
            output = f"[… {dropped} bytes are left out]\n".encode() + output
        return output, code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


_processes: dict[int, _Process] = {}


def start(number: int, command: list[str], cwd: str | None, env: dict[str, str], has_terminal: bool, name: str) -> None:
    """Starts a process. Beyond a number of them, the oldest is killed."""
    while len(_processes) >= MAX_PROCESSES:
        _processes.pop(next(iter(_processes))).kill()
    try:
        _processes[number] = _Process(command, cwd, env, has_terminal)
        reply({}, name)
    except OSError as error:
        _fail(error, name)


def poll(number: int, text: str, seconds: float, name: str) -> None:
    """Writes to a process, and replies with its output and, when it has ended, its status."""
    process = _processes.get(number)
    if process is None:
        reply({"error": "there is no such process", "errno": 3}, name)
        return
    if text and process.has_terminal:
        with contextlib.suppress(OSError):
            os.write(process.descriptor, text.encode())
    output, code = process.take(seconds)
    if code is not None:
        del _processes[number]
        if process.is_drained:
            os.close(process.descriptor)
    reply({"output": base64.b64encode(output).decode(), "code": code}, name)


def kill(number: int, name: str) -> None:
    """Kills a process."""
    if (process := _processes.pop(number, None)) is not None:
        process.kill()
    reply({}, name)


def remove(name: str) -> None:
    """Deletes a file of the session that was left for the host, or by it."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(ROOT, name))


def _fail(error: OSError, name: str) -> None:
    reply({"error": error.strerror or str(error), "errno": error.errno}, name)


def _contents(file: IO[bytes], limit: int) -> tuple[str, bool]:
    """Returns output in base64, without its middle if it is long, and whether it is."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= limit:
        return base64.b64encode(file.read()).decode(), False
    head = file.read(limit // 2)
    file.seek(size - limit // 2)
    left_out = f"\n[… {size - limit} bytes are left out]\n".encode()
    return base64.b64encode(head + left_out + file.read(limit // 2)).decode(), True

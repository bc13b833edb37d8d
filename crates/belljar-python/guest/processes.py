"""Processes. There are none; but a program that starts pip gets what pip would do."""

import inspect
import io
import os
import subprocess
import sys
import threading
from typing import Any, TextIO

from . import pip, refusals

_PID = 2
"""What a process that never was says its number is."""

_signature = inspect.signature(subprocess.Popen.__init__)


def install() -> None:
    """Patch what starts processes."""
    subprocess.Popen.__init__ = _start
    os.system = _system
    os.popen = _popen


def _start(self: subprocess.Popen[Any], *args: Any, **options: Any) -> None:
    """`subprocess.Popen`: pip has run when it returns."""
    asked = _signature.bind(self, *args, **options)
    asked.apply_defaults()
    given = asked.arguments
    out = io.StringIO()
    err = out if given["stderr"] == subprocess.STDOUT else io.StringIO()
    status = pip.run(given["args"], out, err, shell=given["shell"])
    if status is None:
        refusals.refuse_process()
    is_text = bool(given["text"] or given["universal_newlines"] or given["encoding"] or given["errors"])
    self.args, self.pid, self.returncode = given["args"], _PID, status
    self.encoding, self.errors, self.text_mode = given["encoding"], given["errors"], is_text
    self.pipesize = given["pipesize"]
    self._child_created, self._waitpid_lock = True, threading.Lock()
    self._input, self._communication_started, self._closed_child_pipe_fds = None, False, True
    self._sigint_wait_secs = 0.0
    self.stdin = None
    if given["stdin"] == subprocess.PIPE:
        self.stdin = io.StringIO() if is_text else io.BytesIO()  # type: ignore[assignment]
    self.stdout = _deliver(out.getvalue(), given["stdout"], is_text, sys.__stdout__)
    self.stderr = None if err is out else _deliver(err.getvalue(), given["stderr"], is_text, sys.__stderr__)
    self.communicate = _communicate.__get__(self)  # type: ignore[method-assign]


def _communicate(self: subprocess.Popen[Any], input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
    """As `Popen.communicate`, whose own would poll the descriptors that these streams do not have."""
    del input, timeout
    out, err = (None if stream is None else stream.read() for stream in (self.stdout, self.stderr))
    for stream in (self.stdin, self.stdout, self.stderr):
        if stream is not None:
            stream.close()
    return out, err


def _deliver(text: str, target: Any, is_text: bool, inherited: TextIO | None) -> Any:
    """Put output where it was asked for; for a pipe, answer its reading end."""
    if target == subprocess.PIPE:
        return io.StringIO(text) if is_text else io.BytesIO(text.encode())
    if target is None:
        if inherited is not None:
            inherited.write(text)
    elif target != subprocess.DEVNULL:
        if not isinstance(target, int):
            target.flush()
            target = target.fileno()
        os.write(target, text.encode())
    return None


def _system(command: str) -> int:
    """`os.system`."""
    status = pip.run(command, sys.__stdout__, sys.__stderr__, shell=True)
    if status is None:
        refusals.refuse_process()
    return status << 8


def _popen(cmd: str, mode: str = "r", buffering: int = -1) -> Any:
    """`os.popen`."""
    del buffering
    out = io.StringIO()
    if mode != "r" or pip.run(cmd, out, sys.__stderr__, shell=True) is None:
        refusals.refuse_process()
    out.seek(0)
    return out

"""Emulation of processes. They do not exist here, but a program that starts pip gets pip's effects and output."""

import inspect
import io
import os
import subprocess
import sys
import threading
from typing import Any, TextIO

from . import pip, unsupported

_PID = 2
"""The process ID of emulated processes."""

_signature = inspect.signature(subprocess.Popen.__init__)


def install() -> None:
    """Patches the functions that start processes."""
    subprocess.Popen.__init__ = _start
    os.system = _system
    os.popen = _popen


def _start(self: subprocess.Popen[Any], *args: Any, **options: Any) -> None:
    """Replaces `subprocess.Popen`: pip has finished when it returns."""
    bound = _signature.bind(self, *args, **options)
    bound.apply_defaults()
    arguments = bound.arguments
    out = io.StringIO()
    err = out if arguments["stderr"] == subprocess.STDOUT else io.StringIO()
    status = pip.run(arguments["args"], out, err, shell=arguments["shell"])
    if status is None:
        unsupported.refuse_process()
    is_text = bool(arguments["text"] or arguments["universal_newlines"] or arguments["encoding"] or arguments["errors"])
    self.args, self.pid, self.returncode = arguments["args"], _PID, status
    self.encoding, self.errors, self.text_mode = arguments["encoding"], arguments["errors"], is_text
    self.pipesize = arguments["pipesize"]
    self._child_created, self._waitpid_lock = True, threading.Lock()
    self._input, self._communication_started, self._closed_child_pipe_fds = None, False, True
    self._sigint_wait_secs = 0.0
    self.stdin = None
    if arguments["stdin"] == subprocess.PIPE:
        self.stdin = io.StringIO() if is_text else io.BytesIO()  # type: ignore[assignment]
    self.stdout = _redirect(out.getvalue(), arguments["stdout"], is_text, sys.__stdout__)
    self.stderr = None if err is out else _redirect(err.getvalue(), arguments["stderr"], is_text, sys.__stderr__)
    self.communicate = _communicate.__get__(self)  # type: ignore[method-assign]


def _communicate(self: subprocess.Popen[Any], input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
    """Replaces `Popen.communicate`, whose implementation polls file descriptors, which these streams do not have."""
    del input, timeout
    out, err = (None if stream is None else stream.read() for stream in (self.stdout, self.stderr))
    for stream in (self.stdin, self.stdout, self.stderr):
        if stream is not None:
            stream.close()
    return out, err


def _redirect(text: str, target: Any, is_text: bool, inherited: TextIO | None) -> Any:
    """Writes output to its target; for a pipe, returns its reading end."""
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
    """Replaces `os.system`."""
    status = pip.run(command, sys.__stdout__, sys.__stderr__, shell=True)
    if status is None:
        unsupported.refuse_process()
    return status << 8


def _popen(cmd: str, mode: str = "r", buffering: int = -1) -> Any:
    """Replaces `os.popen`."""
    del buffering
    out = io.StringIO()
    if mode != "r" or pip.run(cmd, out, sys.__stderr__, shell=True) is None:
        unsupported.refuse_process()
    out.seek(0)
    return out

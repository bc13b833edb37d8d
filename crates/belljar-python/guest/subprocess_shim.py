"""Emulation of processes. They do not exist here, but pip and the programs of `shell_commands` run in this process.

A program runs to its end when it is started, or, if the caller writes to its standard input, when that is closed or
when its output is read.
"""

import builtins
import inspect
import io
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from . import pip, shell_commands, unsupported

_pids = itertools.count(os.getpid() + 1)
_read_stdin = builtins.input
_signature = inspect.signature(subprocess.Popen.__init__)

type _Program = Callable[[TextIO, TextIO], int]


def install() -> None:
    """Patches the functions that start processes."""
    popen = subprocess.Popen
    popen.__init__ = _start  # type: ignore[method-assign]
    popen.communicate = _communicate  # type: ignore[method-assign]
    popen._internal_poll = _poll  # type: ignore[attr-defined]
    popen._wait = _wait  # type: ignore[attr-defined]
    popen.send_signal = _send_signal  # type: ignore[method-assign]
    popen.terminate = lambda self: _send_signal(self, 15)  # type: ignore[method-assign]
    popen.kill = lambda self: _send_signal(self, 9)  # type: ignore[method-assign]
    os.system = _system
    os.popen = _popen


def _find(args: Any, *, shell: bool) -> _Program:
    """Returns the function that runs a program or a shell's command line. Raises OSError for those that need a
    process."""
    if pip.is_pip(args, shell=shell):
        return lambda out, err: pip.run(args, out, err, shell=shell) or 0
    if isinstance(args, str | bytes | os.PathLike):
        words = [os.fsdecode(args)]
    else:
        words = [os.fsdecode(word) for word in args]
    if len(words) > 2 and os.path.basename(words[0]) in ("sh", "bash") and words[1] in ("-c", "-lc"):
        shell, words = True, words[2:]
    try:
        commands = shell_commands.parse(words[0]) if shell else [words]
    except shell_commands.CommandError:
        unsupported.refuse_process()
    if not all(shell_commands.is_known(command[0]) for command in commands):
        unsupported.refuse_process()
    return lambda out, err: shell_commands.run_parsed(commands, out, err)


def _start(self: subprocess.Popen[Any], *args: Any, **options: Any) -> None:
    """Replaces `subprocess.Popen.__init__`."""
    bound = _signature.bind(self, *args, **options)
    bound.apply_defaults()
    given = bound.arguments
    is_text = bool(given["text"] or given["universal_newlines"] or given["encoding"] or given["errors"])
    self.args, self.pid, self.returncode = given["args"], next(_pids), None
    self.encoding, self.errors, self.text_mode = given["encoding"], given["errors"], is_text
    self.pipesize = given["pipesize"]
    self._child_created, self._waitpid_lock = True, threading.Lock()
    self._input, self._communication_started, self._closed_child_pipe_fds = None, False, True
    self._sigint_wait_secs = 0.0
    program = _find(given["executable"] or given["args"], shell=given["shell"])
    child = self._child = _Child(self, program, given)
    self.stdin = self.stdout = self.stderr = None
    if given["stdout"] == subprocess.PIPE:
        self.stdout = child.open_output(child.out)
    if given["stderr"] == subprocess.PIPE:
        self.stderr = child.open_output(child.err)
    if given["stdin"] == subprocess.PIPE:
        stdin = _Input(child)
        self.stdin = io.TextIOWrapper(stdin, self.encoding, self.errors, write_through=True) if is_text else stdin
    else:
        child.run()


class _Child:
    """A program that runs once, in this process."""

    def __init__(self, popen: subprocess.Popen[Any], program: _Program, given: dict[str, Any]) -> None:
        self.stdin = b""
        self.out, self.err = io.BytesIO(), io.BytesIO()
        self.popen = popen
        self.has_begun = False
        self._program = program
        self._given = given
        if given["cwd"] is not None:
            os.stat(given["cwd"])

    def open_output(self, memory: io.BytesIO) -> Any:
        """Returns the reading end of the program's output in ``memory``."""
        reader = io.BufferedReader(_Output(self, memory))
        if not self.popen.text_mode:
            return reader
        return io.TextIOWrapper(reader, self.popen.encoding or "utf-8", self.popen.errors)

    def run(self) -> None:
        """Runs the program, if it has not run yet."""
        if self.has_begun:
            return
        self.has_begun = True
        given = self._given
        out = self._open_target(given["stdout"], self.out, sys.__stdout__)
        err = (
            out
            if given["stderr"] == subprocess.STDOUT
            else self._open_target(given["stderr"], self.err, sys.__stderr__)
        )
        status = 1
        try:
            with _directory(given["cwd"]), _environment(given["env"]), self._standard_input():
                status = self._program(out, err)
        finally:
            for stream, memory, target in ((out, self.out, given["stdout"]), (err, self.err, given["stderr"])):
                stream.flush()
                _write_to_target(memory, target)
            self.popen.returncode = status

    def _open_target(self, target: Any, memory: io.BytesIO, inherited: TextIO | None) -> TextIO:
        """Returns the stream that the program writes to."""
        if target is None and inherited is not None:
            return inherited
        return _TextPipe(memory, "utf-8", "surrogateescape", newline="\n", write_through=True)

    @contextmanager
    def _standard_input(self) -> Iterator[None]:
        source = self._given["stdin"]
        if source is None:
            yield
            return
        if source == subprocess.PIPE:
            data = self.stdin
        elif source == subprocess.DEVNULL:
            data = b""
        else:
            with open(source if isinstance(source, int) else source.fileno(), "rb", closefd=False) as file:
                data = file.read()
        saved, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data), "utf-8", "surrogateescape")
        # In sessions `input` sends a request to the client.
        saved_input, builtins.input = builtins.input, _read_stdin
        try:
            yield
        finally:
            sys.stdin, builtins.input = saved, saved_input


class _TextPipe(io.TextIOWrapper):
    """A program's output, which remains readable when the program has closed it."""

    def close(self) -> None:
        self.flush()


def _write_to_target(memory: io.BytesIO, target: Any) -> None:
    """Writes output to a file or file descriptor."""
    if target is None or target in (subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL):
        return
    if not isinstance(target, int):
        target.flush()
        target = target.fileno()
    left = memoryview(memory.getvalue())
    while left:
        left = left[os.write(target, left) :]


@contextmanager
def _directory(path: Any) -> Iterator[None]:
    saved = os.getcwd()
    try:
        if path is not None:
            os.chdir(path)
        yield
    finally:
        os.chdir(saved)


@contextmanager
def _environment(variables: Any) -> Iterator[None]:
    saved = dict(os.environ)
    try:
        if variables is not None:
            os.environ.clear()
            os.environ.update(variables)
        yield
    finally:
        if saved != os.environ:
            os.environ.clear()
            os.environ.update(saved)


class _Input(io.BytesIO):
    """The writing end of a program's standard input. The program runs when it is closed."""

    def __init__(self, child: _Child) -> None:
        super().__init__()
        self._child = child

    def close(self) -> None:
        if not self.closed:
            self._child.stdin = self.getvalue()
            super().close()
            self._child.run()

    def __del__(self) -> None:
        pass  # The program of a forgotten object does not run.


class _Output(io.RawIOBase):
    """The reading end of a program's output."""

    def __init__(self, child: _Child, memory: io.BytesIO) -> None:
        self._child = child
        self._memory = memory
        self._is_at_start = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if self._is_at_start:
            self._is_at_start = False
            _finish_input(self._child)
            self._memory.seek(0)
        return self._memory.readinto(buffer)


def _finish_input(child: _Child) -> None:
    stdin = child.popen.stdin
    if stdin is not None and not stdin.closed:
        stdin.close()
    child.run()


def _communicate(self: subprocess.Popen[Any], input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
    """Replaces `Popen.communicate`, whose implementation polls file descriptors, which these streams do not have."""
    del timeout
    if self.stdin is not None and not self.stdin.closed and input:
        self.stdin.write(input)
    _finish_input(self._child)
    out, err = (None if stream is None else stream.read() for stream in (self.stdout, self.stderr))
    for stream in (self.stdout, self.stderr):
        if stream is not None:
            stream.close()
    return out, err


def _poll(self: subprocess.Popen[Any], *args: object, **options: object) -> int | None:
    """Replaces `Popen.poll`."""
    return self.returncode


def _wait(self: subprocess.Popen[Any], timeout: float | None = None) -> int | None:
    """Replaces `Popen.wait`."""
    del timeout
    _finish_input(self._child)
    return self.returncode


def _send_signal(self: subprocess.Popen[Any], sig: int) -> None:
    """Replaces `Popen.send_signal`: a program that has not run yet never runs."""
    if self.returncode is None:
        self._child.has_begun = True
        self.returncode = -sig


def _system(command: str) -> int:
    """Replaces `os.system`."""
    return _find(command, shell=True)(sys.__stdout__, sys.__stderr__) << 8


def _popen(cmd: str, mode: str = "r", buffering: int = -1) -> Any:
    """Replaces `os.popen`."""
    del buffering
    if mode != "r":
        unsupported.refuse_process()
    program, out = _find(cmd, shell=True), io.StringIO()
    program(out, sys.__stderr__)
    out.seek(0)
    return out

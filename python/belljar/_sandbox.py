"""Sandboxes and sessions for synchronous code."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from . import _native, _options
from ._calls import Callbacks, Write
from ._errors import ArgumentTypeError, SandboxError, from_native
from ._options import Limits, Options
from ._run import ErrorInfo, FileInfo, Run, from_native as run_from_native
from ._tools import Tool

atexit.register(_native.shutdown)


class Sandbox:
    """Runs code, each piece in an interpreter of its own or in sessions, in this process.

    A sandbox has settings but no state, can be used from any number of threads, and need not be closed: closing ends
    its sessions.
    """

    def __init__(
        self,
        packages: Iterable[str] = (),
        *,
        limits: Limits | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        install: bool = True,
        index_url: str | None = None,
        find_links: Iterable[str | os.PathLike[str]] = (),
        offline: bool = False,
        cache: str | os.PathLike[str] | None = None,
        network: object = None,
    ) -> None:
        """Creates a sandbox.

        Args:
            packages: Requirements of packages for all code, such as ``numpy`` or ``pandas>=2,<3``.
            limits: The limits of each piece of code.
            tools: Functions of this process that the code can call: ``await weather(city="Berlin")``.
            install: If false, no packages are installed, neither those that the code imports nor with pip.
            index_url: A package index, instead of the default one.
            find_links: Directories of wheels.
            offline: If true, nothing is downloaded.
            cache: The directory of downloads and compiled packages, instead of the platform's.
            network: Reserved: code has no access to a network.
        """
        self._options = Options(packages, limits, tools, install, index_url, find_links, offline, cache, network)
        self._sessions: list[Session] = []
        self._is_closed = False
        self._is_noticed = False

    def run(
        self,
        code: str,
        *,
        globals: Mapping[str, Any] | None = None,
        packages: Iterable[str] = (),
        timeout: float | None = None,
        on_stdout: Write | None = None,
        on_stderr: Write | None = None,
    ) -> Run:
        """Runs code in a new interpreter, which nothing survives.

        Args:
            code: The code. The value of its last line is that of the run, if the line is an expression.
            globals: Variables for the code.
            packages: Further packages.
            timeout: The most seconds for this code.
            on_stdout: Receives the text that the code writes to standard output, while it runs.
            on_stderr: The same for standard error.
        """
        self._check_open()
        callbacks = self._callbacks(on_stdout, on_stderr)
        text, buffers, _ = _options.request(code, globals, timeout, packages, self._options.tools)
        streams = on_stdout is not None or on_stderr is not None
        return finish(start(callbacks, self._options.runtime.run, text, buffers, streams, None), callbacks)

    def session(self) -> Session:
        """Creates a session: an IPython that keeps its variables and files. Its first call starts it."""
        self._check_open()
        return self._add(self._options.runtime.session())

    def load(self, dump: bytes) -> Session:
        """Creates a session that continues from the bytes of `Session.dump`, which may be of another process."""
        self._check_open()
        if not isinstance(dump, (bytes, bytearray, memoryview)):
            raise ArgumentTypeError(f"dump: bytes are needed, not {type(dump).__name__}")
        try:
            native = self._options.runtime.load(bytes(dump))
        except _native.NativeError as error:
            raise from_native(error) from None
        return self._add(native)

    def prepare(self, *, sessions: bool = False) -> None:
        """Loads what the first run, or the first session, would otherwise wait for."""
        notice = wait(native_call(self._options.runtime.prepare, sessions, None, None))
        if notice is not None and not self._is_noticed:
            self._is_noticed = True
            warnings.warn(notice, RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        """Ends the sandbox's sessions."""
        self._is_closed = True
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.close()

    def __enter__(self) -> Sandbox:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _callbacks(self, on_stdout: Write | None, on_stderr: Write | None) -> Callbacks | None:
        options = self._options
        if not options.tools and on_stdout is None and on_stderr is None:
            return None
        return Callbacks(options.tools, None, on_stdout, on_stderr, options.max_calls)

    def _add(self, native: _native.Session) -> Session:
        session = Session(self, native)
        self._sessions.append(session)
        return session

    def _check_open(self) -> None:
        if self._is_closed:
            raise SandboxError("the sandbox is closed")


class Session:
    """An IPython in a sandbox that keeps its variables and files. Calls run one after the other."""

    def __init__(self, sandbox: Sandbox, native: _native.Session) -> None:
        self._sandbox = sandbox
        self._native = native
        self._modules: set[str] = set()
        self.files = SessionFiles(native)
        """The session's files."""

    def run(
        self,
        code: str,
        *,
        globals: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_stdout: Write | None = None,
        on_stderr: Write | None = None,
    ) -> Run:
        """Runs a cell. The arguments are those of `Sandbox.run`."""
        callbacks = self._sandbox._callbacks(on_stdout, on_stderr)
        text, buffers, needed = _options.request(code, globals, timeout, (), self._sandbox._options.tools)
        for name in sorted(needed - self._modules):
            # The variables need the package before the cell runs, which installs what the cell itself imports.
            imported, _, _ = _options.request(f"import {name} as _", None, None, (), {})
            finish(start(None, self._native.execute, imported, [], False, None), None)
            self._modules.add(name)
        streams = on_stdout is not None or on_stderr is not None
        return finish(start(callbacks, self._native.execute, text, buffers, streams, None), callbacks)

    def fork(self) -> Session:
        """Creates a session with the same variables and files. From then on they are independent."""
        return self._sandbox._add(wait(native_call(self._native.fork, None)))

    def dump(self) -> bytes:
        """Returns the variables and files as bytes, with which `Sandbox.load` continues the session."""
        dump: bytes = wait(native_call(self._native.dump, None))
        return dump

    def restart(self) -> None:
        """Replaces the interpreter by a new one. The files stay."""
        self._modules.clear()
        wait(native_call(self._native.restart, None))

    def close(self) -> None:
        """Ends the session and frees its memory."""
        if self in self._sandbox._sessions:
            self._sandbox._sessions.remove(self)
        wait(native_call(self._native.close, None))

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class SessionFiles:
    """The files in a session's working directory."""

    def __init__(self, native: _native.Session) -> None:
        self._native = native

    def list(self) -> list[FileInfo]:
        """Returns the files, without hidden ones."""
        return [FileInfo(path, size) for path, size in wait(native_call(self._native.list_files, None))]

    def read(self, path: str) -> bytes:
        """Returns the contents of a file."""
        contents: bytes = wait(native_call(self._native.read_file, path, None))
        return contents

    def write(self, path: str, contents: bytes | bytearray | memoryview) -> None:
        """Writes a file, replacing its contents."""
        wait(native_call(self._native.write_file, path, contents_of(contents), None))


def contents_of(contents: object) -> bytes:
    """Returns the contents of a file as bytes."""
    if not isinstance(contents, (bytes, bytearray, memoryview)):
        raise ArgumentTypeError(f"contents: bytes are needed, not {type(contents).__name__}")
    return bytes(contents)


def native_call(function: Callable[..., _native.Job], *arguments: Any) -> _native.Job:
    """Calls a method of the extension module."""
    try:
        return function(*arguments)
    except _native.NativeError as error:
        raise from_native(error) from None


def start(
    callbacks: Callbacks | None,
    function: Callable[..., _native.Job],
    text: str,
    buffers: list[bytes],
    streams: bool,
    on_end: Callable[[], object] | None,
) -> _native.Job:
    """Starts code."""
    job = native_call(function, text, buffers, callbacks, streams, on_end)
    if callbacks is not None:
        callbacks.job = job
    return job


def wait(job: _native.Job) -> Any:
    """Waits for a job and returns its result."""
    try:
        return job.wait()
    except _native.NativeError as error:
        raise from_native(error) from None


def finish(job: _native.Job, callbacks: Callbacks | None) -> Run:
    """Waits for code and returns its run."""
    try:
        return to_run(job.wait, callbacks)
    finally:
        if callbacks is not None:
            callbacks.end()


def to_run(take: Callable[[], Any], callbacks: Callbacks | None) -> Run:
    """Returns the run of a job that has ended. Raises what a function of the caller that receives output has raised."""
    try:
        result = take()
    except _native.NativeError as error:
        if callbacks is not None and callbacks.error is not None:
            raise callbacks.error from None
        kind, message = error.args
        if kind == "install":
            return Run("install-error", ErrorInfo("InstallError", message, ""))
        if kind == "cancelled":
            return Run("cancelled", ErrorInfo("Stopped", "the code was stopped before it began", ""))
        raise from_native(error) from None
    if callbacks is not None and callbacks.error is not None:
        raise callbacks.error
    return run_from_native(result, callbacks.calls if callbacks is not None else [])

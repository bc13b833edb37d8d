"""Sandboxes and sessions for synchronous code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _native
from ._arguments import name_of_new_file, path as to_text
from ._base import BaseSandbox, BaseSession
from ._jobs import contents_of, finish, native_call, start, wait
from ._options import request
from ._run import FileInfo, Run

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from ._calls import Write
    from ._options import Network


class SessionFiles:
    """The files in a session's working directory."""

    def __init__(self, native: _native.Session) -> None:
        self._native = native

    def list(self) -> list[FileInfo]:
        """Returns the files, without hidden ones."""
        return [FileInfo(path, size) for path, size in wait(native_call(self._native.list_files, None))]

    def read(self, path: str | os.PathLike[str]) -> bytes:
        """Returns the contents of a file."""
        contents: bytes = wait(native_call(self._native.read_file, to_text(path, "path"), None))
        return contents

    def write(self, path: str | os.PathLike[str], contents: bytes | bytearray | memoryview) -> None:
        """Writes a file into the session's directory, replacing its contents."""
        wait(native_call(self._native.write_file, name_of_new_file(path), contents_of(contents), None))


class Session(BaseSession):
    """An IPython in a sandbox that keeps its variables and files. Calls run one after the other."""

    def __init__(self, sandbox: Sandbox, native: _native.Session) -> None:
        super().__init__(sandbox, native)
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
        text, buffers, imports = self._requests(code, globals, timeout)
        for name, imported in imports:
            finish(start(None, self._native.execute, imported, [], False, None), None)
            self._modules.add(name)
        run: Run = self._sandbox._execute(self._native.execute, text, buffers, on_stdout, on_stderr)
        return run

    def fork(self) -> Session:
        """Creates a session with the same variables and files. From then on they are independent."""
        session: Session = self._sandbox._add(wait(native_call(self._native.fork, None)))
        return session

    def dump(self) -> bytes:
        """Returns the variables and files as bytes, with which `Sandbox.load` continues the session."""
        dump: bytes = wait(native_call(self._native.dump, None))
        return dump

    def paused(self) -> Run | None:
        """Returns the run of the paused cell, or None. It can be resumed instead of the run that
        `Session.run` has returned, which is lost when a session is loaded.
        """
        return self._paused_run(wait(native_call(self._native.paused, None))) if self._can_pause else None

    def restart(self) -> None:
        """Replaces the interpreter by a new one. The files stay."""
        self._modules.clear()
        wait(native_call(self._native.restart, None))

    def close(self) -> None:
        """Ends the session and frees its memory."""
        self._close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Sandbox(BaseSandbox[Session]):
    """Runs code, each piece in an interpreter of its own or in sessions, in this process.

    A sandbox has settings but no state, can be used from any number of threads, and need not be closed: closing ends
    its sessions.
    """

    _session_type = Session

    def run(
        self,
        code: str,
        *,
        globals: Mapping[str, Any] | None = None,
        packages: Iterable[str] = (),
        timeout: float | None = None,
        network: Network | None = None,
        on_stdout: Write | None = None,
        on_stderr: Write | None = None,
    ) -> Run:
        """Runs code in a new interpreter, which nothing survives.

        Args:
            code: The code. The value of its last line is that of the run, if the line is an expression.
            globals: Variables for the code.
            packages: Further packages.
            timeout: The most seconds for this code.
            network: Hosts or a policy that narrow the network of the sandbox for this code, as in `Sandbox.session`.
            on_stdout: Receives the text that the code writes to standard output, while it runs.
            on_stderr: The same for standard error.
        """
        self._check_open()
        text, buffers, _ = request(code, globals, timeout, packages, self._options, network)
        return self._execute(self._options.runtime.run, text, buffers, on_stdout, on_stderr)

    def load(self, dump: bytes) -> Session | Run:
        """Continues a session from the bytes of `Session.dump`, or a paused run from those of `Run.dump`. They may be
        of another process. Loaded twice, they give two that are independent.
        """
        return self._load(dump)

    def prepare(self, *, sessions: bool = False) -> None:
        """Loads what the first run, or the first session, would otherwise wait for. On a server, it connects."""
        self._check_open()
        self._warn(wait(native_call(self._options.runtime.prepare, sessions, None, None)))

    def tool_stubs(self) -> str:
        """Returns the tools as Python stubs, for a model that writes the code. Connects to MCP servers for that."""
        if self._options.remote_runtime is not None:
            from ._guest_sources import guest_source

            text: str = self.run(guest_source("tool_stubs")).check().value
            return text
        functions = self._function_stubs()
        if (runtime := self._options.stubs_runtime) is None:
            return functions
        return "\n\n".join(filter(None, [functions, wait(native_call(runtime.stubs, None))]))

    def close(self) -> None:
        """Ends the sandbox's sessions, and its connections to servers."""
        for session in self._take_sessions():
            session.close()
        if (runtime := self._options.connected_runtime) is not None:
            wait(native_call(runtime.close, None))

    def __enter__(self) -> Sandbox:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _execute(
        self, function: Any, text: str, buffers: list[bytes], on_stdout: Write | None, on_stderr: Write | None
    ) -> Run:
        callbacks = self._callbacks(None, on_stdout, on_stderr)
        streams = on_stdout is not None or on_stderr is not None
        return finish(start(callbacks, function, text, buffers, streams, None), callbacks, self)

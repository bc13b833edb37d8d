"""The sandbox of agents of deepagents: shell commands and files in a session with a native kernel.

>>> from belljar.deepagents import BelljarSandbox
>>> with BelljarSandbox() as sandbox:
...     agent = create_deep_agent(model, backend=sandbox.backend(), system_prompt=sandbox.instructions())
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

try:
    from deepagents.backends import CompositeBackend
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox
except ImportError as error:
    raise ImportError(
        f"belljar.deepagents needs deepagents and Python 3.11: pip install deepagents ({error})"
    ) from error

from ._errors import ArgumentError, FileError
from ._integration_sandbox import refuse_options
from ._shell import CommandError, CommandResult, Shell, shell_status
from ._steps import Steps, perform, perform_async
from .native import NativeServer

if TYPE_CHECKING:
    from types import TracebackType

    from deepagents.backends.protocol import BackendProtocol, GlobResult, GrepResult

    from ._integration_sandbox import AnySandbox

__all__ = ["BelljarSandbox"]

DEFAULT_TIMEOUT = 120
"""The most seconds of a command without a limit of its own."""

ARTIFACTS_ROOT = "/tmp/deepagents"
"""The directory of what deepagents stores itself, such as long results. The root directory cannot be written to."""

_MAX_OUTPUT = 4 << 20


class BelljarSandbox(BaseSandbox):
    """A sandbox of deepagents, with its ``SandboxBackendProtocol``, in a session with a native kernel.

    Commands run one after the other, in the directory ``/session``. This directory and ``/tmp`` can be written to, and
    stay until the sandbox is closed. Results and errors of ``ls``, ``read``, ``grep``, ``glob``, ``write`` and
    ``edit`` are those of deepagents' ``BaseSandbox``, which runs their commands in the session.
    """

    # The programs of /usr are those of the machine: a POSIX shell and coreutils.
    enable_capture_offload = True

    def __init__(
        self,
        sandbox: AnySandbox | None = None,
        *,
        timeout: int = DEFAULT_TIMEOUT,
        max_output: int = _MAX_OUTPUT,
        **options: Any,
    ) -> None:
        """Creates a sandbox.

        Args:
            sandbox: A sandbox of `belljar.native.NativeServer`, or of `belljar.connect` to a server with ``--sandbox
                native``. By default a new server is started, which ends with `close`.
            timeout: The most seconds of a command without a limit of its own.
            max_output: The bytes of a command's output beyond which the middle is left out.
            **options: The options of a new server: those of `belljar.native.NativeServer`, such as ``venv``.
        """
        if timeout <= 0:
            raise ArgumentError(f"timeout: {timeout!r} is not a positive number of seconds")
        if sandbox is not None:
            refuse_options(options, "sandbox")
        self._server = NativeServer(**options) if sandbox is None else None
        try:
            box: Any = self._server.connect() if self._server is not None else sandbox
            self._shell = Shell(box, max_output=max_output)
        except BaseException:
            self._close_server()
            raise
        self._timeout = timeout
        self._id = f"belljar-{uuid.uuid4().hex[:12]}"

    @property
    def id(self) -> str:
        """The identifier of the sandbox in this process."""
        return self._id

    def backend(self, routes: Mapping[str, BackendProtocol] | None = None) -> CompositeBackend:
        """Returns the backend for an agent, which stores deepagents' own files where the sandbox can write.

        Args:
            routes: Further backends by the prefix of their paths, such as ``{"/memories/": StoreBackend()}``.
        """
        return CompositeBackend(default=self, routes=dict(routes or {}), artifacts_root=ARTIFACTS_ROOT)

    def instructions(self) -> str:
        """Returns what a model has to know about the sandbox, for the system prompt. Starts the session."""
        return _INSTRUCTIONS.format(root=self._shell.root())

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. A timeout of 0 is the server's, an hour by default."""
        if (refused := _refused(command)) is not None:
            return refused
        seconds = self._seconds(timeout)
        try:
            return _response(self._shell.execute(command, timeout=seconds, merged=True), seconds)
        except CommandError as error:
            return _failed(error)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. Cancelling the call kills it."""
        if (refused := _refused(command)) is not None:
            return refused
        seconds = self._seconds(timeout)
        try:
            return _response(await self._shell.aexecute(command, timeout=seconds, merged=True), seconds)
        except CommandError as error:
            return _failed(error)

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Searches for a text in files, by default in those of the working directory."""
        return super().grep(pattern, path or self._shell.root(), glob, max_count=max_count)

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Searches for a text in files, by default in those of the working directory."""
        return await super().agrep(pattern, path or await self._shell.aroot(), glob, max_count=max_count)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Searches for files by their names, by default in the working directory."""
        return super().glob(pattern, path or self._shell.root())

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Searches for files by their names, by default in the working directory."""
        return await super().aglob(pattern, path or await self._shell.aroot())

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, and the directories in which they are."""
        return perform(_upload(files), self._shell.write)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, and the directories in which they are."""
        return await perform_async(_upload(files), self._shell.awrite)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files."""
        return perform(_download(paths), self._shell.read)

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files."""
        return await perform_async(_download(paths), self._shell.aread)

    def close(self) -> None:
        """Ends the session, and the server if the sandbox has started it."""
        try:
            if self._server is None:
                self._shell.close()
        finally:
            self._close_server()

    def __enter__(self) -> BelljarSandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()

    def _seconds(self, timeout: int | None) -> float | None:
        if timeout is None:
            return self._timeout
        if timeout < 0:
            raise ArgumentError(f"timeout: {timeout!r} is negative")
        return timeout or None


_INSTRUCTIONS = """Shell commands and files are in a sandbox. Its working directory is {root}: write files there, or in \
/tmp, by absolute paths. Other directories cannot be written to. Python and pip are available; commands run one after \
the other."""


def _refused(command: object) -> ExecuteResponse | None:
    if isinstance(command, str) and command and "\0" not in command:
        return None
    return ExecuteResponse(output="Error: Command must be a non-empty string without null bytes.", exit_code=1)


def _response(result: CommandResult, seconds: float | None) -> ExecuteResponse:
    output = result.stdout.decode(errors="replace")
    if result.timed_out:
        output = f"{output.rstrip()}\nError: Command timed out after {seconds:g} seconds.".lstrip("\n")
        return ExecuteResponse(output=output, exit_code=124, truncated=result.truncated)
    return ExecuteResponse(output=output, exit_code=shell_status(result.exit_code), truncated=result.truncated)


def _failed(error: CommandError) -> ExecuteResponse:
    return ExecuteResponse(output=f"Error: {error}", exit_code=None)


def _upload(files: list[tuple[str, bytes]]) -> Steps[list[FileUploadResponse]]:
    """Writes files with the function that the steps receive."""
    responses = []
    for path, contents in files:
        error = _path_error(path)
        if error is None:
            try:
                yield lambda write, path=path, contents=contents: write(path, contents)
            except (OSError, CommandError) as raised:
                error = _file_error(raised)
        responses.append(FileUploadResponse(path=path, error=error))
    return responses


def _download(paths: list[str]) -> Steps[list[FileDownloadResponse]]:
    """Reads files with the function that the steps receive."""
    responses = []
    for path in paths:
        contents, error = None, _path_error(path)
        if error is None:
            try:
                contents = yield lambda read, path=path: read(path)
            except (OSError, CommandError) as raised:
                error = _file_error(raised)
        responses.append(FileDownloadResponse(path=path, content=contents, error=error))
    return responses


def _path_error(path: str) -> str | None:
    return None if path.startswith("/") and "\0" not in path else "invalid_path"


def _file_error(error: Exception) -> str:
    """Returns deepagents' code for an error, or its text without one."""
    # Errors of the connection and of the session's own files are not about the path.
    if isinstance(error, (CommandError, FileError)):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "file_not_found"
    if isinstance(error, IsADirectoryError):
        return "is_directory"
    if isinstance(error, PermissionError) or getattr(error, "errno", None) == 30:
        return "permission_denied"
    if isinstance(error, NotADirectoryError) or getattr(error, "errno", None) in (22, 36, 40):
        return "invalid_path"
    return str(error)

"""Sessions of sandbox agents of the OpenAI Agents SDK, in native kernels."""

from __future__ import annotations

import asyncio
import contextlib
import io
import secrets
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    PtySessionNotFoundError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import BaseSandboxClient, BaseSandboxSession, SandboxSession, SandboxSessionState
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.pty_types import (
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes

from ._errors import BelljarError, FileError
from ._integration_sandbox import refuse_options
from ._shell import CommandError, Shell, shell_status
from .native import NativeServer

if TYPE_CHECKING:
    from types import TracebackType

    from ._integration_sandbox import AnySandbox

_DEFAULT_ROOT = Manifest.model_fields["root"].default
_POLL_SECONDS = 0.25
WORKSPACE = "/session/workspace"
"""The workspace of sessions whose manifest does not name one. The root directory cannot be written to."""


class BelljarSandboxSessionState(SandboxSessionState):
    """The state of a session, from which `BelljarSandboxClient.resume` continues with its snapshot."""

    type: Literal["belljar"] = "belljar"


class BelljarSandboxSession(BaseSandboxSession):
    """A session of a sandbox agent, in a native kernel. Commands run one after the other, as one user."""

    state: BelljarSandboxSessionState

    def __init__(self, state: BelljarSandboxSessionState, shell: Shell, timeout: float | None, max_output: int) -> None:
        """Creates a session. The client does so."""
        self.state = state
        self._shell = shell
        self._timeout = timeout
        self._max_output = max_output
        self._processes: set[int] = set()
        self._is_started = False

    async def _prepare_backend_workspace(self) -> None:
        root = self.state.manifest.root
        try:
            made = await self._shell.aexecute(["mkdir", "-p", "--", root], cwd="/")
        except (BelljarError, OSError) as error:
            raise WorkspaceStartError(path=Path(root), cause=error) from error
        if made.exit_code != 0:
            reason = made.stderr.decode(errors="replace").strip()
            context = {"reason": f"{reason}; a workspace is below /session or /tmp"}
            raise WorkspaceStartError(path=Path(root), context=context)
        self._is_started = True

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        _check_user(user, command)
        return super()._prepare_exec_command(*command, shell=shell, user=None)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        arguments = [str(part) for part in command]
        env = await self.state.manifest.environment.resolve()
        seconds = self._timeout if timeout is None else max(timeout, 0.001)
        cwd = self.state.manifest.root if self._is_started else None
        try:
            result = await self._shell.aexecute(arguments, timeout=seconds, cwd=cwd, env=env)
        except FileNotFoundError as error:
            return ExecResult(stdout=b"", stderr=f"{error.strerror}\n".encode(), exit_code=127)
        except CommandError as error:
            if error.limit == "time":
                raise ExecTimeoutError(command=command, timeout_s=seconds, cause=error) from error
            raise ExecTransportError(command=command, message=str(error), cause=error) from error
        except (BelljarError, OSError) as error:
            raise ExecTransportError(command=command, message=str(error), cause=error) from error
        if result.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=seconds)
        return ExecResult(stdout=result.stdout, stderr=result.stderr, exit_code=shell_status(result.exit_code))

    def supports_pty(self) -> bool:
        """Returns true: processes can go on between the calls of a model, with a terminal or without."""
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Starts a process, and returns its output after its end or after ``yield_time_s``."""
        arguments = self._prepare_exec_command(*command, shell=shell, user=user)
        env = await self.state.manifest.environment.resolve()
        number = allocate_pty_process_id(self._processes)
        try:
            await self._shell.astart(number, arguments, cwd=self.state.manifest.root, env=env, terminal=tty)
        except (BelljarError, OSError) as error:
            raise ExecTransportError(command=command, message=str(error), cause=error) from error
        self._processes.add(number)
        seconds = 10.0 if yield_time_s is None else yield_time_s
        return await self._update(number, "", clamp_pty_yield_time_ms(int(seconds * 1000)), max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Writes to a process with a terminal, and returns its further output."""
        if session_id not in self._processes:
            raise PtySessionNotFoundError(session_id=session_id)
        seconds = 0.25 if yield_time_s is None else yield_time_s
        wait_ms = resolve_pty_write_yield_time_ms(yield_time_ms=int(seconds * 1000), input_empty=not chars)
        return await self._update(session_id, chars, wait_ms, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        """Kills the processes that `pty_exec_start` has started."""
        processes, self._processes = self._processes, set()
        for number in processes:
            if not self._shell.is_closed:
                with contextlib.suppress(BelljarError):
                    await self._shell.akill(number)

    async def _update(self, number: int, text: str, wait_ms: int, max_output_tokens: int | None) -> PtyExecUpdate:
        deadline = time.monotonic() + wait_ms / 1000
        output = bytearray()
        code: int | None = None
        while code is None:
            try:
                # Short waits, between which other commands of the session run.
                left = max(deadline - time.monotonic(), 0)
                more, code = await self._shell.apoll(number, text, min(left, _POLL_SECONDS))
            except ProcessLookupError:
                self._processes.discard(number)
                raise PtySessionNotFoundError(session_id=number) from None
            except (BelljarError, OSError) as error:
                raise ExecTransportError(command=(str(number),), message=str(error), cause=error) from error
            output += more
            del output[: -self._max_output]
            text = ""
            if time.monotonic() >= deadline:
                break
        if code is not None:
            self._processes.discard(number)
            code = shell_status(code)
        shown, tokens = truncate_text_by_tokens(output.decode(errors="replace"), max_output_tokens)
        return PtyExecUpdate(
            process_id=number if code is None else None,
            output=shown.encode(),
            exit_code=code,
            original_token_count=tokens,
        )

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Reads a file."""
        _check_user(user, ("read", path))
        target = await self._validate_path_access(path)
        return io.BytesIO(await self._contents(target.as_posix(), path))

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Writes a file, and the directories in which it is."""
        _check_user(user, ("write", path))
        target = await self._validate_path_access(path, for_write=True)
        contents = data.read()
        if not isinstance(contents, (bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(contents).__name__)
        await self._write(target.as_posix(), bytes(contents), path)

    async def running(self) -> bool:
        """Returns whether the session can be used."""
        return self._is_started and not self._shell.is_closed

    async def persist_workspace(self) -> io.IOBase:
        """Returns the workspace as a tar archive, without what its manifest excludes."""
        root = self.state.manifest.root
        archive = await self._archive_path()
        excluded = [f"--exclude=./{path.as_posix()}" for path in sorted(self._persist_workspace_skip_relpaths())]
        try:
            made = await self._exec_internal("tar", *excluded, "--no-wildcards", "-C", root, "-cf", archive, ".")
            if not made.ok():
                reason = made.stderr.decode(errors="replace")
                raise WorkspaceArchiveReadError(path=Path(root), context={"reason": "tar failed", "stderr": reason})
            return io.BytesIO(await self._contents(archive, Path(root)))
        finally:
            await self._exec_internal("rm", "-f", "--", archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Adds the files of a tar archive to the workspace."""
        root = Path(self.state.manifest.root)
        contents = data.read()
        if not isinstance(contents, (bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=root, actual_type=type(contents).__name__)
        contents = bytes(contents)
        try:
            validate_tar_bytes(contents, allow_external_symlink_targets=False)
        except UnsafeTarMemberError as error:
            context = {"reason": "unsafe_or_invalid_tar", "member": error.member, "detail": str(error)}
            raise WorkspaceArchiveWriteError(path=root, context=context, cause=error) from error
        archive = await self._archive_path()
        await self._write(archive, contents, root)
        try:
            # The sandbox may not allow changes of times, owners and modes.
            options = ["--touch", "--no-same-owner", "--no-same-permissions", "-C", root.as_posix()]
            extracted = await self._exec_internal("tar", *options, "-xf", archive)
            if not extracted.ok():
                reason = extracted.stderr.decode(errors="replace")
                raise WorkspaceArchiveWriteError(path=root, context={"reason": "tar failed", "stderr": reason})
        finally:
            await self._exec_internal("rm", "-f", "--", archive)

    async def _shutdown_backend(self) -> None:
        self._is_started = False
        await self._shell.aclose()

    async def _archive_path(self) -> str:
        return f"{await self._shell.aroot()}/belljar-{secrets.token_hex(8)}.tar"

    async def _contents(self, target: str, path: Path) -> bytes:
        try:
            return await self._shell.aread(target)
        except FileNotFoundError as error:
            if isinstance(error, FileError):
                raise WorkspaceArchiveReadError(path=path, cause=error) from error
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except (BelljarError, OSError) as error:
            raise WorkspaceArchiveReadError(path=path, context={"reason": str(error)}, cause=error) from error

    async def _write(self, target: str, contents: bytes, path: Path) -> None:
        try:
            await self._shell.awrite(target, contents)
        except (BelljarError, OSError) as error:
            raise WorkspaceArchiveWriteError(path=path, context={"reason": str(error)}, cause=error) from error


def _check_user(user: str | User | None, command: Sequence[str | Path]) -> None:
    """Refuses a user other than that of the session."""
    if user:
        name = user.name if isinstance(user, User) else user
        raise ExecTransportError(command=command, message=f"sessions of Belljar have one user, not {name!r}")


class BelljarSandboxClient(BaseSandboxClient[None]):
    """The client of sandbox agents, for ``SandboxRunConfig(client=…)``.

    Each session has a native kernel of its own. Its files end with it, unless the run has a snapshot.
    """

    backend_id = "belljar"
    supports_default_options = True

    def __init__(
        self,
        sandbox: AnySandbox | None = None,
        *,
        timeout: float | None = None,
        max_output: int = 4 << 20,
        instrumentation: Instrumentation | None = None,
        **options: Any,
    ) -> None:
        """Creates a client.

        Args:
            sandbox: A sandbox of `belljar.native.NativeServer`, or of `belljar.connect_async` to a server with
                ``--sandbox native``. By default the first session starts a server, which ends with `aclose`.
            timeout: The most seconds of a command without a limit of its own. By default that of the server.
            max_output: The bytes of a command's output beyond which the middle is left out, for each stream.
            instrumentation: The instrumentation of the SDK.
            **options: The options of a new server: those of `belljar.native.NativeServer`, such as ``venv``.
        """
        if sandbox is not None:
            refuse_options(options, "sandbox")
        self._sandbox = sandbox
        self._options = options
        self._timeout = timeout
        self._max_output = max_output
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()
        self._server: NativeServer | None = None
        self._lock = asyncio.Lock()

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: None = None,
    ) -> SandboxSession:
        """Creates a session. Its workspace is ``/session/workspace`` if the manifest does not name another one."""
        manifest = manifest if manifest is not None else Manifest()
        self._validate_manifest_for_create(manifest)
        if manifest.root == _DEFAULT_ROOT:
            manifest = manifest.model_copy(update={"root": WORKSPACE}, deep=True)
        session_id = uuid.uuid4()
        state = BelljarSandboxSessionState(
            session_id=session_id, manifest=manifest, snapshot=resolve_snapshot(snapshot, str(session_id))
        )
        return await self._start(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Creates a session that continues with the snapshot of a state."""
        if not isinstance(state, BelljarSandboxSessionState):
            raise TypeError("BelljarSandboxClient.resume expects a BelljarSandboxSessionState")
        state.assert_path_grants_rebound()
        # Kernels do not outlive their sessions.
        state.workspace_root_ready = False
        return await self._start(state)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends a session with its files."""
        inner = session._inner
        if not isinstance(inner, BelljarSandboxSession):
            raise TypeError("BelljarSandboxClient.delete expects a BelljarSandboxSession")
        await inner._shutdown_backend()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Returns the state that `serialize_session_state` has written."""
        return self._deserialize_session_state_payload(payload, BelljarSandboxSessionState)

    async def aclose(self) -> None:
        """Ends the server, if the client has started one, with all sessions."""
        async with self._lock:
            server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.close)

    async def __aenter__(self) -> BelljarSandboxClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _start(self, state: BelljarSandboxSessionState) -> SandboxSession:
        sandbox = self._sandbox
        if sandbox is None:
            async with self._lock:
                if self._server is None:
                    self._server = await asyncio.to_thread(lambda: NativeServer(**self._options))
                sandbox = self._server.connect_async()
        shell = Shell(sandbox, max_output=self._max_output)
        inner = BelljarSandboxSession(state, shell, self._timeout, self._max_output)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

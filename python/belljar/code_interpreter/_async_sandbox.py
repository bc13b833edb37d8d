"""`AsyncSandbox`: E2B's class for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import _asyncio as belljar
from ._commands import AsyncCommands
from ._core import Core, Registry
from ._errors import UnsupportedException, translated
from ._filesystem import AsyncFilesystem
from ._handle import NO_MCP, NO_METRICS, NO_UPDATE, BaseHandle, is_only_files, outcomes, receiver
from ._info import AsyncPaginator, SandboxInfo, SandboxQuery, SnapshotInfo
from ._models import Context, Execution, ExecutionError, OutputMessage, Result
from ._output import Write
from ._relay import call, relayed
from ._settings import check_connection
from .._steps import Steps, T, perform_async
from ._variants import by_id, by_id_or, by_optional_id

if TYPE_CHECKING:
    from typing_extensions import Self


async def _false() -> bool:
    return False


class AsyncSandbox(BaseHandle):
    """The same as `Sandbox`, for asyncio. Cancelling a call stops its code.

    Methods that take ``**opts``, the options of the connection to E2B, ignore them; those that name another server are
    errors. Calls of a sandbox run one after the other.
    """

    _registry = Registry()
    _box_type = belljar.AsyncSandbox

    def __init__(
        self,
        template: str | None = None,
        timeout: float | None = None,
        *,
        box: belljar.AsyncSandbox | None = None,
        **arguments: Any,
    ) -> None:
        """Creates a sandbox, whose first call starts it. The arguments are those of `create`."""
        core = self._open(template, timeout, box, **arguments)
        self._set(core)

    @classmethod
    async def create(
        cls,
        template: str | None = None,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        secure: bool | None = None,
        allow_internet_access: bool | None = None,
        mcp: Any = None,
        network: Mapping[str, Any] | None = None,
        iam: Any = None,
        lifecycle: Mapping[str, Any] | None = None,
        volume_mounts: Any = None,
        logger: Any = None,
        idempotency_key: str | None = None,
        *,
        box: belljar.AsyncSandbox | None = None,
        **opts: Any,
    ) -> Self:
        """Creates a sandbox.

        Args:
            template: The ID or a name of a snapshot. There are no other templates.
            timeout: The seconds after which it ends, 300 by default.
            metadata: Texts by which `list` finds it.
            envs: Environment variables.
            secure: No effect.
            allow_internet_access: True allows connections to all public hosts, false to none. By default there are
                the connections that the box allows; without a box, no connections.
            mcp: Not supported.
            network: ``allow_out``, a list of hosts and addresses, and ``deny_out``, a list of addresses.
            iam: Not supported.
            lifecycle: ``{"on_timeout": "pause", "auto_resume": True}`` pauses the sandbox at its timeout.
            volume_mounts: Not supported.
            logger: No effect.
            idempotency_key: No effect.
            box: The sandbox of Belljar to which the session belongs, with its packages, limits, tools and network; or
                that of a server: `belljar.connect`. It stays open.
        """
        sandbox = cls(
            template,
            timeout,
            box=box,
            metadata=metadata,
            envs=envs,
            secure=secure,
            allow_internet_access=allow_internet_access,
            mcp=mcp,
            network=network,
            iam=iam,
            lifecycle=lifecycle,
            volume_mounts=volume_mounts,
            logger=logger,
            idempotency_key=idempotency_key,
            **opts,
        )
        await sandbox._begin()
        return sandbox

    @classmethod
    async def load(cls, state: bytes, timeout: float | None = None, *, box: belljar.AsyncSandbox | None = None) -> Self:
        """Continues a sandbox from the bytes of `dump`, also in another process. E2B has no such method.

        Args:
            state: The bytes. They are not signed: load only those that you have written.
            timeout: The seconds after which it ends, 300 by default.
            box: One with the packages and tools of that of the dump.
        """
        core = cls._load(state, timeout, box)
        sandbox = cls._of(core)
        await sandbox._begin()
        return sandbox

    def _set(self, core: Core) -> None:
        super()._set(core)
        self._files, self._commands = AsyncFilesystem(core), AsyncCommands(core)

    async def _begin(self) -> None:
        try:
            await self._do(self._core.begin())
        except BaseException:
            with translated():
                await perform_async(self._core.kill())
            raise

    async def _do(self, work: Steps[T]) -> T:
        return await self._core.perform_async(work)

    @property
    def files(self) -> AsyncFilesystem:
        """The files of the sandbox."""
        return self._files

    @property
    def commands(self) -> AsyncCommands:
        """The commands of the sandbox."""
        return self._commands

    async def run_code(
        self,
        code: str,
        language: str | None = None,
        context: Context | None = None,
        on_stdout: Callable[[OutputMessage], Any] | None = None,
        on_stderr: Callable[[OutputMessage], Any] | None = None,
        on_result: Callable[[Result], Any] | None = None,
        on_error: Callable[[ExecutionError], Any] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> Execution:
        """Runs a cell.

        Args:
            code: The code.
            language: ``python``. Others are not supported.
            context: A context of this sandbox instead of the default one.
            on_stdout: Receives output while the code runs; a function, or an async one.
            on_stderr: The same for standard error.
            on_result: Receives each result, after the code has ended.
            on_error: Receives the error, after the code has ended.
            envs: Environment variables for this cell.
            timeout: The most seconds, 300 by default; 0 is no limit.
            request_timeout: No effect.

        Raises:
            TimeoutException: The code took longer. Variables stay.
            SandboxNotRunningException: The sandbox has ended or is paused, also if that happens meanwhile.
        """

        async def begin(*write: Write | None) -> Execution:
            return await self._do(self._core.run_code(code, language, context, envs, timeout, *write))

        execution = await relayed(begin, receiver(on_stdout, False), receiver(on_stderr, True))
        for handler, argument in outcomes(execution, on_result, on_error):
            await call(handler, argument)
        return execution

    async def create_code_context(
        self, cwd: str | None = None, language: str | None = None, request_timeout: float | None = None
    ) -> Context:
        """Creates a context with variables of its own. The files and the imported modules are those of the sandbox."""
        return await self._do(self._core.create_context(cwd, language, request_timeout))

    async def list_code_contexts(self) -> list[Context]:
        """Returns the contexts, with the default one."""
        return await self._do(self._core.list_contexts())

    async def restart_code_context(self, context: Context | str) -> None:
        """Drops the variables of a context, and if it is the only one, starts a new interpreter."""
        await self._do(self._core.restart_context(context))

    async def remove_code_context(self, context: Context | str) -> None:
        """Removes a context. If it is the default one, code without a context gets a new one."""
        await self._do(self._core.remove_context(context))

    async def is_running(self, request_timeout: float | None = None) -> bool:
        """Returns whether the sandbox has neither ended nor is paused."""
        return self._is_alive()

    @by_id_or(_false)
    async def kill(self, /, **opts: Any) -> bool:
        """Ends the sandbox, and stops its code. Returns False if it has ended already."""
        check_connection(opts)
        with translated():
            return await perform_async(self._core.kill())

    @by_id
    async def set_timeout(self, /, timeout: float, **opts: Any) -> None:
        """Sets the seconds from now after which the sandbox ends."""
        self._set_timeout(timeout, opts)

    @by_id
    async def get_info(self, /, **opts: Any) -> SandboxInfo:
        """Returns a description of the sandbox."""
        return self._info(opts)

    @by_id
    async def get_metrics(self, /, start: datetime | None = None, end: datetime | None = None, **opts: Any) -> Any:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(NO_METRICS)

    @by_id
    async def update_network(self, /, network: Mapping[str, Any], **opts: Any) -> None:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(NO_UPDATE)

    @by_id
    async def connect(
        self, /, timeout: float | None = None, *, on_resume: str = "restore", **opts: Any
    ) -> AsyncSandbox:
        """Returns the sandbox, continued if it was paused.

        Args:
            timeout: The seconds from now after which it ends. A longer time that was set before stays.
            on_resume: ``restore`` continues with the variables, and ``reboot`` without them.
        """
        check_connection(opts)
        await self._do(self._core.connect(timeout, on_resume))
        return self

    @by_id
    async def pause(
        self, /, keep_memory: bool | None = None, *, mode: str | None = None, strict: bool = False, **opts: Any
    ) -> bool:
        """Saves the sandbox in this process and frees its memory, until `connect` continues it.

        Args:
            keep_memory: False is ``mode="filesystem"``.
            mode: ``full``, or ``filesystem``, which drops the variables.
            strict: No effect.

        Returns:
            False if it was paused already.
        """
        check_connection(opts)
        return await self._do(self._core.pause(is_only_files(mode, keep_memory)))

    @by_id
    async def beta_pause(self, /, keep_memory: bool | None = None, *, mode: str | None = None, **opts: Any) -> bool:
        """Does the same as `pause`."""
        check_connection(opts)
        return await self._do(self._core.pause(is_only_files(mode, keep_memory)))

    @by_id
    async def fork(
        self, /, timeout: float | None = None, count: int | None = None, **opts: Any
    ) -> list[AsyncSandbox | Exception]:
        """Creates sandboxes with the same variables and files. From then on they are independent.

        Args:
            timeout: The seconds after which they end, 300 by default.
            count: Their number, from 1 to 20.

        Returns:
            The sandboxes. For those that could not be created, exceptions.
        """
        check_connection(opts)
        forks = await self._do(self._core.fork(timeout, count))
        return [fork if isinstance(fork, Exception) else self._of(fork) for fork in forks]

    @by_id
    async def create_snapshot(
        self, /, name: str | None = None, *, mode: str | None = None, **opts: Any
    ) -> SnapshotInfo:
        """Saves the state in this process: ``Sandbox.create(snapshot_id)`` creates sandboxes with it.

        Args:
            name: A name that can be used instead of the ID. The last snapshot with it counts.
            mode: ``full``, or ``filesystem``, which drops the variables.
        """
        check_connection(opts)
        return await self._do(self._core.snapshot(name, is_only_files(mode, None)))

    @by_id
    async def dump(self, /) -> bytes:
        """Returns the sandbox as bytes, with which `load` continues it. E2B has no such method."""
        return await self._do(self._core.dump())

    @classmethod
    async def delete_snapshot(cls, snapshot_id: str, **opts: Any) -> bool:
        """Deletes a snapshot. Returns False if it does not exist."""
        return cls._delete_snapshot(snapshot_id, opts)

    @by_optional_id
    def list_snapshots(
        cls: type[BaseHandle],
        sandbox_id: str | None,
        /,
        limit: int | None = None,
        next_token: str | None = None,
        name: str | None = None,
        **opts: Any,
    ) -> AsyncPaginator[SnapshotInfo]:
        """Returns the snapshots of this sandbox; called on the class without an ID, all."""
        return AsyncPaginator(cls._snapshots(sandbox_id, name, opts), limit, next_token)

    async def get_mcp_token(self) -> str | None:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(NO_MCP)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.kill()

    # Last, since it hides the type of the same name.
    @classmethod
    def list(
        cls,
        query: SandboxQuery | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        order: str | None = None,
        **opts: Any,
    ) -> AsyncPaginator[SandboxInfo]:
        """Returns the sandboxes of this process that run or are paused, the newest first."""
        return AsyncPaginator(cls._infos(query, order, opts), limit, next_token)

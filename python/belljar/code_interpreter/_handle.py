"""The parts that `Sandbox` and `AsyncSandbox` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from . import _core
from ._core import Core, Registry
from ._errors import (
    InvalidArgumentException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    UnsupportedException,
    translated,
)
from ._info import SandboxInfo, SandboxQuery, SandboxState, SnapshotInfo
from ._models import Execution, OutputMessage
from ._settings import TEMPLATE, TIMEOUT, check_connection, lifetime, settings
from ._variants import refused

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._settings import Settings

NO_METRICS = "get_metrics: not measured; `belljar.Sandbox.run` returns the time and the memory of each run"
NO_UPDATE = "update_network: the network is that with which the sandbox was created"
NO_MCP = "get_mcp_token: there is no MCP gateway; `belljar.Sandbox(tools=…)` has tools of MCP servers"
_NO_PORTS = "nothing in the sandbox can listen, so that it has no addresses"
_NO_ENVD = "Belljar has no service of E2B in its sandboxes"


class BaseHandle:
    """A handle of a sandbox. Several can be of the same one."""

    default_template: ClassVar[str] = TEMPLATE
    """The only template."""
    default_sandbox_timeout: ClassVar[int] = int(TIMEOUT)
    """The seconds after which a sandbox ends, unless ``timeout`` says otherwise."""
    sandbox_domain: ClassVar[str | None] = None
    """Always None."""
    traffic_access_token: ClassVar[str | None] = None
    """Always None."""

    pty = refused("there are no terminals; `commands.run` runs commands")
    git = refused("there is no git; with native kernels, `commands.run` runs it")
    connection_config = refused("there is no connection to E2B")
    envd_api_url = refused(_NO_ENVD)
    envd_direct_url = refused(_NO_ENVD)

    _registry: ClassVar[Registry]
    _box_type: ClassVar[Any]
    _core: Core

    @classmethod
    def _of(cls, core: Core) -> Self:
        """Returns a handle of a sandbox."""
        handle = cls.__new__(cls)
        handle._set(core)
        return handle

    def _set(self, core: Core) -> None:
        self._core = core

    @classmethod
    def _find(cls, sandbox_id: str) -> Self:
        core = cls._registry.sandboxes.get(sandbox_id)
        if core is None:
            raise SandboxNotFoundException(f"this process has no sandbox {sandbox_id}")
        return cls._of(core)

    @property
    def sandbox_id(self) -> str:
        """The ID of the sandbox in this process."""
        return self._core.sandbox_id

    def get_host(self, port: int) -> str:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"get_host: {_NO_PORTS}")

    def get_mcp_url(self) -> str:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(f"get_mcp_url: {_NO_PORTS}; `belljar.Sandbox(tools=…)` has tools of MCP servers")

    def download_url(self, path: str, user: str | None = None, use_signature_expiration: int | None = None) -> str:
        """Raises `UnsupportedException`."""
        raise UnsupportedException("download_url: files have no addresses; `files.read` reads them")

    def upload_url(self, path: str, user: str | None = None, use_signature_expiration: int | None = None) -> str:
        """Raises `UnsupportedException`."""
        raise UnsupportedException("upload_url: files have no addresses; `files.write` writes them")

    @classmethod
    def _open(
        cls,
        template: str | None,
        timeout: float | None,
        box: Any,
        *,
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
        **options: Any,
    ) -> Core:
        """Creates a sandbox, which `Core.prepare` starts."""
        # Without effect: a process is as secure as it is, and there are no requests to log or to send again.
        del secure, logger, idempotency_key
        with translated():
            given: Settings[Any] = settings(
                cls._box_type,
                template=template,
                timeout=timeout,
                metadata=metadata,
                envs=envs,
                allow_internet_access=allow_internet_access,
                network=network,
                lifecycle=lifecycle,
                refused={"mcp": mcp, "iam": iam, "volume_mounts": volume_mounts},
                box=box,
                options=options,
            )
            if not given.is_snapshot:
                network = {} if given.narrowed is None else {"network": given.narrowed}
                return Core(cls._registry, given.box, given.box.session(**network), given)
            if given.allow_internet_access is not None or given.network is not None:
                raise UnsupportedException("network: sandboxes of a snapshot have the network of their box")
            snapshot = cls._registry.snapshot(given.template)
            given = replace(given, template=snapshot.info.snapshot_id)
            given.box = given.box if given.has_box else snapshot.box
            core = _core.load(cls._registry, given, snapshot.state, False)
            core.reboots = snapshot.is_only_files
            return core

    @classmethod
    def _load(cls, state: bytes, timeout: float | None, box: Any) -> Core:
        """Continues a sandbox, which `Core.prepare` starts."""
        with translated():
            given: Settings[Any] = settings(cls._box_type, timeout=timeout, box=box)
            return _core.load(cls._registry, given, state, True)

    @classmethod
    def _infos(cls, query: SandboxQuery | None, order: str | None, options: Mapping[str, Any]) -> list[SandboxInfo]:
        check_connection(options)
        if order not in (None, "asc", "desc"):
            raise InvalidArgumentException(f"order: {order!r} is neither 'asc' nor 'desc'")
        infos = [core.info for core in list(cls._registry.sandboxes.values())]
        infos.sort(key=lambda info: info.started_at, reverse=order != "asc")
        return [info for info in infos if query is None or query.matches(info)]

    def _info(self, options: Mapping[str, Any]) -> SandboxInfo:
        check_connection(options)
        self._core.require()
        return self._core.info

    def _set_timeout(self, timeout: float, options: Mapping[str, Any]) -> None:
        check_connection(options)
        self._core.require()
        if self._core.status is not SandboxState.RUNNING:
            raise SandboxNotRunningException("set_timeout: the sandbox is paused: `connect` resumes it")
        self._core.set_timeout(lifetime(timeout))

    def _is_alive(self) -> bool:
        return self._core.status is SandboxState.RUNNING and self._core.deadline > time.monotonic()

    @classmethod
    def _snapshots(cls, sandbox_id: str | None, name: str | None, options: Mapping[str, Any]) -> list[SnapshotInfo]:
        check_connection(options)
        return [
            snapshot.info
            for snapshot in list(cls._registry.snapshots.values())
            if sandbox_id in (None, snapshot.sandbox_id)
            and (name is None or name in (snapshot.info.snapshot_id, *snapshot.info.names))
        ]

    @classmethod
    def _delete_snapshot(cls, snapshot_id: str, options: Mapping[str, Any]) -> bool:
        check_connection(options)
        return cls._registry.snapshots.pop(snapshot_id, None) is not None


def is_only_files(mode: str | None, keep_memory: bool | None) -> bool:
    """Returns whether variables are dropped when a sandbox is saved."""
    if mode not in (None, "full", "filesystem"):
        raise InvalidArgumentException(f"mode: {mode!r} is neither 'full' nor 'filesystem'")
    if mode is not None and keep_memory is not None:
        raise InvalidArgumentException("keep_memory: pass `mode` alone")
    return mode == "filesystem" or keep_memory is False


def receiver(handler: Callable[[OutputMessage], Any] | None, is_error: bool) -> Callable[[str], Any] | None:
    """Returns a function that receives text for one that receives messages."""
    if handler is None:
        return None
    called = handler
    return lambda text: called(OutputMessage(text, time.time_ns(), is_error))


def outcomes(
    execution: Execution, on_result: Callable[[Any], Any] | None, on_error: Callable[[Any], Any] | None
) -> list[tuple[Callable[[Any], Any], Any]]:
    """Returns the functions that receive the results and the error, with their arguments."""
    calls: list[tuple[Callable[[Any], Any], Any]] = []
    if on_result is not None:
        calls += [(on_result, result) for result in execution.results]
    if on_error is not None and execution.error is not None:
        calls.append((on_error, execution.error))
    return calls

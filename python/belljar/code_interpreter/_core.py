"""A sandbox: its timeout, pauses, forks and snapshots. Handles of the same sandbox share one."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from .._errors import BelljarError
from .._jobs import native_call, wait
from . import _expiry
from ._cells import Cells
from ._errors import (
    InvalidArgumentException,
    SandboxException,
    SandboxNotFoundException,
    UnsupportedException,
    translate,
    translated,
)
from ._info import SandboxInfo, SandboxState, SnapshotInfo
from ._models import Context
from ._settings import lifetime
from .._steps import Steps, T, perform, perform_async

if TYPE_CHECKING:
    import asyncio

    from .._base import BaseSandbox, BaseSession
    from ._settings import Settings

_MAGIC = b"belljar-code-interpreter-1\n"
MAX_HEADER = 1 << 20
"""The most bytes of the description in a dump."""
MAX_FORKS = 20
_START = 600.0
"""The seconds for which a sandbox that starts does not end."""


@dataclass
class Snapshot:
    """The state of a sandbox, from which others are created."""

    info: SnapshotInfo
    state: bytes
    box: BaseSandbox[Any]
    is_only_files: bool
    sandbox_id: str


@dataclass
class Registry:
    """The sandboxes and snapshots of this process that are used in the same way: with or without asyncio."""

    sandboxes: dict[str, Core] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)

    def snapshot(self, name: str) -> Snapshot:
        """Returns a snapshot by its ID or one of its names."""
        if (found := self.snapshots.get(name)) is not None:
            return found
        for snapshot in reversed(self.snapshots.values()):
            if name in snapshot.info.names:
                return snapshot
        raise InvalidArgumentException(
            f"template: {name!r} is not a snapshot of this process, and there are no templates; \
`box=belljar.Sandbox(packages=[…])` has packages"
        )


class Core(Cells):
    """A sandbox."""

    def __init__(
        self, registry: Registry, box: BaseSandbox[Any], session: BaseSession, settings: Settings[Any]
    ) -> None:
        super().__init__(box, session, settings.envs)
        self.sandbox_id = f"i{uuid.uuid4().hex[:20]}"
        self.settings = settings
        self.auto_resume = settings.auto_resume
        self.started_at = datetime.now(timezone.utc)
        self._lock = threading.Lock()
        """Makes calls of synchronous code wait for each other."""
        self._async_lock: tuple[object, asyncio.Lock] | None = None
        self.deadline = 0.0
        self._registry = registry
        registry.sandboxes[self.sandbox_id] = self
        self.set_timeout(settings.timeout)

    @property
    def info(self) -> SandboxInfo:
        """The description of the sandbox."""
        settings = self.settings
        return SandboxInfo(
            sandbox_id=self.sandbox_id,
            sandbox_domain=None,
            template_id=settings.template,
            name=None,
            metadata=dict(settings.metadata),
            started_at=self.started_at,
            end_at=datetime.now(timezone.utc) + timedelta(seconds=self.deadline - time.monotonic()),
            state=self.status or SandboxState.RUNNING,
            cpu_count=1,
            memory_mb=0,
            envd_version="",
            allow_internet_access=settings.allow_internet_access,
            network=settings.network,
            lifecycle=settings.lifecycle,
        )

    @property
    def _lock_of_loop(self) -> asyncio.Lock:
        """Makes calls of the running event loop wait for each other."""
        import asyncio

        loop = asyncio.get_running_loop()
        # A lock belongs to a loop, and a sandbox may be used on one after the other.
        if self._async_lock is None or self._async_lock[0] is not loop:
            self._async_lock = (loop, asyncio.Lock())
        return self._async_lock[1]

    def perform(self, steps: Steps[T]) -> T:
        """Performs the steps of a call of synchronous code. Raises E2B's errors."""
        if self.is_receiving:
            steps.close()
            raise SandboxException("functions that receive output can only `kill` the sandbox while its code runs")
        with translated(), self._lock:
            return perform(steps)

    async def perform_async(self, steps: Steps[T]) -> T:
        """Performs the steps of a call on the running event loop. Raises E2B's errors."""
        with translated():
            async with self._lock_of_loop:
                return await perform_async(steps)

    def set_timeout(self, seconds: float) -> None:
        """Sets the time from now at which the sandbox ends."""
        self.deadline = time.monotonic() + seconds
        _expiry.schedule(self)

    def begin(self) -> Steps[None]:
        """Starts the interpreter. The time of the sandbox begins when it is ready."""
        self.deadline += _START
        yield from self.prepare()
        self.set_timeout(self.settings.timeout)

    def prepare(self) -> Steps[None]:
        """Makes the session ready for cells. Raises if the sandbox has ended."""
        if self.session is not None and time.monotonic() >= self.deadline:
            # The thread that ends sandboxes may be a little late.
            yield self._expire_elsewhere
        yield from super().prepare()

    def _expire_elsewhere(self) -> Future[None]:
        done: Future[None] = Future()

        def expire() -> None:
            self.expire()
            done.set_result(None)

        threading.Thread(target=expire, name="belljar-expire", daemon=True).start()
        return done

    def require(self) -> None:
        """Raises if the sandbox has ended."""
        if self.status is None:
            raise SandboxNotFoundException(f"the sandbox {self.sandbox_id} was killed or has reached its timeout")

    def connect(self, timeout: float | None, on_resume: str) -> Steps[None]:
        """Continues a sandbox that is paused, or extends the timeout of one that runs."""
        seconds = lifetime(timeout)
        if on_resume not in ("restore", "reboot"):
            raise InvalidArgumentException(f"on_resume: {on_resume!r} is neither 'restore' nor 'reboot'")
        self.require()
        if self.status is SandboxState.RUNNING:
            if timeout is not None and time.monotonic() + seconds > self.deadline:
                self.set_timeout(seconds)
            return
        yield from self.resume()
        self.set_timeout(seconds)
        if on_resume == "reboot":
            yield from self.reboot()

    def resume(self) -> Steps[None]:
        """Continues a sandbox that is paused."""
        yield from super().resume()
        if self.deadline < time.monotonic():
            self.set_timeout(self.settings.timeout)

    def reboot(self) -> Steps[None]:
        """Replaces the interpreter by a new one. The files stay."""
        session = self.running()
        self._is_ready = False
        self.counts.clear()
        yield session.restart

    def kill(self) -> Steps[bool]:
        """Ends the sandbox. Returns False if it has ended already."""
        with self.guard:
            was_alive, self.status = self.status is not None, None
            self.saved = None
        self._registry.sandboxes.pop(self.sandbox_id, None)
        session = self.stop()
        if session is not None and self.is_receiving:
            # The session closes after its cell, which ends after the caller has returned.
            threading.Thread(target=_close, args=(session,), name="belljar-close", daemon=True).start()
        elif session is not None:
            yield session.close
        return was_alive

    def expire(self) -> None:
        """Ends the sandbox, or pauses it, if its deadline has passed. Called on a thread of its own."""
        with self.guard:
            if self.status is not SandboxState.RUNNING or self.session is None or time.monotonic() < self.deadline:
                return
            saved: Future[bytes] | None = Future() if self.settings.pauses else None
            self.status, self.saved = (None, None) if saved is None else (SandboxState.PAUSED, saved)
        if saved is None:
            self._registry.sandboxes.pop(self.sandbox_id, None)
        session = self.stop()
        if session is None:
            return
        if saved is not None:
            try:
                saved.set_result(wait(native_call(session._native.dump, None)))
            except BelljarError as error:
                saved.set_exception(error)
        _close(session)

    def pause(self, is_only_files: bool) -> Steps[bool]:
        """Saves the session and ends it. Returns False if the sandbox is paused."""
        self.require()
        if self.status is SandboxState.PAUSED:
            return False
        self._require_local("pause")
        if is_only_files:
            yield from self.reboot()
        session = self.running()
        saved: Future[bytes] = Future()
        saved.set_result((yield session.dump))
        with self.guard:
            if self.session is session:
                self.session, self.saved, self.status = None, saved, SandboxState.PAUSED
        yield session.close
        return True

    def fork(self, timeout: float | None, count: int | None) -> Steps[list[Core | Exception]]:
        """Creates sandboxes with the same variables and files. Those that fail are exceptions."""
        seconds = lifetime(timeout)
        number = 1 if count is None else count
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_FORKS:
            raise InvalidArgumentException(f"count: {count!r} is not a number from 1 to {MAX_FORKS}")
        yield from self.prepare()
        forks: list[Core | Exception] = []
        for _ in range(number):
            try:
                session = yield self.running().fork
            except BelljarError as error:
                forks.append(translate(error))
                continue
            settings = replace(self.settings, metadata=dict(self.settings.metadata), envs=dict(self.envs))
            fork = Core(self._registry, self.box, session, settings)
            fork.set_timeout(seconds)
            fork._restore(self._header())
            forks.append(fork)
        return forks

    def dump(self) -> Steps[bytes]:
        """Returns the sandbox as bytes."""
        self.require()
        self._require_local("dump")
        if self.status is SandboxState.PAUSED and (saved := self.saved) is not None:
            dump: bytes = yield lambda: saved
        else:
            yield from self.prepare()
            dump = yield self.running().dump
        header = json.dumps(self._header()).encode()
        return _MAGIC + len(header).to_bytes(4, "big") + header + dump

    def snapshot(self, name: str | None, is_only_files: bool) -> Steps[SnapshotInfo]:
        """Saves the state of the sandbox, which goes on."""
        self._require_local("create_snapshot")
        state = yield from self.dump()
        names = [] if name is None else [name]
        info = SnapshotInfo(f"snapshot-{uuid.uuid4().hex[:20]}", names)
        self._registry.snapshots[info.snapshot_id] = Snapshot(info, state, self.box, is_only_files, self.sandbox_id)
        return info

    def _require_local(self, name: str) -> None:
        if self.is_remote:
            raise UnsupportedException(f"{name}: sandboxes on a server cannot be saved; `fork` copies them there")

    def _header(self) -> dict[str, Any]:
        """Returns what a saved session needs to go on as this sandbox."""
        return {
            "sandbox_id": self.sandbox_id,
            "template": self.settings.template,
            "metadata": self.settings.metadata,
            "envs": self.envs,
            "contexts": [[each.id, each.cwd, self.counts.get(each.id, 0)] for each in self.contexts.values()],
            "default": self.default,
            "active": self._active,
            "has_envs": self._has_envs,
        }

    def _restore(self, header: Mapping[str, Any]) -> None:
        self.contexts = {number: Context(number, "python", cwd) for number, cwd, _ in header["contexts"]}
        self.counts = {number: cells for number, _, cells in header["contexts"]}
        self.default, self._active, self._has_envs = header["default"], header["active"], bool(header["has_envs"])


def _close(session: Any) -> None:
    """Closes a session, and waits for that."""
    try:
        session._close()
    except BelljarError:
        # Its server has ended, and the session with it.
        pass


def load(registry: Registry, settings: Settings[Any], state: bytes, is_same: bool) -> Core:
    """Continues a sandbox from bytes.

    Args:
        is_same: If true, it gets its ID, environment variables and metadata back, if no other sandbox has the ID.
    """
    if not isinstance(state, (bytes, bytearray, memoryview)):
        raise InvalidArgumentException(f"state: bytes are needed, not {type(state).__name__}")
    state = bytes(state)
    start = len(_MAGIC) + 4
    size = int.from_bytes(state[len(_MAGIC) : start], "big")
    if not state.startswith(_MAGIC) or size > min(MAX_HEADER, len(state) - start):
        raise InvalidArgumentException("state: the bytes are not those of `dump`")
    try:
        header = json.loads(state[start : start + size])
        _check_header(header)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidArgumentException("state: the description in the bytes cannot be read") from None
    loaded: Any = settings.box._load(state[start + size :])
    if not hasattr(loaded, "close"):
        raise InvalidArgumentException("state: the bytes are those of a run that is paused")
    core = Core(registry, settings.box, loaded, settings)
    core._restore(header)
    core.envs, core.new_envs = {**header["envs"], **settings.envs}, settings.envs
    if is_same:
        settings.metadata, settings.template = header["metadata"], header["template"]
        if header["sandbox_id"] not in registry.sandboxes:
            registry.sandboxes[header["sandbox_id"]] = registry.sandboxes.pop(core.sandbox_id)
            core.sandbox_id = header["sandbox_id"]
    return core


def _check_header(header: Any) -> None:
    names = [header["sandbox_id"], header["template"], header["default"], header["active"]]
    for number, cwd, cells in header["contexts"]:
        names += [number, cwd]
        if isinstance(cells, bool) or not isinstance(cells, int):
            raise TypeError("a number of cells is not a number")
    for texts in (header["metadata"], header["envs"]):
        names += [*texts.keys(), *texts.values()]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a name is not a text")
    if header["contexts"] and header["default"] not in [each[0] for each in header["contexts"]]:
        raise ValueError("the default context is missing")

"""Descriptions of sandboxes, files and commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Generic, TypeVar

from ._errors import InvalidArgumentException, SandboxException

Item = TypeVar("Item")
_PAGE = 100
"""The number of items of a page, unless ``limit`` says otherwise."""


class SandboxState(str, Enum):
    """The state of a sandbox."""

    RUNNING = "running"
    PAUSED = "paused"


@dataclass
class SandboxInfo:
    """A sandbox."""

    sandbox_id: str
    sandbox_domain: str | None
    """Always None."""
    template_id: str
    """The template, or the ID of the snapshot, from which it was created."""
    name: str | None
    """Always None."""
    metadata: dict[str, str]
    started_at: datetime
    end_at: datetime
    """The time at which it ends."""
    state: SandboxState
    cpu_count: int
    """Always 1: code in WebAssembly has one thread."""
    memory_mb: int
    """Always 0: the limit is that of Belljar's sandbox or server."""
    envd_version: str
    """Always empty."""
    allow_internet_access: bool | None = None
    """The argument of that name."""
    network: dict[str, Any] | None = None
    """The argument of that name."""
    lifecycle: dict[str, Any] | None = None
    """The action at its end."""
    volume_mounts: list[dict[str, str]] = field(default_factory=list)
    envd_unresponsive_at_pause: bool | None = None
    """Always None."""


@dataclass
class SandboxQuery:
    """A filter of `Sandbox.list`: sandboxes to which all of it applies."""

    metadata: dict[str, str] | None = None
    """Entries that the sandbox has."""
    state: list[SandboxState] | None = None
    """One of these states."""
    started_after: datetime | None = None
    template: str | None = None

    def matches(self, info: SandboxInfo) -> bool:
        """Returns whether a sandbox is one of those that the query asks for."""
        after = self.started_after.astimezone() if self.started_after else None
        return (
            all(info.metadata.get(key) == value for key, value in (self.metadata or {}).items())
            and (not self.state or info.state in self.state)
            and (after is None or info.started_at > after)
            and (self.template is None or self.template == info.template_id)
        )


@dataclass
class SnapshotInfo:
    """A snapshot."""

    snapshot_id: str
    """The ``template`` with which `Sandbox.create` starts from it."""
    names: list[str] = field(default_factory=list)


class FileType(Enum):
    """The type of an entry of a directory."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"


@dataclass
class WriteInfo:
    """A file that was written."""

    name: str
    type: FileType | None
    path: str
    """The absolute path."""
    metadata: dict[str, str] | None = field(default=None, kw_only=True)
    """Always None."""


@dataclass
class EntryInfo(WriteInfo):
    """A file or a directory."""

    size: int
    """Bytes."""
    mode: int
    permissions: str
    """The mode as ``ls -l`` shows it."""
    owner: str
    group: str
    modified_time: datetime
    symlink_target: str | None = None


@dataclass
class ProcessInfo:
    """A command that runs in the background."""

    pid: int
    """The process ID."""
    tag: str | None
    """Always None."""
    cmd: str
    """The shell."""
    args: list[str]
    """Its arguments, with the command line as the last one."""
    envs: dict[str, str]
    """The environment variables with which it was started."""
    cwd: str | None


@dataclass
class CommandResult:
    """The result of a command. Output that is not retained is None."""

    stderr: str
    stdout: str
    exit_code: int
    error: str | None
    """Always None."""


@dataclass(eq=False)
class CommandExitException(SandboxException, CommandResult):
    """A command ended with an exit code other than 0."""

    def __str__(self) -> str:
        return f"Command exited with code {self.exit_code} and error:\n{self.stderr}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stderr, self.stdout, self.exit_code, self.error)


class Pages(Generic[Item]):
    """A list in pages."""

    def __init__(self, items: Sequence[Item], limit: int | None, next_token: str | None) -> None:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InvalidArgumentException(f"limit: {limit!r} is not a positive number")
        try:
            self._at = int(next_token or 0)
        except ValueError:
            raise InvalidArgumentException(f"next_token: {next_token!r} is not the token of a page") from None
        self._items = items
        self._limit = limit or _PAGE
        self._has_begun = False

    @property
    def has_next(self) -> bool:
        """True if there is another page. The first page always exists, and may be empty."""
        return not self._has_begun or self._at < len(self._items)

    @property
    def next_token(self) -> str | None:
        """The token of the next page, None after the last."""
        return str(self._at) if self._at < len(self._items) else None

    def _next(self) -> list[Item]:
        if not self.has_next:
            raise SandboxException("next_items: there are no more pages")
        page = list(self._items[self._at : self._at + self._limit])
        self._at += self._limit
        self._has_begun = True
        return page


class Paginator(Pages[Item]):
    """A list in pages, for synchronous code."""

    def next_items(self, **opts: Any) -> list[Item]:
        """Returns the next page. The options of a connection have no effect."""
        return self._next()


class AsyncPaginator(Pages[Item]):
    """A list in pages, for asyncio."""

    async def next_items(self, **opts: Any) -> list[Item]:
        """Returns the next page. The options of a connection have no effect."""
        return self._next()

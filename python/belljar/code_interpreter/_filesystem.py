"""`Sandbox.files` and `AsyncSandbox.files`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _files as steps
from ._errors import UnsupportedException
from ._files import AsyncFileStreamReader, FileStreamReader, Format, WriteData, WriteEntry
from ._info import EntryInfo, WriteInfo
from .._steps import Steps, T

if TYPE_CHECKING:
    from ._core import Core


class Filesystem:
    """The files of a sandbox. Relative paths begin at ``/home/user``; ``user`` and ``gzip`` have no effect."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def _do(self, work: Steps[T]) -> T:
        return self._core.perform(work)

    @overload
    def read(
        self,
        path: str,
        format: Literal["text"] = "text",
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> str: ...
    @overload
    def read(
        self,
        path: str,
        format: Literal["bytes"],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> bytearray: ...
    @overload
    def read(
        self,
        path: str,
        format: Literal["stream"],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> FileStreamReader: ...
    def read(
        self,
        path: str,
        format: Format = "text",
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> str | bytearray | FileStreamReader:
        """Returns the contents of a file: a text, a ``bytearray``, or an iterator of pieces."""
        steps.check_format(format)
        contents = self._do(steps.read(self._core, path, request_timeout))
        if format == "stream":
            return FileStreamReader(contents)
        return contents.decode("utf-8", "replace") if format == "text" else bytearray(contents)

    def write(
        self,
        path: str,
        data: WriteData,
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        use_octet_stream: bool | None = None,
        metadata: dict[str, str] | None = None,
    ) -> WriteInfo:
        """Writes a file, and creates the directories of its path."""
        steps.check_metadata(metadata)
        return self._do(steps.write(self._core, path, steps.contents_of(data), request_timeout))

    def write_files(
        self,
        files: Sequence[WriteEntry],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        use_octet_stream: bool | None = None,
        metadata: dict[str, str] | None = None,
    ) -> list[WriteInfo]:
        """Writes files: dictionaries with ``path`` and ``data``."""
        entries = steps.entries_of(files)
        return [self.write(path, data, request_timeout=request_timeout, metadata=metadata) for path, data in entries]

    def exists(self, path: str, user: str | None = None, request_timeout: float | None = None) -> bool:
        """Returns whether there is a file or a directory."""
        return self._do(steps.exists(self._core, path, request_timeout))

    def get_info(self, path: str, user: str | None = None, request_timeout: float | None = None) -> EntryInfo:
        """Describes a file or a directory."""
        return self._do(steps.info(self._core, path, request_timeout))

    def remove(self, path: str, user: str | None = None, request_timeout: float | None = None) -> None:
        """Removes a file, or a directory with all that it contains."""
        self._do(steps.remove(self._core, path, request_timeout))

    def rename(
        self, old_path: str, new_path: str, user: str | None = None, request_timeout: float | None = None
    ) -> EntryInfo:
        """Moves a file or a directory, and describes it."""
        return self._do(steps.rename(self._core, old_path, new_path, request_timeout))

    def make_dir(self, path: str, user: str | None = None, request_timeout: float | None = None) -> bool:
        """Creates a directory with its parents. Returns False if it is there already."""
        return self._do(steps.make_directory(self._core, path, request_timeout))

    def watch_dir(
        self,
        path: str,
        user: str | None = None,
        request_timeout: float | None = None,
        recursive: bool = False,
        include_entry: bool = False,
        allow_network_mounts: bool = False,
    ) -> Any:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(steps.NO_WATCH)

    # Last, since it hides the type of the same name.
    def list(
        self, path: str, depth: int | None = 1, user: str | None = None, request_timeout: float | None = None
    ) -> list[EntryInfo]:
        """Describes what a directory contains, sorted by path. With a depth of None, that of all directories in it."""
        return self._do(steps.list_entries(self._core, path, depth, request_timeout))


class AsyncFilesystem:
    """The same as `Filesystem`, for asyncio."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def _do(self, work: Steps[T]) -> T:
        return await self._core.perform_async(work)

    @overload
    async def read(
        self,
        path: str,
        format: Literal["text"] = "text",
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> str: ...
    @overload
    async def read(
        self,
        path: str,
        format: Literal["bytes"],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> bytearray: ...
    @overload
    async def read(
        self,
        path: str,
        format: Literal["stream"],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> AsyncFileStreamReader: ...
    async def read(
        self,
        path: str,
        format: Format = "text",
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> str | bytearray | AsyncFileStreamReader:
        """Returns the contents of a file: a text, a ``bytearray``, or an asynchronous iterator of pieces."""
        steps.check_format(format)
        contents = await self._do(steps.read(self._core, path, request_timeout))
        if format == "stream":
            return AsyncFileStreamReader(contents)
        return contents.decode("utf-8", "replace") if format == "text" else bytearray(contents)

    async def write(
        self,
        path: str,
        data: WriteData | AsyncIterable[bytes],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        use_octet_stream: bool | None = None,
        metadata: dict[str, str] | None = None,
    ) -> WriteInfo:
        """Writes a file, and creates the directories of its path."""
        steps.check_metadata(metadata)
        if isinstance(data, AsyncIterable) and not hasattr(data, "read"):
            data = [piece async for piece in data]
        return await self._do(steps.write(self._core, path, steps.contents_of(data), request_timeout))

    async def write_files(
        self,
        files: Sequence[WriteEntry],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        use_octet_stream: bool | None = None,
        metadata: dict[str, str] | None = None,
    ) -> list[WriteInfo]:
        """Writes files: dictionaries with ``path`` and ``data``."""
        entries = steps.entries_of(files)
        return [
            await self.write(path, data, request_timeout=request_timeout, metadata=metadata) for path, data in entries
        ]

    async def exists(self, path: str, user: str | None = None, request_timeout: float | None = None) -> bool:
        """Returns whether there is a file or a directory."""
        return await self._do(steps.exists(self._core, path, request_timeout))

    async def get_info(self, path: str, user: str | None = None, request_timeout: float | None = None) -> EntryInfo:
        """Describes a file or a directory."""
        return await self._do(steps.info(self._core, path, request_timeout))

    async def remove(self, path: str, user: str | None = None, request_timeout: float | None = None) -> None:
        """Removes a file, or a directory with all that it contains."""
        await self._do(steps.remove(self._core, path, request_timeout))

    async def rename(
        self, old_path: str, new_path: str, user: str | None = None, request_timeout: float | None = None
    ) -> EntryInfo:
        """Moves a file or a directory, and describes it."""
        return await self._do(steps.rename(self._core, old_path, new_path, request_timeout))

    async def make_dir(self, path: str, user: str | None = None, request_timeout: float | None = None) -> bool:
        """Creates a directory with its parents. Returns False if it is there already."""
        return await self._do(steps.make_directory(self._core, path, request_timeout))

    async def watch_dir(
        self,
        path: str,
        on_event: Callable[[Any], Any],
        on_exit: Callable[[Any], Any] | None = None,
        user: str | None = None,
        request_timeout: float | None = None,
        timeout: float | None = 60,
        recursive: bool = False,
        include_entry: bool = False,
        allow_network_mounts: bool = False,
    ) -> Any:
        """Raises `UnsupportedException`."""
        raise UnsupportedException(steps.NO_WATCH)

    async def list(
        self, path: str, depth: int | None = 1, user: str | None = None, request_timeout: float | None = None
    ) -> list[EntryInfo]:
        """Describes what a directory contains, sorted by path. With a depth of None, that of all directories in it."""
        return await self._do(steps.list_entries(self._core, path, depth, request_timeout))

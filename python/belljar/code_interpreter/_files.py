"""The files of a sandbox: the steps of their operations, and the arguments and results of both classes for them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, Any, Literal, TypedDict, Union

from ._errors import InvalidArgumentException, SandboxException, UnsupportedException
from ._info import EntryInfo, FileType, WriteInfo

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from ._core import Core
    from .._steps import Steps

WriteData: TypeAlias = "Union[str, bytes, IO[Any], Iterable[bytes]]"
"""The contents of a file: a text, bytes, an open file, or pieces of bytes."""
Format: TypeAlias = Literal["text", "bytes", "stream"]
PART = 8 << 20
"""The bytes that cross at once. A server bounds its requests."""
_CHUNK = 64 << 10


class WriteEntry(TypedDict):
    """A file for `write_files`."""

    path: str
    data: Any


class FileStreamReader(Iterator[bytes]):
    """The contents of a file in pieces."""

    def __init__(self, contents: bytes) -> None:
        self._contents = memoryview(contents)

    def __iter__(self) -> FileStreamReader:
        return self

    def __next__(self) -> bytes:
        if not self._contents:
            raise StopIteration
        piece, self._contents = bytes(self._contents[:_CHUNK]), self._contents[_CHUNK:]
        return piece

    def close(self) -> None:
        """Drops what has not been read."""
        self._contents = memoryview(b"")

    def __enter__(self) -> FileStreamReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncFileStreamReader:
    """The contents of a file in pieces, for ``async for``."""

    def __init__(self, contents: bytes) -> None:
        self._reader = FileStreamReader(contents)

    def __aiter__(self) -> AsyncFileStreamReader:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._reader:
            return piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Drops what has not been read."""
        self._reader.close()

    async def __aenter__(self) -> AsyncFileStreamReader:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._reader.close()


def read(core: Core, path: str, timeout: float | None) -> Steps[bytes]:
    """Returns the contents of a file."""
    name = _transfer()
    # The directory is that of a new session until the first call.
    yield from core.prepare()
    try:
        yield from core.call("stage", timeout, path=text(path), name=name)
        session = core.running()
        contents: bytes = yield lambda: session.files.read(name)
    except BaseException:
        yield from _drop(core, [name])
        raise
    yield from core.call("unstage", names=[name])
    return contents


def write(core: Core, path: str, contents: bytes, timeout: float | None) -> Steps[WriteInfo]:
    """Writes a file."""
    text(path)
    yield from core.prepare()
    names: list[str] = []
    try:
        for begin in range(0, len(contents) or 1, PART):
            names.append(_transfer())
            yield from _send(core, names[-1], contents[begin : begin + PART])
            if len(names) == 2:
                yield from core.call("join", timeout, parts=names)
                del names[1:]
        answer = yield from core.call("place", timeout, name=names[0], path=path)
    except BaseException:
        yield from _drop(core, names)
        raise
    entry = entry_info(answer)
    return WriteInfo(entry.name, entry.type, entry.path)


def _send(core: Core, name: str, part: bytes) -> Steps[None]:
    session = core.running()
    yield lambda: session.files.write(name, part)


def _drop(core: Core, names: list[str]) -> Steps[None]:
    """Removes what a transfer that failed has left, if that is possible."""
    try:
        yield from core.call("unstage", names=names)
    except Exception:
        pass


def _transfer() -> str:
    return f"belljar-transfer-{uuid.uuid4().hex}"


def list_entries(core: Core, path: str, depth: int | None, timeout: float | None) -> Steps[list[EntryInfo]]:
    """Returns what a directory contains."""
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 1):
        raise InvalidArgumentException(f"depth: {depth!r} is not a number from 1 on")
    answer = yield from core.call("entries", timeout, path=text(path), depth=depth or 0)
    if not isinstance(answer, list):
        raise SandboxException("the interpreter has sent an answer that cannot be read")
    found = [entry_info(entry) for entry in answer]
    return [entry for entry in found if not entry.name.startswith("belljar-transfer-")]


def exists(core: Core, path: str, timeout: float | None) -> Steps[bool]:
    """Returns whether there is a file or a directory."""
    return bool((yield from core.call("exists", timeout, path=text(path))))


def info(core: Core, path: str, timeout: float | None) -> Steps[EntryInfo]:
    """Describes a file or a directory."""
    return entry_info((yield from core.call("info", timeout, path=text(path))))


def rename(core: Core, old_path: str, new_path: str, timeout: float | None) -> Steps[EntryInfo]:
    """Moves a file or a directory."""
    answer = yield from core.call("rename", timeout, old_path=text(old_path), new_path=text(new_path))
    return entry_info(answer)


def make_directory(core: Core, path: str, timeout: float | None) -> Steps[bool]:
    """Creates a directory."""
    return bool((yield from core.call("make_directory", timeout, path=text(path))))


def remove(core: Core, path: str, timeout: float | None) -> Steps[None]:
    """Removes a file or a directory."""
    yield from core.call("remove", timeout, path=text(path))


def text(path: object) -> str:
    """Returns a path."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidArgumentException(f"path: {path!r} is not a path")
    return path


def contents_of(data: object) -> bytes:
    """Returns the contents of a file as bytes."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if callable(read_all := getattr(data, "read", None)):
        return contents_of(read_all())
    if isinstance(data, Iterable):
        pieces = list(data)
        if all(isinstance(piece, (bytes, bytearray, memoryview)) for piece in pieces):
            return b"".join(pieces)
    raise InvalidArgumentException(
        f"data: a text, bytes, a file or pieces of bytes are needed, not {type(data).__name__}"
    )


def entries_of(files: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Returns the paths and contents of files for `write_files`."""
    try:
        return [(file["path"], file["data"]) for file in files]
    except (TypeError, KeyError):
        raise InvalidArgumentException("files: a list of dictionaries with 'path' and 'data' is needed") from None


def check_metadata(metadata: object) -> None:
    """Refuses metadata of files."""
    if metadata:
        raise UnsupportedException("metadata: files have no metadata")


def check_format(format: str) -> None:
    """Refuses unknown formats."""
    if format not in ("text", "bytes", "stream"):
        raise InvalidArgumentException(f"format: {format!r} is not one of text, bytes, stream")


NO_WATCH = "watch_dir: directories cannot be watched; `list` shows what they contain after each cell"


def entry_info(answer: Any) -> EntryInfo:
    """Returns the description of a file that the sandbox has sent."""
    try:
        target = answer["target"]
        return EntryInfo(
            name=str(answer["name"]),
            type=FileType(answer["type"]),
            path=str(answer["path"]),
            size=int(answer["size"]),
            mode=int(answer["mode"]),
            permissions=str(answer["permissions"]),
            owner="user",
            group="user",
            modified_time=datetime.fromtimestamp(float(answer["modified"]), timezone.utc),
            symlink_target=None if target is None else str(target),
        )
    except (TypeError, KeyError, ValueError, OverflowError, OSError):
        raise SandboxException("the interpreter has sent the description of a file that cannot be read") from None

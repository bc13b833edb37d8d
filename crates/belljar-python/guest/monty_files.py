"""The parent's files in a Monty session: `open` and the functions of `os` ask the parent about most paths.

A path that the parent does not handle is one of the session's own file system, and so are the directories that Python
itself needs. Files are read as a whole when they are opened, and written as a whole when they are flushed. Code in C
that opens files sees only the session's own.
"""

import binascii
import builtins
import errno
import io
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from typing import Any

from . import monty_calls

_OWN_ROOTS = ("/dev", "/lib", "/proc", "/tmp", "/var/lib/belljar")
"""The directories that are never the parent's."""

_real: dict[str, Callable[..., Any]] = {}
"""The functions that are replaced."""
_own_roots: tuple[str, ...] = _OWN_ROOTS
_directory: str | None = None
"""The working directory, if it is one of the parent's paths."""
_unhandled: set[str] = set()
"""The directories that the parent does not handle in this feed."""


class _NotHandled(Exception):
    """The parent does not handle a path."""


def install() -> None:
    """Replaces the functions that take paths."""
    global _own_roots
    _own_roots = (*_OWN_ROOTS, os.getcwd())
    _real["open"] = io.open
    builtins.open = io.open = _open  # type: ignore[assignment]
    for name, function in _FUNCTIONS.items():
        _real[name] = getattr(os, name)
        setattr(os, name, function)


def begin_feed(directory: str) -> None:
    """Begins a feed, in a directory if one is given."""
    global _directory
    _unhandled.clear()
    if directory not in ("", "/"):
        _directory = posixpath.normpath(directory)


def _path_of(path: Any) -> str | None:
    """Returns the absolute path, or None if it cannot be one of the parent's."""
    if isinstance(path, int):
        return None
    path = os.fsdecode(os.fspath(path))
    if not path.startswith("/"):
        if _directory is None:
            return None
        path = posixpath.join(_directory, path)
    path = posixpath.normpath(path)
    path = "/" + path.lstrip("/")
    if path == "/" or any(path == root or path.startswith(f"{root}/") for root in _own_roots):
        return None
    return None if posixpath.dirname(path) in _unhandled else path


def _ask(operation: str, content: Any, path: str) -> Any:
    """Asks the parent, and returns the value of its answer."""
    answer = monty_calls.ask({"os": {"call": {operation: content}}})
    if "value" not in answer:
        _unhandled.add(posixpath.dirname(path))
        raise _NotHandled
    return monty_calls.value(answer)


def _replacing(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the replacement of a function whose first argument is a path."""

    def function(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
        if (found := _path_of(path)) is not None:
            try:
                return act(found, *args, **kwargs)
            except _NotHandled:
                pass
        return _real[name](path, *args, **kwargs)

    function.__name__ = function.__qualname__ = name
    return function


def _stat(path: str, **options: Any) -> os.stat_result:
    found = _ask("stat", path, path)
    names = ("st_mode", "st_ino", "st_dev", "st_nlink", "st_uid", "st_gid", "st_size")
    times = [float(getattr(found, name, 0) or 0) for name in ("st_atime", "st_mtime", "st_ctime")]
    fields = [*(int(getattr(found, name, 0) or 0) for name in names), *map(int, times)]
    return os.stat_result([*fields, *times])


def _listdir(path: str) -> list[str]:
    return [posixpath.basename(str(entry)) for entry in _ask("iterdir", path, path)]


class _Entry:
    """An entry of a directory of the parent's, as `os.DirEntry` has it."""

    def __init__(self, directory: str, name: str) -> None:
        self.name = name
        self.path = posixpath.join(directory, name)

    def __fspath__(self) -> str:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_symlink(self) -> bool:
        return False

    def is_junction(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return self.stat().st_ino

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class _Entries:
    """The iterator that `os.scandir` returns."""

    def __init__(self, entries: list[_Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def close(self) -> None:
        pass


def _scandir(path: str) -> _Entries:
    return _Entries([_Entry(path, name) for name in _listdir(path)])


def _mkdir(path: str, mode: int = 0o777, **options: Any) -> None:
    _ask("mkdir", {"path": path, "parents": False, "exist_ok": False}, path)


def _rename(path: Any, target: Any, **options: Any) -> None:
    source, destination = _path_of(path), _path_of(target)
    if source is not None and destination is not None:
        try:
            _ask("rename", {"src": source, "dst": destination}, source)
            return
        except _NotHandled:
            pass
    _real["rename"](path, target, **options)


def _access(path: str, mode: int, **options: Any) -> bool:
    return bool(_ask("exists", path, path))


def _readlink(path: str, **options: Any) -> str:
    _ask("exists", path, path)
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)


def _chdir(path: Any) -> None:
    global _directory
    if (found := _path_of(path)) is not None:
        try:
            if not _ask("is_dir", found, found):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), found)
            _directory = found
            return
        except _NotHandled:
            pass
    _real["chdir"](path)
    _directory = None


def _getcwd() -> str:
    return _real["getcwd"]() if _directory is None else _directory


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "stat": _replacing("stat", _stat),
    "lstat": _replacing("lstat", _stat),
    "listdir": _replacing("listdir", _listdir),
    "scandir": _replacing("scandir", _scandir),
    "mkdir": _replacing("mkdir", _mkdir),
    "unlink": _replacing("unlink", lambda path, **options: _ask("unlink", path, path)),
    "remove": _replacing("remove", lambda path, **options: _ask("unlink", path, path)),
    "rmdir": _replacing("rmdir", lambda path, **options: _ask("rmdir", path, path)),
    "access": _replacing("access", _access),
    "readlink": _replacing("readlink", _readlink),
    "rename": _rename,
    "replace": _rename,
    "chdir": _chdir,
    "getcwd": _getcwd,
}


class _File(io.BytesIO):
    """A file of the parent's. Its contents are written when it is flushed."""

    def __init__(self, path: str, mode: str) -> None:
        self.name = path
        self.mode = mode
        self._reads = "r" in mode or "+" in mode
        self._writes = "r" not in mode or "+" in mode
        self._appends = "a" in mode and "+" not in mode
        self._is_changed = False
        if "x" in mode and _ask("exists", path, path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if "w" in mode or "x" in mode:
            contents = b""
            self._send("write_bytes", contents)
        elif self._appends:
            contents = b""
            self._send("append_bytes", contents)
        elif "a" in mode:
            self._send("append_bytes", b"")
            contents = _ask("read_bytes", path, path)
        else:
            contents = _ask("read_bytes", path, path)
        super().__init__(contents)
        if "a" in mode:
            self.seek(0, io.SEEK_END)

    def _send(self, operation: str, contents: bytes) -> None:
        data = binascii.b2a_base64(contents, newline=False).decode()
        _ask(operation, {"path": self.name, "data": data}, self.name)

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def read(self, size: int | None = -1, /) -> bytes:
        self._check(self._reads, "read")
        return super().read(size)

    def write(self, data: Any, /) -> int:
        self._check(self._writes, "write")
        self._is_changed = True
        return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        self._check(self._writes, "write")
        self._is_changed = True
        return super().truncate(size)

    def _check(self, is_possible: bool, what: str) -> None:
        if not is_possible:
            raise io.UnsupportedOperation(f"not {what}able" if what == "read" else "not writable")

    def flush(self) -> None:
        if not self.closed and self._is_changed:
            self._is_changed = False
            if self._appends:
                self._send("append_bytes", self.getvalue())
                super().seek(0)
                super().truncate()
            else:
                self._send("write_bytes", self.getvalue())
        super().flush()

    def close(self) -> None:
        if not self.closed:
            try:
                self.flush()
            finally:
                super().close()


def _open(  # noqa: PLR0913, PLR0917 - the parameters of io.open
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    path = None if opener is not None else _path_of(file)
    if path is not None and set(mode) <= set("rwaxbt+") and len(set(mode) & set("rwax")) == 1:
        try:
            raw = _File(path, mode)
            if "b" in mode:
                return raw
            text = io.TextIOWrapper(raw, encoding, errors, newline, line_buffering=buffering == 1)
            text.mode = mode  # type: ignore[misc]
            return text
        except _NotHandled:
            pass
    return _real["open"](file, mode, buffering, encoding, errors, newline, closefd, opener)


_open.__name__ = _open.__qualname__ = "open"

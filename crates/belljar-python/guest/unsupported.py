"""Operations that WebAssembly does not support. Their errors name an alternative. See `subprocess_shim` for pip.

The exception types are CPython's, because libraries catch them: RuntimeError for threads, OSError for processes and
sockets.
"""

import _thread
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

NO_THREADS = (
    "can't start new thread: Python in WebAssembly has only one. "
    "Call the function directly, or use asyncio for work that waits"
)
NO_PROCESSES = (
    "Python in WebAssembly cannot start processes, except that `pip install` is done for you. Do the work in this one: "
    "shutil, pathlib, tarfile and zipfile stand in for many commands, and Python code can be imported instead of run"
)
NO_NETWORK = "this sandbox has no network access"


def install() -> None:
    """Patches modules that are imported already, and the others when they are imported."""
    threading.Thread.start = _start_thread
    _thread.start_new_thread = _thread.start_new = _refuse_thread
    _thread.start_joinable_thread = threading._start_joinable_thread = _refuse_thread
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve"):
        # Only functions that exist: libraries use hasattr to detect the platform's features.
        if hasattr(os, name):
            setattr(os, name, refuse_process)
    socket.socket.__init__ = _open_socket
    socket.getaddrinfo = _resolve
    for name, patch in list(_PENDING_PATCHES.items()):
        if name in sys.modules:
            del _PENDING_PATCHES[name]
            patch(sys.modules[name])
    sys.meta_path.insert(0, _PatchOnImport())


def _refuse_thread(*args: object, **options: object) -> NoReturn:
    raise RuntimeError(NO_THREADS)


def _start_thread(self: threading.Thread) -> NoReturn:
    raise RuntimeError(NO_THREADS)


def when_imported(name: str, patch: Callable[[ModuleType], None]) -> None:
    """Registers ``patch``, which is called with a module after its import."""
    _PENDING_PATCHES[name] = patch


def refuse_process(*args: object, **options: object) -> NoReturn:
    """Raises the error of starting a process."""
    raise OSError(errno.ENOTSUP, NO_PROCESSES)


_socket_init = socket.socket.__init__
_getaddrinfo = socket.getaddrinfo


def _open_socket(self: socket.socket, *args: Any, **options: Any) -> None:
    try:
        _socket_init(self, *args, **options)
    except OSError as error:
        raise OSError(error.errno, f"{NO_NETWORK} ({error.strerror})") from None


def _resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
    try:
        return _getaddrinfo(host, port, *args, **options)
    except socket.gaierror as error:
        raise socket.gaierror(error.errno, f"{NO_NETWORK} (cannot look up {host!r})") from None


def _patch_multiprocessing(module: ModuleType) -> None:
    module.BaseProcess.start = refuse_process


def _patch_contexts(module: ModuleType) -> None:
    # A pool creates locks before it starts processes, and would fail with an error about a missing sem_open.
    module.BaseContext.Pool = refuse_process


def _patch_process_pool(module: ModuleType) -> None:
    module.ProcessPoolExecutor.__init__ = refuse_process


_PENDING_PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "concurrent.futures.process": _patch_process_pool,
    "multiprocessing.context": _patch_contexts,
    "multiprocessing.process": _patch_multiprocessing,
}


class _PatchOnImport:
    """A finder that finds no modules itself: it wraps those of other finders, to patch them after they have run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        patch = _PENDING_PATCHES.pop(name, None)
        if patch is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _PatchingLoader(spec.loader, patch)
                return spec
        return None


class _PatchingLoader:
    """A loader that patches the module after its own loader has run it, and then removes itself."""

    def __init__(self, loader: Any, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._patch(module)

"""Operations that WebAssembly does not support. Their errors name an alternative.

The exception types are CPython's, because libraries catch them: OSError for processes and sockets. See
`subprocess_shim` for the programs that are emulated, and `threads` for threads.
"""

import errno
import os
import socket
from typing import Any, NoReturn

NO_PROCESSES = (
    "Python in WebAssembly cannot start processes. It stands in for pip, python, ls, cat, echo and pwd, without pipes "
    "and redirections; shutil, pathlib, tarfile and zipfile do the work of many other programs"
)
NO_NETWORK = "this sandbox has no network access"


def install() -> None:
    """Patches the functions that are refused."""
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve"):
        # Only functions that exist: libraries use hasattr to detect the platform's features.
        if hasattr(os, name):
            setattr(os, name, refuse_process)
    socket.socket.__init__ = _open_socket
    socket.getaddrinfo = _resolve


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

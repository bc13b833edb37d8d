"""Operations that WebAssembly does not support. Their errors name an alternative.

The exception types are CPython's, because libraries catch them: OSError for processes. See
`subprocess_shim` for the programs that are emulated, `threads` for threads, and `network` for sockets.
"""

import errno
import os
from typing import NoReturn

NO_PROCESSES = (
    "Python in WebAssembly cannot start processes. It stands in for pip, python, ls, cat, echo and pwd, without pipes "
    "and redirections; shutil, pathlib, tarfile and zipfile do the work of many other programs"
)


def install() -> None:
    """Patches the functions that are refused."""
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve"):
        # Only functions that exist: libraries use hasattr to detect the platform's features.
        if hasattr(os, name):
            setattr(os, name, refuse_process)


def refuse_process(*args: object, **options: object) -> NoReturn:
    """Raises the error of starting a process."""
    raise OSError(errno.ENOTSUP, NO_PROCESSES)

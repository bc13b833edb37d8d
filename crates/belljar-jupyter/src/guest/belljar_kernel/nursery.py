"""The process that kernels are forked from.

It has imported what sessions import, so that a kernel is there in the time of a fork, and shares its memory. It runs none of
a session's code, and keeps one thread: a fork copies no others. The host sends one message for each kernel, with
descriptors: the first is where the nursery tells about that kernel, the others are those that `entry` needs.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

_MESSAGE = 256 * 1024
_DESCRIPTORS = 32
_PR_SET_CHILD_SUBREAPER = 36


def main() -> NoReturn:
    """Serve the host on standard input until it is gone."""
    control = socket.socket(fileno=os.dup(0))
    _point_standard_streams_nowhere()
    from . import kernel  # noqa: F401  (what every kernel needs)

    for name in sys.argv[1:]:
        # Environments that people bring need not have everything.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # Kernels of sandboxes lose their parent at once; this process is told how they end.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.collect()
    gc.freeze()
    wake, awoken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(awoken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _tell(control, {"ready": True, "prefixes": sorted({sys.prefix, sys.base_prefix, sys.exec_prefix})})
    kernels: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            _bury(kernels)
        if control in ready:
            message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE, _DESCRIPTORS)
            if not message:
                _end(kernels)
            order = json.loads(message)
            teller = socket.socket(fileno=descriptors[0])
            _bear(order, teller, descriptors[1:], kernels, [control.fileno(), wake, awoken])


def _bear(
    order: dict[str, Any],
    teller: socket.socket,
    descriptors: list[int],
    kernels: dict[int, socket.socket],
    own: list[int],
) -> None:
    """Fork a kernel, and tell its number with a descriptor of its process."""
    told, tells = os.pipe2(os.O_CLOEXEC)
    between = os.fork()
    if between == 0:
        os.close(told)
        for held in [*own, *(other.fileno() for other in kernels.values()), teller.fileno()]:
            os.close(held)
        _be_between(order, descriptors, tells)
    os.close(tells)
    for descriptor in descriptors:
        os.close(descriptor)
    with os.fdopen(told, "rb") as answer:
        text = answer.read()
    # It has ended, or ends now.
    os.waitpid(between, 0)
    try:
        number = int(text)
        process = os.pidfd_open(number)
    except (ValueError, OSError) as error:
        reason = text.decode(errors="replace") or str(error)
        _tell(teller, {"error": reason})
        teller.close()
        return
    _tell(teller, {"process": number}, [process])
    os.close(process)
    kernels[number] = teller


def _be_between(order: dict[str, Any], descriptors: list[int], tells: int) -> NoReturn:
    """The process between the nursery and a kernel: what it enters, its child is in."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        finish = None
        if order.get("entry") is not None:
            from . import entry

            finish = entry.enter(order["entry"], descriptors)
        number = os.fork()
        if number:
            os.write(tells, str(number).encode())
            os._exit(0)
        os.close(tells)
        os.setsid()
        if finish is not None:
            finish()
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(tells, f"{type(error).__name__}: {error}".encode())
        os._exit(125)
    from . import kernel

    kernel.serve(order["plan"])


def _bury(kernels: dict[int, socket.socket]) -> None:
    """Tell how kernels ended."""
    while True:
        try:
            number, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if number == 0:
            return
        teller = kernels.pop(number, None)
        if teller is not None:
            _tell(teller, {"ended": os.waitstatus_to_exitcode(status)})
            teller.close()


def _tell(teller: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    # Whoever asked may be gone.
    with contextlib.suppress(OSError):
        socket.send_fds(teller, [json.dumps(message).encode()], descriptors or [])


def _end(kernels: dict[int, socket.socket]) -> NoReturn:
    """The host is gone: nobody needs its kernels."""
    for number in kernels:
        with contextlib.suppress(OSError):
            os.killpg(number, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)
    os._exit(0)


def _point_standard_streams_nowhere() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    os.close(nowhere)

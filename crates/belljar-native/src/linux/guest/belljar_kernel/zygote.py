"""The zygote: the process that kernels are forked from.

The zygote has imported the modules that sessions use, so a kernel starts in the time of a fork, and shares the memory
of the modules. It does not run a session's code, and has one thread, since a fork copies one thread alone. The host
sends messages over a socket, each of a command byte, JSON, and descriptors:

- ``f{"config": …}`` forks a kernel without a sandbox. The descriptor is a socket for the reply and the exit status.
- ``e{"config": …, "entry": …}`` forks a kernel that enters a sandbox, with the descriptors of the sandbox.
- ``w{"pid": …}`` asks for the exit status of a kernel that has entered a sandbox. The descriptor is a socket for it.

Configurations hold secrets of a session, such as its key. Only the forked process parses them. The zygote overwrites
them after each message, since processes that are forked later inherit its memory.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

_KERNEL_IMPORTS = (
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "encodings.idna",
    "mimetypes",
    "pydoc",
    "tornado.platform.asyncio",
    "tornado.queues",
)
"""Modules that a kernel imports while it starts."""
_MAX_MESSAGE = 256 * 1024
_MAX_DESCRIPTORS = 32
_MAX_UNCLAIMED = 1000
"""The number of exit statuses that are kept until the host asks for them."""


def main() -> NoReturn:
    """Serves the host on standard input until it closes the socket."""
    control = socket.socket(fileno=os.dup(0))
    _redirect_stdio_to_devnull()
    # The host sets up sandboxes with these directories while the imports go on.
    _send(control, {"prefixes": sorted({sys.prefix, sys.base_prefix, sys.exec_prefix})})
    try:
        from . import entry, kernel  # noqa: F401  (kernel: the imports of every kernel)
    except ModuleNotFoundError as error:
        _send(control, {"missing_module": error.name})
        sys.exit(1)

    for name in (*_KERNEL_IMPORTS, *sys.argv[1:]):
        # The environment may lack modules, or their import may fail: kernels do without.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # A kernel that enters a sandbox loses its parent at once. As its new parent, this process gets its exit status.
    entry.become_reaper()
    gc.collect()
    gc.freeze()
    gc.enable()
    wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _send(control, {})  # Ready.
    zygote = _Zygote(control, wakeup_read, wakeup_write)
    message = bytearray(_MAX_MESSAGE)
    while True:
        ready, _, _ = select.select([control, wakeup_read], [], [])
        if wakeup_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wakeup_read, 4096)
            zygote.reap()
        if control in ready:
            length, descriptors = _receive(control, message)
            if length == 0:
                zygote.shut_down()
            zygote.handle_command(memoryview(message)[:length], descriptors)
            message[:length] = bytes(length)


class _Zygote:
    """The forked kernels, and the sockets over which their exit statuses are reported."""

    def __init__(self, control: socket.socket, wakeup_read: int, wakeup_write: int) -> None:
        self._control = control
        self._wakeup_pipe = (wakeup_read, wakeup_write)
        self._exit_sockets: dict[int, socket.socket] = {}
        """The socket for the exit status of each process id."""
        self._unclaimed: dict[int, int] = {}
        """The exit codes of processes that the host has not asked for yet."""

    def handle_command(self, message: memoryview, descriptors: list[int]) -> None:
        """Carries out one message of the host."""
        match chr(message[0]):
            case "e":
                self._fork_into_sandbox(message[1:], descriptors)
            case "w":
                self._watch(json.loads(bytes(message[1:]))["pid"], socket.socket(fileno=descriptors[0]))
            case _:
                self._fork_kernel(message[1:], socket.socket(fileno=descriptors[0]))

    def _fork_kernel(self, request: memoryview, exit_socket: socket.socket) -> None:
        """Forks a kernel without a sandbox. Sends its process id and its pidfd."""
        try:
            pid = os.fork()
        except OSError as error:
            _send(exit_socket, {"error": str(error)})
            return
        if pid == 0:
            self._close_inherited_fds([exit_socket])
            os.setsid()
            from . import kernel

            kernel.serve(json.loads(bytes(request))["config"])
        # Only this process reaps the child, so the process id cannot have been reused.
        pidfd = os.pidfd_open(pid)
        _send(exit_socket, {"pid": pid}, [pidfd])
        os.close(pidfd)
        self._exit_sockets[pid] = exit_socket

    def _fork_into_sandbox(self, request: memoryview, descriptors: list[int]) -> None:
        """Forks a process that enters a sandbox and forks the kernel there, which reports to the host itself."""
        # When the fork fails, the sandbox's socket among the descriptors closes, and the host notices that.
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                self._close_inherited_fds([])
                from . import entry, kernel

                parsed = json.loads(bytes(request))
                entry.enter(parsed["entry"], descriptors)
                kernel.serve(parsed["config"])
        for descriptor in descriptors:
            os.close(descriptor)

    def _watch(self, pid: int, exit_socket: socket.socket) -> None:
        """Reports the exit of a process that has entered a sandbox, and so has become a child of this process."""
        if pid in self._unclaimed:
            _send(exit_socket, {"exit_code": self._unclaimed.pop(pid)})
        else:
            self._exit_sockets[pid] = exit_socket

    def _close_inherited_fds(self, more: list[socket.socket]) -> None:
        """In a child, closes the zygote's descriptors and restores its signal handlers."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in [self._control, *self._exit_sockets.values(), *more]:
            os.close(inherited.detach())
        for end in self._wakeup_pipe:
            os.close(end)

    def reap(self) -> None:
        """Reaps the processes that have exited, and reports their exit codes."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            exit_code = os.waitstatus_to_exitcode(status)
            exit_socket = self._exit_sockets.pop(pid, None)
            if exit_socket is not None:
                _send(exit_socket, {"exit_code": exit_code})
                exit_socket.close()
                continue
            self._unclaimed[pid] = exit_code
            if len(self._unclaimed) > _MAX_UNCLAIMED:
                del self._unclaimed[next(iter(self._unclaimed))]

    def shut_down(self) -> NoReturn:
        """Kills the kernels and exits, since the host has closed the socket. Sandboxes end by themselves."""
        for pid in self._exit_sockets:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)
        os._exit(0)


def _receive(control: socket.socket, buffer: bytearray) -> tuple[int, list[int]]:
    """Receives a message, and returns its length and the descriptors that came with it."""
    descriptors = array.array("i")
    length, ancillary, _, _ = control.recvmsg_into([buffer], socket.CMSG_LEN(_MAX_DESCRIPTORS * descriptors.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return length, list(descriptors)


def _send(target: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    # Errors are ignored: the host may have closed the other end.
    with contextlib.suppress(OSError):
        socket.send_fds(target, [json.dumps(message).encode()], descriptors or [])


def _redirect_stdio_to_devnull() -> None:
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(devnull, stream)
    os.close(devnull)

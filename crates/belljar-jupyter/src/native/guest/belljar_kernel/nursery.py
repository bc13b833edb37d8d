"""The process that kernels are forked from.

It has imported what sessions import, so that a kernel is there in the time of a fork, and shares its memory. It runs
none of a session's code, and keeps one thread: a fork copies no others. The host sends a byte, which says what to do,
JSON, and descriptors:

- ``b{"plan": …}`` forks a kernel; what becomes of it is told over the descriptor,
- ``e{"plan": …, "entry": …}`` forks one that enters a sandbox, for which the descriptors are,
- ``w{"number": …}`` asks to be told how the one that entered ends, over the descriptor.

Plans hold what is a session's own, as its key. They are read by its own process: here they are wiped out, since those
that are forked later have this process's memory.
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

_LATER = (
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
"""What a kernel imports while it starts."""
_MESSAGE = 256 * 1024
_DESCRIPTORS = 32
_MOST_ENDED = 1000


def main() -> NoReturn:
    """Serve the host on standard input until it is gone."""
    control = socket.socket(fileno=os.dup(0))
    _point_standard_streams_nowhere()
    # Sandboxes that show these can be made meanwhile.
    _tell(control, {"prefixes": sorted({sys.prefix, sys.base_prefix, sys.exec_prefix})})
    from . import entry, kernel  # noqa: F401  (kernel: what every kernel needs)

    for name in (*_LATER, *sys.argv[1:]):
        # Environments that people bring need not have everything.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # Kernels of sandboxes lose their parent at once; this process is told how they end.
    entry.become_reaper()
    gc.collect()
    gc.freeze()
    gc.enable()
    wake, awoken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(awoken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _tell(control, {})  # Ready.
    nursery = _Nursery(control, wake, awoken)
    order = bytearray(_MESSAGE)
    while True:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            nursery.bury()
        if control in ready:
            length, descriptors = _receive(control, order)
            if length == 0:
                nursery.end()
            nursery.obey(memoryview(order)[:length], descriptors)
            order[:length] = bytes(length)


class _Nursery:
    """Who was forked, and who wants to know how they end."""

    def __init__(self, control: socket.socket, wake: int, awoken: int) -> None:
        self._control = control
        self._pipe = (wake, awoken)
        self._tellers: dict[int, socket.socket] = {}
        """Where to tell how a process ends."""
        self._ended: dict[int, int] = {}
        """Statuses of those that nobody has asked for yet."""

    def obey(self, order: memoryview, descriptors: list[int]) -> None:
        """Do what the host asks."""
        match chr(order[0]):
            case "e":
                self._enter(order[1:], descriptors)
            case "w":
                self._watch(json.loads(bytes(order[1:]))["number"], socket.socket(fileno=descriptors[0]))
            case _:
                self._bear(order[1:], socket.socket(fileno=descriptors[0]))

    def _bear(self, order: memoryview, teller: socket.socket) -> None:
        """Fork a kernel that nothing holds, and tell its number with a descriptor of its process."""
        try:
            number = os.fork()
        except OSError as error:
            _tell(teller, {"error": str(error)})
            return
        if number == 0:
            self._leave([teller])
            os.setsid()
            from . import kernel

            kernel.serve(json.loads(bytes(order))["plan"])
        # Nobody else buries it, so that the number is its own.
        process = os.pidfd_open(number)
        _tell(teller, {"process": number}, [process])
        os.close(process)
        self._tellers[number] = teller

    def _enter(self, order: memoryview, descriptors: list[int]) -> None:
        """Fork a process that enters a sandbox and forks the kernel there. The host hears from it."""
        # If there is none, its end of the sandbox's socket closes, and the host hears that.
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                self._leave([])
                from . import entry, kernel

                read = json.loads(bytes(order))
                entry.enter(read["entry"], descriptors)
                kernel.serve(read["plan"])
        for descriptor in descriptors:
            os.close(descriptor)

    def _watch(self, number: int, teller: socket.socket) -> None:
        """Tell how a process ends that entered a sandbox: it has become a child of this one."""
        if number in self._ended:
            _tell(teller, {"ended": self._ended.pop(number)})
        else:
            self._tellers[number] = teller

    def _leave(self, more: list[socket.socket]) -> None:
        """In a child: let go of all that is the nursery's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for held in [self._control, *self._tellers.values(), *more]:
            os.close(held.detach())
        for end in self._pipe:
            os.close(end)

    def bury(self) -> None:
        """Tell how processes ended."""
        while True:
            try:
                number, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if number == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            teller = self._tellers.pop(number, None)
            if teller is not None:
                _tell(teller, {"ended": code})
                teller.close()
                continue
            self._ended[number] = code
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def end(self) -> NoReturn:
        """The host is gone: nobody needs its kernels. Sandboxes end by themselves."""
        for number in self._tellers:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(number, signal.SIGKILL)
        os._exit(0)


def _receive(control: socket.socket, into: bytearray) -> tuple[int, list[int]]:
    """Take a message, and answer its length and the descriptors that came with it."""
    descriptors = array.array("i")
    length, ancillary, _, _ = control.recvmsg_into([into], socket.CMSG_LEN(_DESCRIPTORS * descriptors.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return length, list(descriptors)


def _tell(teller: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    # Whoever asked may be gone.
    with contextlib.suppress(OSError):
        socket.send_fds(teller, [json.dumps(message).encode()], descriptors or [])


def _point_standard_streams_nowhere() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    os.close(nowhere)

"""asyncio without sockets or threads, and the one event loop that a session's cells share.

CPython's loop wakes itself through a socket pair, which does not exist here. With one thread nothing can happen
while the loop waits, except time passing, so ours needs none: it sleeps until its next timer.
"""

import asyncio
import errno
import selectors
import socket
import time
from asyncio import runners, unix_events
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

from . import interrupts, refusals

_SLICE = 0.25
"""Seconds waited at once. A signal handler that only adds a callback does not end the wait in `poll` (PEP 475)."""

_DEADLOCK = (
    "asyncio is waiting for something that cannot happen: no task can run and no timer is set. "
    "Look for a future, event, queue or lock that nothing will set, fill or release."
)
_NO_EXECUTOR = (
    "asyncio.to_thread and run_in_executor need threads, and Python in WebAssembly has only one: "
    "call the function directly instead"
)


class Selector(selectors.DefaultSelector):
    """Waits for time to pass, and for the pipes that the program registered, if any."""

    def __init__(self) -> None:
        super().__init__()
        self._woken = False

    def wake(self) -> None:
        """End the wait: a callback was added from a signal handler."""
        self._woken = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Events, possibly none, after at most ``timeout`` seconds; None says that no timer is set."""
        if not self.get_map():
            if timeout is None:
                raise RuntimeError(_DEADLOCK)
            if timeout <= 0:
                return []
        end = None if timeout is None else time.monotonic() + timeout
        ready = []
        while not (ready or self._woken):
            left = _SLICE if end is None else end - time.monotonic()
            ready = super().select(min(_SLICE, left))
            interrupts.deliver()
            if left <= 0:
                break
        self._woken = False
        return ready


class EventLoop(unix_events._UnixSelectorEventLoop):
    """asyncio's event loop, as far as one thread without sockets and processes allows."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        super().__init__(Selector() if selector is None else selector)

    def _make_self_pipe(self) -> None:
        self._ssock = self._csock = None

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        if isinstance(self._selector, Selector):
            self._selector.wake()

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:
        raise RuntimeError(_NO_EXECUTOR)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: object) -> NoReturn:
        # NotImplementedError is what asyncio documents for platforms without it, and what programs expect.
        raise NotImplementedError("the event loop handles no signals here: use signal.signal")

    async def getaddrinfo(self, host: object, port: object, **options: Any) -> Any:
        # asyncio's own would ask a thread for it.
        return socket.getaddrinfo(host, port, **options)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> Any:
        return socket.getnameinfo(sockaddr, flags)

    async def create_server(self, *args: object, **options: object) -> NoReturn:
        # asyncio's own would leave out every address for which there is no socket, and say that none is left.
        raise OSError(errno.EAFNOSUPPORT, refusals.NO_NETWORK)

    async def _make_subprocess_transport(self, *args: object, **options: object) -> NoReturn:
        raise OSError(errno.ENOTSUP, refusals.NO_PROCESSES)


def install() -> None:
    """Make `EventLoop` asyncio's default."""
    unix_events.SelectorEventLoop = unix_events.EventLoop = EventLoop
    unix_events._UnixDefaultEventLoopPolicy._loop_factory = EventLoop
    asyncio.SelectorEventLoop = asyncio.EventLoop = EventLoop
    runners.Runner._on_sigint = _interrupt_runner


def _interrupt_runner(self: runners.Runner, signum: int, frame: FrameType | None, main_task: asyncio.Task) -> None:
    """`asyncio.run` on SIGINT: stop at once; the runner cancels what is left when it closes.

    CPython's first cancels the main task, which has no effect on one that computes, and relies on somebody
    pressing Ctrl-C again.
    """
    raise KeyboardInterrupt


_shared: EventLoop | None = None


def run[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a cell's coroutine on the loop that all cells share, so that what is bound to the loop lives on."""
    loop = _shared_loop()
    task = loop.create_task(coroutine)
    code = coroutine.cr_code  # type: ignore[attr-defined]
    try:
        return loop.run_until_complete(task)
    except BaseException as error:
        if task.done():
            raise error.with_traceback(_from_cell(error.__traceback__, code))
        raise _cancel(loop, task, code, error)
    finally:
        del task, coroutine  # This frame is part of the same circle as asyncio's: see `_from_cell`.


def _cancel(loop: EventLoop, task: asyncio.Task, code: CodeType, reason: BaseException) -> BaseException:
    """Cancel a cell after the loop itself has stopped, so that its ``finally`` blocks run; answer what to raise.

    The reason was a deadlock, or SystemExit or KeyboardInterrupt outside of the cell's own steps. It is shown where
    the cell was waiting.
    """
    where = reason.__traceback__
    task.cancel()
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError as cancelled:
        where = _from_cell(cancelled.__traceback__, code)
    except BaseException as error:
        if task.done():
            return error.with_traceback(_from_cell(error.__traceback__, code))
    return reason.with_traceback(where)


def close() -> None:
    """End the shared loop as `asyncio.run` ends its own: cancel what still waits, close async generators."""
    global _shared
    loop, _shared = _shared, None
    if loop is None or loop.is_closed():
        return
    try:
        runners._cancel_all_tasks(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _shared_loop() -> EventLoop:
    global _shared
    if _shared is None or _shared.is_closed():
        _shared = EventLoop()
    asyncio.set_event_loop(_shared)
    return _shared


def _from_cell(traceback: TracebackType | None, code: CodeType) -> TracebackType | None:
    """The part of a traceback that begins in the cell; all of it if the cell is not in it."""
    found = traceback
    while found is not None and found.tb_frame.f_code is not code:
        found = found.tb_next
    if found is None:
        return traceback
    while traceback is not found:
        # asyncio's frames hold the task, the task the error, the error these frames: as a circle they would outlive
        # the cell. A frame that still runs cannot be cleared, and need not.
        with suppress(RuntimeError):
            traceback.tb_frame.clear()
        traceback = traceback.tb_next
    return found

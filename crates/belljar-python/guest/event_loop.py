"""asyncio without threads, and the event loop that all cells of a session share.

CPython's loop wakes itself through a socket pair, which does not exist here. With a single thread, only the passing of
time, the tasks of `scheduler`, and the host can end the loop's wait: replies to calls, and changes of sockets.
"""

import asyncio
import errno
import os
import selectors
import socket
import stat
import time
from asyncio import runners, unix_events
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

from . import exchange, gathering, interrupts, network, scheduler, unsupported

_MAX_WAIT = 0.25
"""Seconds of one wait. A signal handler that only adds a callback does not end the wait in `poll` (PEP 475)."""

_SOCKET_INTERVAL = 0.01
"""Seconds between looks at sockets while the thread waits for functions of the host."""

_DEADLOCK = (
    "asyncio is waiting for something that cannot happen: no task can run and no timer is set. "
    "Look for a future, event, queue or lock that nothing will set, fill or release."
)


class Selector(selectors.DefaultSelector):
    """A selector that waits for time to pass, and for the pipes and sockets that the program registered, if any."""

    def __init__(self) -> None:
        super().__init__()
        self._is_woken = False
        self._sockets: set[int] = set()
        """The descriptors of the registered sockets."""
        self.suspend: Callable[[], None] | None = None
        """Stops the loop instead of a wait, which then ends the call of the host; None if the wait is to block."""
        self.timeout: float | None = None
        """The seconds of the wait that suspended the loop; None if only the host can end it."""

    def wake(self) -> None:
        """Ends the wait: a signal handler or another thread has added a callback."""
        self._is_woken = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Returns events, possibly none, after at most ``timeout`` seconds. None means that no timer is set."""
        if self.suspend is not None and (timeout is None or timeout > 0) and self._suspend(self.suspend, timeout):
            return []
        if exchange.is_waiting():
            return self._wait_for_host(timeout)
        if self._sockets and scheduler.is_idle() and not self.has_pipes():
            # Their changes end the wait, so that it need not look for others in between.
            ready = super().select(0 if self._is_woken else timeout)
            interrupts.raise_pending()
            self._is_woken = False
            return ready
        if not self.get_map():
            if timeout is None or timeout > 0:
                scheduler.wait(lambda: self._is_woken, timeout, deadlock=_DEADLOCK)
                self._is_woken = False
            elif not (scheduler.is_idle() or scheduler.locks_of_main):
                scheduler.run_one()
            return []
        end = None if timeout is None else time.monotonic() + timeout
        ready = []
        while not (ready or self._is_woken):
            left = _MAX_WAIT if end is None else end - time.monotonic()
            if scheduler.run_one():
                left = 0
            ready = super().select(min(_MAX_WAIT, left))
            interrupts.raise_pending()
            if left <= 0:
                break
        self._is_woken = False
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        if stat.S_ISSOCK(os.fstat(key.fd).st_mode):
            self._sockets.add(key.fd)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._sockets.discard(key.fd)
        return key

    def has_pipes(self) -> bool:
        """Returns whether descriptors other than sockets are registered."""
        return len(self.get_map()) > len(self._sockets)

    def waits_for_sockets(self) -> bool:
        """Returns whether sockets are registered, for which the host can end the wait."""
        return bool(self._sockets)

    def has_ready_socket(self) -> bool:
        """Returns whether a registered socket is ready."""
        return bool(self._sockets and super().select(0))

    def is_blocking(self) -> bool:
        """Returns whether a wait is for pipes or for threads, or is over."""
        return bool(self._is_woken or self.has_pipes() or not scheduler.is_idle())

    def can_block(self) -> bool:
        """Returns whether a wait would be for the host only, and would block."""
        return not (self.suspend or self._is_woken or self.get_map()) and scheduler.is_idle()

    def _suspend(self, suspend: Callable[[], None], timeout: float | None) -> bool:
        """Stops the loop if it has nothing to do until a timer is due or the host has replies. Returns whether the wait
        is over, since the loop stops or something has happened.

        A wait that the host cannot end, for pipes or for threads, blocks as outside of steps.
        """
        interrupts.raise_pending()
        if self.is_blocking() or self.has_ready_socket():
            return False
        if exchange.is_waiting():
            if exchange.wait(0):
                return True
        elif timeout is None and not self._sockets:
            return False  # It cannot end: the blocking wait raises the error.
        self.timeout = timeout
        suspend()
        return True

    def _wait_for_host(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Waits for replies to calls of the host's functions. Threads run meanwhile, unless they want a lock."""
        if self._sockets:
            # A wait for replies does not end when a socket is ready.
            if ready := super().select(0):
                exchange.wait(0)
                return ready
            timeout = _SOCKET_INTERVAL if timeout is None else min(timeout, _SOCKET_INTERVAL)
        if not (scheduler.is_idle() or scheduler.locks_of_main):
            scheduler.run_one()
            timeout = _MAX_WAIT if timeout is None else min(timeout, _MAX_WAIT)
        exchange.wait(0 if self._is_woken else timeout)
        self._is_woken = False
        return super().select(0) if self.get_map() else []


class EventLoop(unix_events._UnixSelectorEventLoop):
    """asyncio's event loop, without servers and processes."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        super().__init__(Selector() if selector is None else selector)
        self._is_suspended = False

    def stop(self) -> None:
        self._is_suspended = False
        super().stop()

    def _suspend(self) -> None:
        super().stop()
        self._is_suspended = True

    def can_block(self) -> bool:
        """Returns whether the loop has nothing to do but to wait for the host, when the task that runs now waits."""
        if self._ready or self._scheduled or self._stopping:
            return False
        return type(self._selector) is Selector and self._selector.can_block()

    def steps(self) -> Generator[float | None]:
        """Runs the loop until it is stopped, as `run_forever` does, but yields when it waits for timers or the host.

        Yields the number of seconds until the next timer, or None without one. Resuming it early does no harm.
        """
        selector = self._selector
        while True:
            self._is_suspended = False
            selector.suspend = self._suspend
            try:
                super().run_forever()
            finally:
                selector.suspend = None
            if not self._is_suspended:
                return
            while True:
                yield selector.timeout
                # Inside of the loop's own code, an interrupt would leave the loop unusable.
                interrupts.raise_pending()
                if not self._still_waits(selector):
                    break

    def _still_waits(self, selector: Selector) -> bool:
        """Returns whether a suspended loop would be suspended again at once, which takes less time than running it."""
        if self._ready or selector.is_blocking() or selector.has_ready_socket():
            return False
        if exchange.is_waiting():
            if exchange.wait(0):
                return False
        elif not (self._scheduled or selector.waits_for_sockets()):
            return False  # It cannot go on: the loop raises the error.
        if self._scheduled:
            timer = self._scheduled[0]
            timeout = timer._when - self.time()
            if timer._cancelled or timeout <= self._clock_resolution:
                return False
            selector.timeout = timeout
        return True

    def _make_self_pipe(self) -> None:
        self._ssock = self._csock = None

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        if isinstance(self._selector, Selector):
            self._selector.wake()

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: object) -> NoReturn:
        # asyncio documents NotImplementedError for platforms without support, and programs expect it.
        raise NotImplementedError("the event loop handles no signals here: use signal.signal")

    async def getaddrinfo(self, host: object, port: object, **options: Any) -> Any:
        # asyncio's implementation would use a thread.
        return socket.getaddrinfo(host, port, **options)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> Any:
        return socket.getnameinfo(sockaddr, flags)

    async def create_server(self, *args: object, **options: object) -> NoReturn:
        # asyncio's implementation would skip all addresses for lack of a socket, and report that none is left.
        raise OSError(errno.EAFNOSUPPORT, network.NO_LISTENING if network.is_available() else network.NO_NETWORK)

    async def _make_subprocess_transport(self, *args: object, **options: object) -> NoReturn:
        raise OSError(errno.ENOTSUP, unsupported.NO_PROCESSES)


def install() -> None:
    """Makes `EventLoop` asyncio's default, and installs the faster `asyncio.gather`."""
    unix_events.SelectorEventLoop = unix_events.EventLoop = EventLoop
    unix_events._UnixDefaultEventLoopPolicy._loop_factory = EventLoop
    asyncio.SelectorEventLoop = asyncio.EventLoop = EventLoop
    runners.Runner._on_sigint = _interrupt_runner
    gathering.install()


def _interrupt_runner(self: runners.Runner, signum: int, frame: FrameType | None, main_task: asyncio.Task) -> None:
    """Handles SIGINT for `asyncio.run` by stopping at once; the runner cancels the remaining tasks when it closes.

    CPython's handler first cancels the main task, which does not stop a task that computes, and relies on a second
    Ctrl-C.
    """
    raise KeyboardInterrupt


_shared: EventLoop | None = None


def run[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a cell's coroutine on the loop that all cells share, so that objects bound to the loop stay usable."""
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
        del task, coroutine  # This frame is part of the same cycle as asyncio's: see `_from_cell`.


def steps[T](coroutine: Coroutine[Any, Any, T]) -> Generator[float | None, None, T]:
    """Runs a cell's coroutine as `run` does, but yields when it waits for timers or the host: the number of seconds
    until the next timer, or None without one.

    Nothing of the coroutine is on the stack then, so that the host can continue it later, on any thread. Resuming it
    early does no harm.
    """
    loop = _shared_loop()
    task = loop.create_task(coroutine)
    code = coroutine.cr_code  # type: ignore[attr-defined]
    task.add_done_callback(lambda _: loop.stop())
    try:
        yield from loop.steps()
        if not task.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return task.result()
    except BaseException as error:
        if task.done():
            raise error.with_traceback(_from_cell(error.__traceback__, code))
        raise _cancel(loop, task, code, error)
    finally:
        del task, coroutine  # See `run`.


def _cancel(loop: EventLoop, task: asyncio.Task, code: CodeType, reason: BaseException) -> BaseException:
    """Cancels a cell after the loop itself has stopped, so that its ``finally`` blocks run. Returns the exception to
    raise.

    The reason was a deadlock, or SystemExit or KeyboardInterrupt outside of the cell's own steps. Its traceback ends
    where the cell was waiting.
    """
    where = reason.__traceback__
    task.cancel()
    try:
        # IPython's coroutine returns the exception that the cell raised.
        cancelled = getattr(loop.run_until_complete(task), "error_in_exec", None)
        if isinstance(cancelled, asyncio.CancelledError):
            where = cancelled.__traceback__
    except asyncio.CancelledError as cancelled:
        where = _from_cell(cancelled.__traceback__, code)
    except BaseException as error:
        if task.done():
            return error.with_traceback(_from_cell(error.__traceback__, code))
    return reason.with_traceback(where)


def waits_for_host() -> bool:
    """Returns whether the host can end the wait of the shared loop: by a reply, or by a change of a socket."""
    selector = None if _shared is None else _shared._selector
    return exchange.is_waiting() or (isinstance(selector, Selector) and selector.waits_for_sockets())


def close() -> None:
    """Closes the shared loop as `asyncio.run` does: cancels pending tasks and closes async generators."""
    global _shared
    loop, _shared = _shared, None
    if loop is None or loop.is_closed():
        return
    try:
        runners._cancel_all_tasks(loop)
        # Running the loop once more for nothing takes longer than the rest of this.
        if loop._asyncgens or loop._ready or loop._scheduled:
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
    """Returns the part of a traceback that begins in the cell, or all of it if the cell is not in it."""
    found = traceback
    while found is not None and found.tb_frame.f_code is not code:
        found = found.tb_next
    if found is None:
        return traceback
    while traceback is not found:
        # asyncio's frames hold the task, the task the error, and the error these frames: the cycle would keep them
        # after the cell's end. A frame that still runs cannot be cleared, and need not be.
        with suppress(RuntimeError):
            traceback.tb_frame.clear()
        traceback = traceback.tb_next
    return found

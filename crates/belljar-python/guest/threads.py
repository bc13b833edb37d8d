"""`threading` on the tasks of `scheduler`: threads, locks and thread-local data.

All waiting in `threading`, `queue` and `concurrent.futures` is waiting for a lock, so that these modules work unchanged
with the locks of this module.
"""

import _thread
import functools
import gc
import itertools
import sys
import threading
import time
import weakref
from asyncio import events, tasks
from collections.abc import Callable
from contextvars import Context, copy_context
from types import ModuleType
from typing import Any, NoReturn

from . import import_patches, interrupts, scheduler, tracebacks
from .scheduler import Task, ThreadEnded

_MAX_OVERFULL = 100_000
"""The number of items that a bounded queue may hold in excess of its bound."""

_main_ident = _thread.get_ident()
_idents = itertools.count(_main_ident + 1)


def install() -> None:
    """Patches `_thread`, `threading`, `time.sleep` and `queue`."""
    _thread.allocate_lock = _thread.allocate = threading.Lock = _Lock  # type: ignore[misc, assignment]
    _thread.LockType = _thread.lock = threading._LockType = _Lock  # type: ignore[misc, assignment]
    _thread.RLock = threading._CRLock = _RLock  # type: ignore[misc, assignment]
    _thread.start_new_thread = _thread.start_new = _start_new_thread
    _thread.start_joinable_thread = threading._start_joinable_thread = _start_joinable_thread
    _thread._local = threading.local = _Local  # type: ignore[misc, assignment]
    threading._allocate_lock = _Signal
    threading._ThreadHandle = _Handle
    threading.get_ident = _get_ident
    threading.excepthook = threading.__excepthook__ = _report
    threading.Thread.start = _start
    threading.Thread.is_alive = _is_alive
    threading.Timer.run = _run_timer
    threading.Timer.cancel = _cancel_timer
    threading.Event.is_set = _is_set
    time.sleep = _sleep
    scheduler.on_switch = _run_as_thread
    import_patches.when_imported("queue", _patch_queue)
    import_patches.when_imported("tqdm.std", _patch_tqdm)
    # Modules that were imported before have thread-local data, too.
    for each in gc.get_objects():
        if isinstance(each, _CLocal):
            _locals[id(each)] = _LocalEntry(each, (), {})


class _Lock:
    """A lock that lets other threads run while it is waited for. It belongs to a task, or to None, the main thread."""

    __slots__ = ("__weakref__", "_owner")

    def __init__(self) -> None:
        self._owner: Any = _NO_OWNER

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._owner is not _NO_OWNER and not _wait_for_lock(self.__is_free, blocking, timeout):
            return False
        self._owner = scheduler.current
        if scheduler.current is None:
            scheduler.locks_of_main += 1
        return True

    def release(self) -> None:
        if self._owner is _NO_OWNER:
            raise RuntimeError("release unlocked lock")
        if self._owner is None:
            scheduler.locks_of_main -= 1
        self._owner = _NO_OWNER

    def locked(self) -> bool:
        return self._owner is not _NO_OWNER

    __enter__ = acquire

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __is_free(self) -> bool:
        return self._owner is _NO_OWNER

    def __repr__(self) -> str:
        return f"<{'locked' if self.locked() else 'unlocked'} _thread.lock object at {id(self):#x}>"

    def __reduce_ex__(self, protocol: Any, /) -> NoReturn:
        raise TypeError("cannot pickle '_thread.lock' object")

    def _at_fork_reinit(self) -> None:
        self._owner = _NO_OWNER


_NO_OWNER = object()
_Lock.__name__ = _Lock.__qualname__ = "lock"
_Lock.__module__ = "_thread"


class _Signal(_Lock):
    """A lock that one thread acquires twice, and that another one releases to wake it."""

    __slots__ = ()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._owner is not _NO_OWNER and not _wait_for_lock(lambda: self._owner is _NO_OWNER, blocking, timeout):
            return False
        self._owner = self  # It protects nothing, so that it does not count among the main thread's locks.
        return True

    __enter__ = acquire


class _RLock:
    """A lock that the thread that holds it can acquire again."""

    __slots__ = ("__weakref__", "_count", "_owner")

    def __init__(self) -> None:
        self._owner: Any = _NO_OWNER
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._owner is not scheduler.current:
            if self._owner is not _NO_OWNER and not _wait_for_lock(self.__is_free, blocking, timeout):
                return False
            self._owner = scheduler.current
            if scheduler.current is None:
                scheduler.locks_of_main += 1
        self._count += 1
        return True

    def release(self) -> None:
        if self._owner is not scheduler.current:
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._set_free()

    def locked(self) -> bool:
        return self._owner is not _NO_OWNER

    __enter__ = acquire

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __is_free(self) -> bool:
        return self._owner is _NO_OWNER

    def _set_free(self) -> None:
        if self._owner is None:
            scheduler.locks_of_main -= 1
        self._owner, self._count = _NO_OWNER, 0

    # The interface that `threading.Condition` uses.

    def _is_owned(self) -> bool:
        return self._owner is scheduler.current

    def _recursion_count(self) -> int:
        return self._count if self._is_owned() else 0

    def _release_save(self) -> int:
        count = self._count
        if self._owner is not scheduler.current:
            raise RuntimeError("cannot release un-acquired lock")
        self._set_free()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count

    def _at_fork_reinit(self) -> None:
        self._owner, self._count = _NO_OWNER, 0

    def __repr__(self) -> str:
        state = "locked" if self.locked() else "unlocked"
        return f"<{state} _thread.RLock object count={self._count} at {id(self):#x}>"

    def __reduce_ex__(self, protocol: Any, /) -> NoReturn:
        raise TypeError("cannot pickle '_thread.RLock' object")


_RLock.__name__ = _RLock.__qualname__ = "RLock"
_RLock.__module__ = "_thread"


def _wait_for_lock(is_free: Callable[[], bool], blocking: bool, timeout: float) -> bool:
    """Waits for a lock as `acquire` documents it, and returns whether it is free."""
    if not blocking:
        if timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        return False
    if timeout < 0 and timeout != -1:
        raise ValueError("timeout value must be a non-negative number")
    return scheduler.wait(is_free, None if timeout == -1 else timeout)


class _Handle:
    """The state of a `threading.Thread` that CPython keeps in C."""

    def __init__(self) -> None:
        self.task: Task | None = None
        self.ident = 0

    def is_done(self) -> bool:
        return self.task is not None and self.task.is_done

    def join(self, timeout: float | None = None) -> None:
        if self.task is not None and not self.task.is_done:
            scheduler.wait(self.is_done, timeout, first=self.task)

    def _set_done(self) -> None:
        pass


def _start(self: threading.Thread) -> None:
    """Replaces `Thread.start`."""
    if not self._initialized:
        raise RuntimeError("thread.__init__() not called")
    if self._started._flag:
        raise RuntimeError("threads can only be started once")
    if self._context is None:
        self._context = copy_context() if sys.flags.thread_inherit_context else Context()
    is_timer = isinstance(self, threading.Timer) and type(self).run is _run_timer
    due = time.monotonic() + self.interval if is_timer else 0.0
    task = Task(self, functools.partial(_run_thread, self), due=due, is_daemon=self._daemonic)
    scheduler.start(task)
    begin(self, task)


def begin(thread: threading.Thread, task: Task) -> None:
    """Gives a thread its identity and its task."""
    handle = thread._os_thread_handle
    handle.task, handle.ident = task, next(_idents)
    thread._ident = thread._native_id = handle.ident
    thread._started.set()
    threading._active[thread._ident] = thread


def end(thread: threading.Thread) -> None:
    """Removes a thread from those that `threading.enumerate` lists."""
    threading._active.pop(thread._ident, None)


def _run_thread(thread: threading.Thread) -> None:
    try:
        thread._context.run(thread.run)
    except KeyboardInterrupt:
        raise  # It is meant for the whole program.
    except ThreadEnded:
        # Daemons that end with the program are not reported on other platforms either.
        if not thread._daemonic:
            thread._invoke_excepthook(thread)
    except BaseException:
        thread._invoke_excepthook(thread)
    finally:
        end(thread)


def _start_new_thread(function: Callable[..., object], args: tuple[Any, ...], kwargs: Any = None, /) -> int:
    """Replaces `_thread.start_new_thread`."""
    if not callable(function):
        raise TypeError("first arg must be callable")
    thread = threading.Thread(target=function, args=args, kwargs=kwargs, daemon=True)
    thread.start()
    return thread._ident


def _start_joinable_thread(function: Callable[[], object], handle: Any = None, daemon: bool = True) -> Any:
    """Replaces `_thread.start_joinable_thread`."""
    thread = threading.Thread(target=function, daemon=daemon)
    if handle is not None:
        thread._os_thread_handle = handle
    thread.start()
    return thread._os_thread_handle


def _is_alive(self: threading.Thread) -> bool:
    """Replaces `Thread.is_alive`."""
    is_alive = self._started._flag and not self._os_thread_handle.is_done()
    if is_alive and self is not threading.main_thread():
        scheduler.poll()
    return is_alive


def _run_timer(self: threading.Timer) -> None:
    """Replaces `Timer.run`. A timer's task starts when its time has come."""
    task = self._os_thread_handle.task
    if task is None or not task.due:
        self.finished.wait(self.interval)
    if not self.finished._flag:
        self.function(*self.args, **self.kwargs)
    self.finished.set()


def _cancel_timer(self: threading.Timer) -> None:
    """Replaces `Timer.cancel`."""
    self.finished.set()
    if self._os_thread_handle.task is not None:
        self._os_thread_handle.task.due = 0.0


def _is_set(self: threading.Event) -> bool:
    """Replaces `Event.is_set`."""
    if not self._flag:
        scheduler.poll()
    return self._flag


def _get_ident() -> int:
    return _main_ident if scheduler.current is None else scheduler.current.identity._ident


@functools.wraps(time.sleep)
def _sleep(seconds: float, /) -> None:
    if scheduler.is_idle():
        interrupts.sleep(seconds)
    else:
        scheduler.sleep(seconds)


def _report(args: Any, /) -> None:
    """Replaces `threading.excepthook`: the same text without the frames of this package."""
    if args.exc_type is SystemExit:
        return
    stderr = sys.stderr if sys.stderr is not None or args.thread is None else args.thread._stderr
    if stderr is None:
        return
    name = threading.get_ident() if args.thread is None else args.thread.name
    stderr.write(f"Exception in thread {name}:\n{tracebacks.describe(args.exc_value or args.exc_type())}")
    stderr.flush()


def _run_as_thread(task: Task) -> None:
    """Calls a task's function as its thread: with its thread-local data, and outside of the running event loop."""
    below = _take_locals()
    loop = events._get_running_loop()
    if loop is not None:
        async_task = tasks._swap_current_task(loop, None)
        events._set_running_loop(None)
    try:
        _put_locals(task.identity.__dict__.pop("_belljar_locals", None))
        task.function()
    finally:
        if loop is not None:
            events._set_running_loop(loop)
            tasks._swap_current_task(loop, async_task)
        # The thread may have further tasks, as those of pools have.
        task.identity._belljar_locals = _take_locals()
        _put_locals(below)


_CLocal = threading.local


class _LocalEntry:
    """A `threading.local`, and the arguments to initialize it with in a further thread."""

    def __init__(self, local: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.local = weakref.ref(local, functools.partial(_forget_local, id(local)))
        self.args = args
        self.kwargs = kwargs


_locals: dict[int, _LocalEntry] = {}


def _forget_local(key: int, _: object) -> None:
    _locals.pop(key, None)


class _Local(_CLocal):
    """Thread-local data. CPython keeps them by thread, of which there is one; `_run_as_thread` exchanges them."""

    __slots__ = ()

    def __new__(cls, /, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls, *args, **kwargs)
        _locals[id(self)] = _LocalEntry(self, args, kwargs)
        return self


_Local.__name__ = _Local.__qualname__ = "_local"
_Local.__module__ = "_thread"

type _LocalData = list[tuple[_LocalEntry, dict[str, Any]]]


def _take_locals() -> _LocalData:
    """Removes the running thread's data, and returns them."""
    taken = []
    for entry in list(_locals.values()):
        local = entry.local()
        if local is not None:
            data = local.__dict__
            taken.append((entry, dict(data)))
            data.clear()
    return taken


def _put_locals(data: _LocalData | None) -> None:
    """Sets the data of a thread that goes on, or initializes those of one that begins."""
    known = set()
    for entry, values in data or ():
        local = entry.local()
        if local is not None:
            local.__dict__.update(values)
            known.add(entry)
    for entry in list(_locals.values()):
        local = entry.local()
        if entry not in known and local is not None and type(local).__init__ is not object.__init__:
            local.__init__(*entry.args, **entry.kwargs)


def _patch_queue(module: ModuleType) -> None:
    module.SimpleQueue = module._PySimpleQueue  # The other one waits in C.
    put = module.Queue.put

    @functools.wraps(put)
    def put_in_excess(self: Any, item: object, block: bool = True, timeout: float | None = None) -> None:
        # A producer that waits for room could not go on while the consumer, which runs on top of it, waits for items.
        if block and self.maxsize > 0 and not scheduler.is_idle() and self.qsize() < self.maxsize + _MAX_OVERFULL:
            bound, self.maxsize = self.maxsize, 0
            try:
                put(self, item)
            finally:
                self.maxsize = bound
        else:
            put(self, item, block, timeout)

    module.Queue.put = put_in_excess


def _patch_tqdm(module: ModuleType) -> None:
    # A thread that refreshes bars could only run while the program waits.
    module.tqdm.monitor_interval = 0

"""`multiprocessing` in this process: a started process is a task of `scheduler`.

Locks, queues and the like are those of threads. Nothing is copied: a "child" sees and changes the objects of its
parent, except for the attributes of the process object itself.
"""

import copy
import itertools
import os
import queue
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from . import import_patches, scheduler, threads, tracebacks, unsupported
from .scheduler import Task, ThreadEnded

_pids = itertools.count(os.getpid() + 1)


def install() -> None:
    """Registers the patches of `multiprocessing`."""
    import_patches.when_imported("multiprocessing.context", _patch_contexts)
    import_patches.when_imported("multiprocessing.managers", _patch_managers)
    # joblib falls back to a loop, which is the same here.
    warnings.filterwarnings("ignore", message=".*joblib will operate in serial mode")


class _Popen:
    """A started process, as `multiprocessing` sees it."""

    method = "spawn"

    def __init__(self, process: Any) -> None:
        self.pid = self.sentinel = next(_pids)
        self.returncode: int | None = None
        # The parent forgets the target after the start. Attributes that the child sets stay its own.
        child = copy.copy(process)
        self._thread = threading.Thread(name="MainThread", daemon=False)
        self._task = Task(self._thread, lambda: self._run(child), is_daemon=process.daemon)
        scheduler.start(self._task)
        threads.begin(self._thread, self._task)
        threads.end(self._thread)

    def _run(self, child: Any) -> None:
        if self.returncode is not None:
            return
        module = sys.modules["multiprocessing.process"]
        below, module._current_process = module._current_process, child
        threading._active[self._thread.ident] = self._thread
        code = 1
        try:
            child.run()
            code = 0
        except SystemExit as end:
            code = _exit_status(end)
        except KeyboardInterrupt:
            raise
        except ThreadEnded as end:
            if not child.daemon:
                print(f"Process {child.name}:\n{type(end).__name__}: {end}", file=sys.stderr)
        except BaseException as error:
            print(f"Process {child.name}:\n{tracebacks.describe(error)}", end="", file=sys.stderr)
        finally:
            threads.end(self._thread)
            module._current_process = below
            self.returncode = code

    def poll(self, flag: int = 0) -> int | None:
        del flag
        if self.returncode is None:
            scheduler.poll()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        scheduler.wait(lambda: self.returncode is not None, timeout, first=self._task)
        return self.returncode

    def terminate(self) -> None:
        self._cancel(-15)

    def kill(self) -> None:
        self._cancel(-9)

    def interrupt(self) -> None:
        self._cancel(-2)

    def close(self) -> None:
        pass

    def _cancel(self, code: int) -> None:
        """Ends the process, which has either not begun or waits below the running code."""
        if self.returncode is None and self._task is not scheduler.current:
            self.returncode = code


def _exit_status(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


class _Lock:
    """A lock with the interface of `multiprocessing.Lock` or ``RLock``."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._lock = create()
        self.release = self._lock.release
        self.locked = self._lock.locked

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        if not block:
            return self._lock.acquire(False)
        return self._lock.acquire(True, -1 if timeout is None else max(0.0, timeout))

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


class _Semaphore(threading.Semaphore):
    """A semaphore with the interface of `multiprocessing.Semaphore`."""

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        return super().acquire(block, timeout if block else None)

    __enter__ = acquire

    def get_value(self) -> int:
        return self._value


class _BoundedSemaphore(threading.BoundedSemaphore):
    """A semaphore with the interface of `multiprocessing.BoundedSemaphore`."""

    acquire = __enter__ = _Semaphore.acquire
    get_value = _Semaphore.get_value


class _Queue(queue.Queue):
    """A queue with the interface of `multiprocessing.Queue`, `JoinableQueue` and `SimpleQueue`."""

    def close(self) -> None:
        pass

    join_thread = cancel_join_thread = close


class _Value:
    """The value of a manager."""

    def __init__(self, typecode: object, value: Any, lock: object = True) -> None:
        del typecode, lock
        self.value = value
        self.get = lambda: self.value

    def set(self, value: Any) -> None:
        self.value = value


class _Namespace:
    """A manager's object for attributes."""

    def __init__(self, /, **names: Any) -> None:
        self.__dict__.update(names)

    def __repr__(self) -> str:
        return f"Namespace({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class _Manager:
    """A manager with the interface of `multiprocessing.Manager`, whose objects are ordinary ones."""

    dict = staticmethod(dict)
    list = staticmethod(list)
    Namespace = staticmethod(_Namespace)
    Value = staticmethod(_Value)
    Queue = JoinableQueue = staticmethod(_Queue)
    Lock = staticmethod(threading.Lock)
    RLock = staticmethod(threading.RLock)
    Condition = staticmethod(threading.Condition)
    Event = staticmethod(threading.Event)
    Barrier = staticmethod(threading.Barrier)
    Semaphore = staticmethod(threading.Semaphore)
    BoundedSemaphore = staticmethod(threading.BoundedSemaphore)

    def Array(self, typecode: str, sequence: Any, lock: object = True) -> Any:
        from array import array

        return array(typecode, sequence)

    def Pool(self, *args: Any, **options: Any) -> Any:
        from multiprocessing import Pool

        return Pool(*args, **options)

    def start(self, *args: object, **options: object) -> None:
        pass

    shutdown = join = connect = start

    def __enter__(self) -> _Manager:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def _patch_contexts(module: ModuleType) -> None:
    for context in (module.ForkProcess, module.SpawnProcess, module.ForkServerProcess):
        context._Popen = staticmethod(_Popen)
    base = module.BaseContext
    base.Manager = lambda self: _Manager()
    base.Pipe = lambda self, duplex=True: _pipe(duplex)
    base.Lock = lambda self: _Lock(threading.Lock)
    base.RLock = lambda self: _Lock(threading.RLock)
    base.Condition = lambda self, lock=None: threading.Condition(getattr(lock, "_lock", lock))
    base.Semaphore = lambda self, value=1: _Semaphore(value)
    base.BoundedSemaphore = lambda self, value=1: _BoundedSemaphore(value)
    base.Event = lambda self: threading.Event()
    base.Barrier = lambda self, parties, action=None, timeout=None: threading.Barrier(parties, action, timeout)
    base.Queue = base.JoinableQueue = lambda self, maxsize=0: _Queue(maxsize)
    base.SimpleQueue = lambda self: _Queue()


def _pipe(duplex: bool) -> tuple[Any, Any]:
    from multiprocessing.dummy.connection import Pipe

    return Pipe(duplex)


def _patch_managers(module: ModuleType) -> None:
    with suppress(AttributeError):
        module.BaseManager.start = unsupported.refuse_process
        module.SyncManager.__new__ = lambda cls, *args, **options: _Manager()

"""Pools of threads and processes, whose work are tasks of `scheduler`. See `processes` for single processes.

Jobs run in the order in which they were submitted. Those of process pools run in this process: their arguments and
results are not copied, and changes to global variables persist.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import _base
from queue import Empty
from types import ModuleType
from typing import Any

from . import import_patches, scheduler, threads
from .scheduler import Task


def install() -> None:
    """Registers the patches of `concurrent.futures` and of `multiprocessing`'s pools."""
    _base.Future.done = _done
    import_patches.when_imported("concurrent.futures.thread", _patch_thread_pool)
    import_patches.when_imported("concurrent.futures.process", _patch_process_pool)
    import_patches.when_imported("multiprocessing.pool", _patch_pool)


def _done(self: _base.Future) -> bool:
    """Replaces `Future.done`."""
    is_done = self._state in (_base.CANCELLED, _base.CANCELLED_AND_NOTIFIED, _base.FINISHED)
    if not is_done:
        scheduler.poll()
    return is_done


class _Worker:
    """One of the threads or processes of a pool, which exist in name."""

    def __init__(self, name: str, process: Any = None) -> None:
        self.process = process
        self.thread = threading.Thread(name="MainThread" if process is not None else name, daemon=True)
        self.is_initialized = False
        self.state: Any = None

    def submit(self, job: Callable[[], object], *, is_daemon: bool) -> None:
        """Adds a job to the tasks."""
        if self.thread.ident is None:
            threads.begin(self.thread, Task(self.thread, lambda: None))
            threads.end(self.thread)
        scheduler.start(Task(self.thread, lambda: self._run(job), is_daemon=is_daemon, reports_errors=True))

    def _run(self, job: Callable[[], object]) -> None:
        threading._active[self.thread.ident] = self.thread
        module = None if self.process is None else sys.modules["multiprocessing.process"]
        if module is not None:
            below, module._current_process = module._current_process, self.process
        try:
            job()
        finally:
            if module is not None:
                module._current_process = below
            threads.end(self.thread)


class _Workers:
    """The workers of an executor. Takes the place of its set of threads, which a shutdown joins."""

    def __init__(self, executor: Any) -> None:
        self.open_jobs = 0
        self._executor = executor
        self._workers: list[_Worker] = []
        self._next = itertools.count()

    def __iter__(self) -> Iterator[Any]:
        return iter([self] if self.open_jobs else [])

    def __len__(self) -> int:
        return len(self._workers)

    def join(self) -> None:
        scheduler.wait(lambda: not self.open_jobs)

    def submit_next(self) -> None:
        """Adds a task that runs the executor's next item."""
        at = next(self._next) % self._executor._max_workers
        if at == len(self._workers):
            self._workers.append(self._executor._new_worker(at))
        worker = self._workers[at]
        self.open_jobs += 1
        worker.submit(lambda: self._run_next(worker), is_daemon=False)

    def _run_next(self, worker: _Worker) -> None:
        executor = self._executor
        try:
            if not worker.is_initialized:
                worker.is_initialized = True
                worker.state = executor._create_worker_context()
                try:
                    worker.state.initialize()
                except Exception:
                    _base.LOGGER.critical("Exception in initializer:", exc_info=True)
                    executor._initializer_failed()
                    return
            item = executor._work_queue.get_nowait()
            if item is not None:
                item.run(worker.state)
        except Empty:
            pass  # Cancelled by a shutdown.
        finally:
            self.open_jobs -= 1


def _patch_thread_pool(module: ModuleType) -> None:
    executor = module.ThreadPoolExecutor
    initialize = executor.__init__

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        initialize(self, *args, **options)
        self._threads = _Workers(self)

    __init__.__wrapped__ = initialize  # type: ignore[attr-defined]
    executor.__init__ = __init__
    executor._adjust_thread_count = lambda self: self._threads.submit_next()
    executor._new_worker = lambda self, at: _Worker(f"{self._thread_name_prefix or self}_{at}")


def _patch_process_pool(module: ModuleType) -> None:
    from concurrent.futures.thread import ThreadPoolExecutor

    class ProcessPoolExecutor(ThreadPoolExecutor):
        """An executor whose jobs run in this process, one after the other."""

        BROKEN = module.BrokenProcessPool

        def __init__(
            self,
            max_workers: int | None = None,
            mp_context: Any = None,
            initializer: Callable[..., object] | None = None,
            initargs: tuple[Any, ...] = (),
            *,
            max_tasks_per_child: int | None = None,
        ) -> None:
            if max_tasks_per_child is not None and (
                not isinstance(max_tasks_per_child, int) or max_tasks_per_child <= 0
            ):
                raise ValueError("max_tasks_per_child must be >= 1")
            super().__init__(max_workers, initializer=initializer, initargs=initargs)
            self._context = mp_context or module.mp.get_context()

        def _new_worker(self, at: int) -> _Worker:
            process = self._context.Process()
            return _Worker(process.name, process)

        def map(
            self, fn: Any, *iterables: Any, timeout: float | None = None, chunksize: int = 1, **options: Any
        ) -> Iterator[Any]:
            if chunksize < 1:
                raise ValueError("chunksize must be >= 1.")
            return super().map(fn, *iterables, timeout=timeout, chunksize=chunksize, **options)

        def terminate_workers(self) -> None:
            self.shutdown(wait=False, cancel_futures=True)

        kill_workers = terminate_workers

    ProcessPoolExecutor.__module__ = module.__name__
    ProcessPoolExecutor.__qualname__ = "ProcessPoolExecutor"
    module.ProcessPoolExecutor = ProcessPoolExecutor


class _TaskQueue:
    """Runs the jobs that `multiprocessing.pool.Pool` puts into its queue."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._next = itertools.count()

    def put(self, batch: tuple[Any, Callable[[int], None] | None]) -> None:
        jobs, set_length = batch
        self._submit_next(iter(jobs), set_length, 0)

    def _submit_next(self, jobs: Iterator[Any], set_length: Callable[[int], None] | None, count: int) -> None:
        worker = self._pool._pool[next(self._next) % len(self._pool._pool)]
        worker.submit(lambda: self._run_next(worker, jobs, set_length, count), is_daemon=True)

    def _run_next(
        self, worker: _Worker, jobs: Iterator[Any], set_length: Callable[[int], None] | None, count: int
    ) -> None:
        pool = self._pool
        if pool._state == "TERMINATE":
            return
        job = next(jobs, None)
        if job is None:
            if set_length is not None:
                set_length(count)
            return
        key, at, function, args, kwargs = job
        try:
            if not worker.is_initialized:
                worker.is_initialized = True
                if pool._initializer is not None:
                    pool._initializer(*pool._initargs)
            result = (True, function(*args, **kwargs))
        except Exception as error:
            result = (False, error)
        if key in pool._cache:
            pool._cache[key]._set(at, result)
        self._submit_next(jobs, set_length, count + 1)


def _patch_pool(module: ModuleType) -> None:
    def __init__(
        self: Any,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
    ) -> None:
        self._pool, self._state = [], module.INIT
        if processes is None:
            processes = module.os.process_cpu_count() or 1
        if processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._ctx = context or module.get_context()
        self._processes = processes
        self._initializer, self._initargs = initializer, initargs
        self._cache: dict[int, Any] = {}
        self._taskqueue = _TaskQueue(self)
        for _ in range(processes):
            if isinstance(self, module.ThreadPool):
                self._pool.append(_Worker(threading._newname("Thread-%d (worker)")))
            else:
                process = self._ctx.Process()
                process.name = process.name.replace("Process", "PoolWorker")
                self._pool.append(_Worker(process.name, process))
        self._state = module.RUN

    def close(self: Any) -> None:
        if self._state == module.RUN:
            self._state = module.CLOSE

    def terminate(self: Any) -> None:
        self._state = module.TERMINATE

    def join(self: Any) -> None:
        if self._state == module.RUN:
            raise ValueError("Pool is still running")
        scheduler.wait(lambda: self._state == module.TERMINATE or not self._cache)

    module.Pool.__init__, module.Pool.close, module.Pool.terminate, module.Pool.join = __init__, close, terminate, join
    module.Pool.__del__ = lambda self: None

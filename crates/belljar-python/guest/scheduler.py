"""Threads without threads: the work of a started thread runs while another thread waits.

Python in WebAssembly has one thread. A program's threads are tasks here. A task starts when the running code waits:
for a lock, an event, a queue, a future, the end of a thread, or for time to pass. It then runs on top of the code that
waits, which goes on after the task has returned. A task that waits itself runs further tasks in the same way. So each
schedule is one that real threads could have had, but code goes on only after the tasks that it started to run are done.

A task may wait for something that only code below it could do. It cannot be suspended, so it is ended: see `_end`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from . import interrupts

_MAX_NESTED = 24
"""The number of tasks that run on top of each other: CPython's recursion limit ends programs with more."""
_MAX_SLICE = 0.25
"""Seconds of one sleep. A signal handler that only adds a callback does not end a longer one (PEP 475)."""
_MAX_OVERDUE_SECONDS = 10.0
_MAX_OVERDUE_SLEEPS = 10
"""A task that sleeps for longer than this, and more often, while code below it could go on, is ended."""
_MAX_OVERDUE_WAITS = 1
"""The same for a task that waits with a timeout, or asks for an event, until code below it sets that."""
_MAX_OVERDUE_WAIT = 1.0
"""Seconds that code below waits for the timeout of a task."""
_MAX_ERRORS = 3
"""After this number of errors in one task, the next exception is one that ``except Exception`` does not catch."""
_POLLS_PER_TASK = 100
"""A main thread that asks this often if something has happened, without waiting, lets a task run."""

_DEADLOCK = "this waits for something that cannot happen: no other thread can run"
_ENDED = "the thread is ended here: it waits for a thread that can only go on after this one has ended"
_TOO_DEEP = f"more than {_MAX_NESTED} threads wait on top of each other"
_RULE = "threads in WebAssembly take turns only where one waits, and the one that started last ends first"
_HINTS = {
    _DEADLOCK: f"look for a queue, event, lock or barrier that nothing fills, sets, releases or reaches; {_RULE}",
    _ENDED: f"start the thread that provides it first, or use asyncio for work that takes turns; {_RULE}",
}


class ThreadEnded(BaseException):
    """The exception that ends a thread which cannot be suspended.

    It is not an `Exception`, so that it also ends loops that go on after errors.
    """


ThreadEnded.__module__ = "builtins"  # Tracebacks show the bare name.


class Task:
    """Work that a program has started on another thread."""

    def __init__(
        self,
        identity: Any,
        function: Callable[[], object],
        *,
        due: float = 0.0,
        is_daemon: bool = False,
        reports_errors: bool = False,
    ) -> None:
        self.identity = identity
        """The `threading.Thread` that `threading.current_thread` returns in the task."""
        self.function = function
        self.due = due
        """The time of `time.monotonic` at which the task may start."""
        self.is_daemon = is_daemon
        """True if the program's end does not wait for the task."""
        self.reports_errors = reports_errors
        """True if the program receives the task's exceptions, as those of futures."""
        self.is_done = False
        self.has_polled = False
        """True if the task has asked for an event that was not set."""
        self.overdue_since = 0.0
        self.overdue_sleeps = 0
        self.overdue_waits = 0
        self.errors = 0


class _Wait:
    """A wait of the running code, or of code below it."""

    def __init__(
        self, is_over: Callable[[], bool], deadline: float | None, sleep: Callable[[float], object] | None = None
    ) -> None:
        self.is_over = is_over
        self.deadline = deadline
        self.sleep = sleep
        """Sleeps until the host ends the wait, at most for a number of seconds; None if only tasks can end it."""
        self.is_counted = False
        self.overdue_since: float | None = None

    def could_go_on(self, now: float) -> bool:
        return (self.deadline is not None and now >= self.deadline) or self.is_over()


current: Task | None = None
"""The running task; None in the main thread."""
locks_of_main = 0
"""The number of locks that the main thread holds."""
on_switch: Callable[[Task], object]
"""Calls a task's function as the thread of the task; `threads` sets it."""
_is_refused = False

_pending: deque[Task] = deque()
_waits: list[_Wait] = []
_polls = 0


@contextmanager
def refused() -> Iterator[None]:
    """Refuses tasks while a module is imported into an image, all copies of which would have them."""
    global _is_refused
    _is_refused = True
    try:
        yield
    finally:
        _is_refused = False


def start(task: Task) -> None:
    """Adds a task, which runs when the running code waits."""
    if _is_refused:
        raise RuntimeError("can't start new thread: the module is being imported into an image, which has no threads")
    _pending.append(task)


def is_idle() -> bool:
    """Returns whether there is only the main thread."""
    return current is None and not _pending


def wait(
    is_over: Callable[[], bool],
    timeout: float | None = None,
    *,
    first: Task | None = None,
    deadlock: str = _DEADLOCK,
    only_foreground: bool = False,
    sleep: Callable[[float], object] | None = None,
) -> bool:
    """Runs tasks until ``is_over`` returns true or ``timeout`` seconds have passed; returns ``is_over``'s last value.

    ``first`` is the task to run first. ``sleep`` is given for waits that the host can end. Raises RuntimeError, or ends
    the task, if the wait would never end.
    """
    if is_over():
        return True
    own = _Wait(is_over, None if timeout is None else time.monotonic() + timeout, sleep)
    _waits.append(own)
    try:
        while True:
            task = _take(first, only_foreground)
            if task is not None:
                _run(task)
            elif own.deadline is None or time.monotonic() < own.deadline:
                _pass_time(own, deadlock)
            if is_over():
                return True
            if own.deadline is not None and time.monotonic() >= own.deadline:
                return False
    finally:
        _waits.pop()


def sleep(seconds: float) -> None:
    """Sleeps. The main thread's tasks run meanwhile, unless it holds a lock, which they may want."""
    if current is None:
        if _pending and not locks_of_main and seconds >= 0:
            wait(lambda: False, seconds)
            return
    elif seconds >= 0:
        _check_sleep(current)
    interrupts.sleep(seconds)


def poll() -> None:
    """Notes that the code has asked for something that has not happened. Code that does nothing else lets tasks run."""
    global _polls
    if current is not None:
        current.has_polled = True
    elif _pending and not locks_of_main:
        _polls += 1
        if _polls > _POLLS_PER_TASK:
            run_one()


def run_one() -> bool:
    """Runs the next task that may start, and returns whether there was one."""
    task = _take(None, only_foreground=False)
    if task is None:
        return False
    _waits.append(_Wait(lambda: True, None))
    try:
        _run(task)
    finally:
        _waits.pop()
    return True


def run_started() -> None:
    """Runs the tasks that a cell has left, except daemons and those of a later time. None of them delays the next cell
    for long."""
    for task in [task for task in _pending if not task.is_daemon and task.due <= time.monotonic()]:
        if task in _pending:
            _pending.remove(task)
            _waits.append(_Wait(lambda: True, None))
            try:
                _run(task)
            finally:
                _waits.pop()


def finish() -> None:
    """Runs all tasks except daemons, as the end of a program does."""
    if _pending:
        wait(lambda: all(task.is_daemon for task in _pending), only_foreground=True)
        _pending.clear()


def discard() -> None:
    """Forgets all tasks that have not started."""
    _pending.clear()


def next_due() -> float | None:
    """Returns the time at which the next task may start, or None without tasks."""
    return min((task.due for task in _pending), default=None)


def _take(first: Task | None, only_foreground: bool) -> Task | None:
    """Removes the next task that may start."""
    if len(_waits) > _MAX_NESTED:
        return None
    now = time.monotonic()
    if first is not None and first in _pending and first.due <= now:
        _pending.remove(first)
        return first
    chosen = None
    for task in _pending:
        if task.due > now or (only_foreground and task.is_daemon):
            continue
        # Of several timers the one that was due first.
        if chosen is None or task.due < chosen.due:
            chosen = task
    if chosen is not None:
        _pending.remove(chosen)
    return chosen


def _run(task: Task) -> None:
    global current, _polls
    below, current, _polls = current, task, 0
    try:
        on_switch(task)  # noqa: F821 - declared above
    finally:
        current = below
        task.is_done = True


def _pass_time(own: _Wait, deadlock: str) -> None:
    """Sleeps until something may have changed: this wait, a wait below or a task's time. Nothing can run before."""
    now = time.monotonic()
    times = [task.due for task in _pending if task.due > now] if len(_waits) <= _MAX_NESTED else []
    if own.sleep is not None:
        times.append(now + _MAX_SLICE)
        if current is not None:
            _check_wait_for_host(current, own, now)
    elif own.deadline is None and not times:
        if _pending and len(_waits) > _MAX_NESTED:
            deadlock = _TOO_DEEP
        could_go_on = any(each.deadline is not None or each.is_over() for each in _waits[:-1])
        _end(current, _ENDED if could_go_on else deadlock)
    if own.deadline is not None:
        times.append(own.deadline)
        if current is not None and own.sleep is None:
            _check_timed_wait(current, own, own.deadline, now)
    times += [each.deadline for each in _waits if each.deadline is not None and each.deadline > now]
    (own.sleep or interrupts.sleep)(max(0.0, min(min(times) - now, _MAX_SLICE)))
    interrupts.raise_pending()


def _check_wait_for_host(task: Task, own: _Wait, now: float) -> None:
    """Ends a task that waits for the host while code below it could go on, after a moment."""
    if not any(each.could_go_on(now) for each in _waits[:-1]):
        own.overdue_since = None
        return
    if own.overdue_since is None:
        own.overdue_since = now
    if now - own.overdue_since > _MAX_OVERDUE_WAIT:
        _end(task, _ENDED)


def _check_timed_wait(task: Task, own: _Wait, deadline: float, now: float) -> None:
    """Ends a task that waits, with a timeout, for what code below it would do. One timeout may pass."""
    if not any(each.could_go_on(now) for each in _waits[:-1]):
        return
    if not own.is_counted:
        own.is_counted = True
        task.overdue_waits += 1
    if task.is_daemon or task.overdue_waits > _MAX_OVERDUE_WAITS or deadline - now > _MAX_OVERDUE_WAIT:
        _end(task, _ENDED)


def _check_sleep(task: Task) -> None:
    """Ends a task that sleeps again and again while code below it could go on."""
    now = time.monotonic()
    if not any(each.could_go_on(now) for each in _waits):
        task.overdue_sleeps = 0
        return
    if not task.overdue_sleeps:
        task.overdue_since = now
    task.overdue_sleeps += 1
    is_late = now - task.overdue_since > _MAX_OVERDUE_SECONDS and task.overdue_sleeps > _MAX_OVERDUE_SLEEPS
    if is_late or (task.has_polled and task.overdue_sleeps > _MAX_OVERDUE_WAITS):
        _end(task, _ENDED)


def _end(task: Task | None, reason: str) -> NoReturn:
    """Raises the exception that ends a wait. The first ones of a task are errors that its code may handle, unless the
    thread is in the way of others."""
    kind: type[BaseException] = RuntimeError
    if task is not None:
        task.errors += 1
        if task.errors > _MAX_ERRORS or (reason is _ENDED and not task.reports_errors):
            kind = ThreadEnded
    error = kind(reason)
    if reason in _HINTS:
        error.add_note(f"hint: {_HINTS[reason]}")
    raise error

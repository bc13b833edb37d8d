"""Event loops in cells: ``asyncio.run()`` and the like work, although the kernel's own loop runs the cell.

While the kernel's loop runs a cell, a call that would run a loop fails in plain CPython: one thread runs one loop. Here

- another loop (`asyncio.run`, `asyncio.Runner`, `new_event_loop().run_until_complete`) runs while the kernel's loop is
  suspended, which is what any other blocking call in a cell does to it;
- the kernel's loop itself (`get_event_loop().run_until_complete`) runs nested, since tasks that cells created belong
  to it.

Inside a loop of the program, everything is as in CPython: `asyncio.run()` raises there.
"""

import asyncio
import contextlib
import functools
import threading
from asyncio import base_events, events, runners, tasks
from collections.abc import Callable, Iterator
from typing import Any

_kernel_loop: asyncio.AbstractEventLoop | None = None


def install() -> None:
    """Patches the functions that run loops. They behave as before until `adopt_running_loop`."""
    asyncio.run = runners.run = _allow_in_cell(asyncio.run)
    if hasattr(runners, "Runner"):  # Python 3.11
        runners.Runner.run = _allow_in_cell(runners.Runner.run)
    base_loop = base_events.BaseEventLoop
    base_loop.run_forever = _allow_in_cell(base_loop.run_forever)
    base_loop.run_until_complete = _allow_in_cell(base_loop.run_until_complete)


def adopt_running_loop() -> None:
    """Makes the running loop the kernel's, if this is the main thread. Must be called before each cell."""
    global _kernel_loop
    loop = events._get_running_loop()
    if loop is None or loop is _kernel_loop or threading.current_thread() is not threading.main_thread():
        return
    _kernel_loop = loop
    loop.run_until_complete = functools.partial(_run_nested, loop)  # type: ignore[method-assign]
    # Programs close the loop that they got from `get_event_loop`; the kernel needs it.
    loop.close = lambda: None  # type: ignore[method-assign]


def _allow_in_cell(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_in_cell(*args: Any, **options: Any) -> Any:
        loop = events._get_running_loop()
        # `run_forever` of the kernel's loop raises as usual: it would not return.
        if loop is None or loop is not _kernel_loop or args[:1] == (loop,):
            return run(*args, **options)
        with _suspended(loop):
            return run(*args, **options)

    return run_in_cell


@contextlib.contextmanager
def _suspended(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    with _without_current_task(loop):
        events._set_running_loop(None)
        try:
            yield
        finally:
            events._set_running_loop(loop)


@contextlib.contextmanager
def _without_current_task(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Leaves the task that runs the cell. A loop runs one task at a time, and so does a thread since Python 3.14."""
    task = asyncio.current_task(loop)
    if task is None:
        yield
        return
    tasks._leave_task(loop, task)
    try:
        yield
    finally:
        tasks._enter_task(loop, task)


def _run_nested(loop: Any, future: Any) -> Any:
    """Runs the kernel's loop, which runs this call, until `future` is done."""
    if events._get_running_loop() is not loop:
        return type(loop).run_until_complete(loop, future)
    is_new = not asyncio.isfuture(future)
    scheduled = len(loop._ready)
    future = asyncio.ensure_future(future, loop=loop)
    try:
        with _without_current_task(loop):
            while not future.done():
                loop._run_once()
    except BaseException:
        if is_new:
            future.cancel()
        raise
    finally:
        # The iteration that runs the cell goes on with as many handles as it had counted, and fails without them.
        while len(loop._ready) < scheduled:
            loop.call_soon(_do_nothing)
    return future.result()


def _do_nothing() -> None:
    """Fills a place in the queue of the kernel's loop."""

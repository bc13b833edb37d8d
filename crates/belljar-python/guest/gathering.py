"""`asyncio.gather` for calls of tools: one future for all of them, where asyncio would create a task for each.

Code that calls a tool in a loop typically gathers the calls, and a task takes longer than all the rest of a call.
Arguments that are not all new calls of tools are passed to asyncio.
"""

import asyncio
import functools
from asyncio import events, tasks
from typing import Any

from . import exchange
from .tool_calls import Call

_gather = tasks.gather


class _Gathering(asyncio.Future):
    """The results of several calls. Cancelling it cancels those that are in progress."""

    def __init__(self, calls: tuple[Call, ...], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._calls = calls

    def cancel(self, msg: Any = None) -> bool:
        if not super().cancel(msg):
            return False
        exchange.cancel(*self._calls)
        return True


class _Outcomes:
    """The receiver of the outcomes for a `_Gathering`: a plain object, since a future's attributes take longer."""

    __slots__ = ("_calls", "_future", "_missing", "_return_exceptions")

    def __init__(self, calls: tuple[Call, ...], future: _Gathering, *, return_exceptions: bool) -> None:
        self._calls = calls
        self._future = future
        self._missing = len(calls)
        self._return_exceptions = return_exceptions

    def finish(self, value: Any, error: Exception | None) -> None:
        """Receives the outcome of one of the calls."""
        self._missing = missing = self._missing - 1
        if missing and error is None or self._future.done():
            return
        if self._return_exceptions:
            if not missing:
                self._future.set_result([call.outcome() for call in self._calls])
        elif error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result([call._value for call in self._calls])

    def abandon(self, reason: str) -> None:
        """Cancels the future alone."""
        asyncio.Future.cancel(self._future, reason)


@functools.wraps(_gather)
def gather(*coros_or_futures: Any, return_exceptions: bool = False) -> Any:
    loop = events._get_running_loop()
    if loop is None or not coros_or_futures or type(coros_or_futures[0]) is not Call:
        return _gather(*coros_or_futures, return_exceptions=return_exceptions)
    gathering = _Gathering(coros_or_futures, loop)
    outcomes = _Outcomes(coros_or_futures, gathering, return_exceptions=return_exceptions)
    for call in coros_or_futures:
        if type(call) is not Call or not call.begin_in(outcomes):
            break
    else:
        exchange.start(*coros_or_futures)
        return gathering
    for call in coros_or_futures:
        if type(call) is Call:
            call.withdraw_from(outcomes)
    return _gather(*coros_or_futures, return_exceptions=return_exceptions)


def install() -> None:
    """Replaces `asyncio.gather`."""
    asyncio.gather = tasks.gather = gather

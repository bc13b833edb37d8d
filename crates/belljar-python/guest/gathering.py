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

    def __init__(self, calls: tuple[Call, ...], loop: asyncio.AbstractEventLoop, *, return_exceptions: bool) -> None:
        super().__init__(loop=loop)
        self._calls = calls
        self._missing = len(calls)
        self._return_exceptions = return_exceptions

    def finish(self, value: Any, error: Exception | None) -> None:
        """Receives the outcome of one of the calls."""
        self._missing -= 1
        if self.done():
            return
        if error is not None and not self._return_exceptions:
            self.set_exception(error)
        elif not self._missing:
            self.set_result([call.outcome() for call in self._calls])

    def abandon(self, reason: str) -> None:
        """Cancels the future alone."""
        super().cancel(reason)

    def cancel(self, msg: Any = None) -> bool:
        if not super().cancel(msg):
            return False
        exchange.cancel(*self._calls)
        return True


@functools.wraps(_gather)
def gather(*coros_or_futures: Any, return_exceptions: bool = False) -> Any:
    loop = events._get_running_loop()
    if loop is None or not coros_or_futures or type(coros_or_futures[0]) is not Call:
        return _gather(*coros_or_futures, return_exceptions=return_exceptions)
    gathering = _Gathering(coros_or_futures, loop, return_exceptions=return_exceptions)
    for call in coros_or_futures:
        if type(call) is not Call or not call.begin_in(gathering):
            break
    else:
        exchange.start(*coros_or_futures)
        return gathering
    for call in coros_or_futures:
        if type(call) is Call:
            call.withdraw_from(gathering)
    return _gather(*coros_or_futures, return_exceptions=return_exceptions)


def install() -> None:
    """Replaces `asyncio.gather`."""
    asyncio.gather = tasks.gather = gather

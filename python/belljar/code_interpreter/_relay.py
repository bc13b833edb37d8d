"""Output for functions of an event loop, which may be asynchronous, while code runs on a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ._output import Write

T = TypeVar("T")
Handler = Callable[[Any], Any]


async def relayed(
    begin: Callable[[Write | None, Write | None], Coroutine[Any, Any, T]],
    on_stdout: Handler | None,
    on_stderr: Handler | None,
) -> T:
    """Runs what ``begin`` returns, and passes on its output in order. A function that raises stops it.

    Args:
        begin: Receives the functions that take output on any thread.
    """
    if on_stdout is None and on_stderr is None:
        return await begin(None, None)
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[Handler, str] | None] = asyncio.Queue()

    def receiver(handler: Handler | None) -> Write | None:
        if handler is None:
            return None
        called = handler
        return lambda text: loop.call_soon_threadsafe(waiting.put_nowait, (called, text))

    async def deliver() -> None:
        while (item := await waiting.get()) is not None:
            await call(*item)

    runner = asyncio.ensure_future(begin(receiver(on_stdout), receiver(on_stderr)))
    deliverer = asyncio.ensure_future(deliver())
    try:
        await asyncio.wait({runner, deliverer}, return_when=asyncio.FIRST_COMPLETED)
        if runner.done():
            waiting.put_nowait(None)
        await deliverer
        return await runner
    finally:
        for task in (runner, deliverer):
            task.cancel()
        await asyncio.gather(runner, deliverer, return_exceptions=True)


async def call(handler: Handler | None, argument: Any) -> None:
    """Calls a function of the caller, which may be asynchronous."""
    if handler is not None:
        result = handler(argument)
        if inspect.isawaitable(result):
            await result

"""Work that is written once for synchronous code and for asyncio.

A generator yields functions to call, and receives their results. With the session of an `AsyncSandbox` such a function
returns an awaitable, which `perform_async` awaits; with that of a `Sandbox` it returns the result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

T = TypeVar("T")
Steps: TypeAlias = "Generator[Callable[..., Any], Any, T]"


def perform(steps: Steps[T], *arguments: Any) -> T:
    """Performs all steps, each a call with these arguments, and returns the result."""
    try:
        step = next(steps)
        while True:
            try:
                result = step(*arguments)
                if isinstance(result, Future):
                    result = result.result()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value


async def perform_async(steps: Steps[T], *arguments: Any) -> T:
    """Performs all steps on the running event loop, and returns the result."""
    try:
        step = next(steps)
        while True:
            try:
                result = step(*arguments)
                if isinstance(result, Future):
                    import asyncio

                    result = await asyncio.wrap_future(result)
                elif inspect.isawaitable(result):
                    result = await result
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value

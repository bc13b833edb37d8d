"""The receiver of output, and of calls of the functions of this process, while code runs."""

from __future__ import annotations

import atexit
import codecs
import contextvars
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from . import _values
from ._encoding import encode
from ._run import Call, ErrorInfo

if TYPE_CHECKING:
    import asyncio

    from . import _native
    from ._mcp import Approve
    from ._tools import Tool

Write = Callable[[str], object]


class Callbacks:
    """The receiver of what one run does. Its methods are called on the thread that runs the code."""

    def __init__(
        self,
        tools: dict[str, Tool],
        loop: asyncio.AbstractEventLoop | None,
        on_stdout: Write | None,
        on_stderr: Write | None,
        max_calls: int | None,
        approve: Approve | None = None,
    ) -> None:
        self.approves = approve is not None
        """True if calls of MCP servers' tools can be approved."""
        self.calls: list[Call] = []
        self.error: BaseException | None = None
        """An exception of a function of the caller that receives output."""
        self.job: _native.Job | None = None
        self._tools = tools
        self._loop = loop
        self._write = {True: on_stdout, False: on_stderr}
        self._decoders = {is_stdout: codecs.getincrementaldecoder("utf-8")("replace") for is_stdout in (True, False)}
        self._max_calls = max_calls
        self._context = contextvars.copy_context()
        self._tasks: dict[int, asyncio.Future[Any]] = {}
        self._started: set[int] = set()
        self._approve = approve
        self._questions = 0

    def on_stream(self, is_stdout: bool, data: bytes) -> None:
        """Passes output on."""
        write = self._write[is_stdout]
        if write is None or self.error is not None:
            return
        text = self._decoders[is_stdout].decode(data)
        try:
            if text:
                self._context.copy().run(write, text)
        except BaseException as error:
            self._stop(error)

    def on_approval(
        self, server: str, tool: str, arguments: str, line: str, has_changed: bool, question: _native.Question
    ) -> None:
        """Asks the function of the caller whether a call of an MCP server's tool may be made."""
        from ._mcp import ApprovalRequest, answer_of

        try:
            assert self._approve is not None
            request = ApprovalRequest(server, tool, json.loads(arguments), line, has_changed)
            answer = self._context.copy().run(self._approve, request)
            if not isinstance(answer, Awaitable):
                question.answer(answer_of(answer))
                return
        except BaseException as error:
            question.fail("the function that approves calls failed")
            self._stop(error)
            return
        import asyncio

        waited = answer
        # Numbers of calls are positive.
        self._questions += 1
        number = -self._questions

        async def ask() -> None:
            try:
                question.answer(answer_of(await waited))
            except asyncio.CancelledError:
                question.fail("the function that approves calls was cancelled")
                raise
            except BaseException as error:
                question.fail("the function that approves calls failed")
                self._stop(error)
            finally:
                self._tasks.pop(number, None)

        loop = self._loop if self._loop is not None else background_loop()
        self._start_task(loop, number, ask)

    def on_progress(self, name: str) -> None:
        """Receives the name of a step of long work."""

    def on_call(self, number: int, name: str, arguments: str, buffers: list[bytearray], reply: _native.Reply) -> None:
        """Calls a function of this process. ``reply`` gets its result: at once, or later if it is async."""
        tool = self._tools.get(name)
        if tool is None:
            reply.error("NameError", f"the host has no function {name!r}")
            return
        args, kwargs = _values.decode(arguments, buffers)
        begin = time.perf_counter()
        call = Call(name, tuple(args), kwargs, began=begin)
        if self._max_calls is not None and len(self.calls) >= self._max_calls:
            reply.error("RuntimeError", f"the code has called functions of the host {self._max_calls} times, its limit")
            return
        self.calls.append(call)
        if not tool.is_async:
            try:
                result = self._context.copy().run(tool.function, *args, **kwargs)
            except BaseException as error:
                _fail(call, begin, reply, error)
            else:
                _succeed(call, begin, reply, result)
            return
        loop = self._loop if self._loop is not None else background_loop()
        import asyncio

        async def run() -> None:
            try:
                result = await tool.function(*args, **kwargs)
            except asyncio.CancelledError as error:
                _fail(call, begin, reply, error)
                raise
            except BaseException as error:
                _fail(call, begin, reply, error)
            else:
                _succeed(call, begin, reply, result)
            finally:
                self._tasks.pop(number, None)

        self._start_task(loop, number, run)

    def on_cancel(self, number: int) -> None:
        """Cancels a call whose result the code does not wait for any more."""
        if number not in self._started:
            return
        loop = self._loop if self._loop is not None else background_loop()
        loop.call_soon_threadsafe(self._cancel_task, number)

    def end(self) -> None:
        """Cancels the calls that still run when the code has ended."""
        for number in list(self._tasks):
            self.on_cancel(number)
        # A job whose result nothing takes, since its caller was cancelled, refers to this receiver.
        self.job = None

    def go_on(self, loop: asyncio.AbstractEventLoop | None, on_stdout: Write | None, on_stderr: Write | None) -> None:
        """Receives what code does that was paused and is continued."""
        self._loop = loop
        self._write = {True: on_stdout, False: on_stderr}
        self._context = contextvars.copy_context()

    def _start_task(
        self, loop: asyncio.AbstractEventLoop, number: int, run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        def start() -> None:
            task = _create_task(loop, run(), self._context.copy())
            if not task.done():
                self._tasks[number] = task

        self._started.add(number)
        loop.call_soon_threadsafe(start)

    def _stop(self, error: BaseException) -> None:
        """Stops the code because a function of the caller has raised: the call raises that."""
        if self.error is None:
            self.error = error
        if (job := self.job) is not None:
            job.cancel()

    def _cancel_task(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None:
            task.cancel()


def _create_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], context: contextvars.Context
) -> asyncio.Future[Any]:
    """Starts a coroutine, from a callback of the loop."""
    if sys.version_info >= (3, 12) and loop.get_task_factory() is None:
        import asyncio

        # It begins at once instead of in the loop's next round.
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)
    # `create_task` has no parameter `context` in Python 3.10.
    return context.run(loop.create_task, coroutine)


def _succeed(call: Call, begin: float, reply: _native.Reply, result: Any) -> None:
    try:
        text, buffers = encode(result)
    except Exception as error:
        _fail(call, begin, reply, error)
        return
    call.result, call.seconds = result, time.perf_counter() - begin
    reply.value(text, buffers)


def _fail(call: Call, begin: float, reply: _native.Reply, error: BaseException) -> None:
    name, message = type(error).__name__, str(error)
    call.error, call.seconds = ErrorInfo(name, message, ""), time.perf_counter() - begin
    reply.error(name, message)


_background: asyncio.AbstractEventLoop | None = None
_lock = threading.Lock()


def background_loop() -> asyncio.AbstractEventLoop:
    """Returns the event loop on which async functions run for callers without one. It has a thread of its own."""
    global _background
    import asyncio

    with _lock:
        if _background is None or _background.is_closed():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="belljar-tools", daemon=True).start()
            atexit.register(lambda: loop.call_soon_threadsafe(loop.stop))
            _background = loop
        return _background


def _forget_loop() -> None:
    global _background, _lock
    _background, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop)

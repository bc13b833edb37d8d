"""The receiver of output, and of calls of the functions of this process, while code runs."""

from __future__ import annotations

import atexit
import codecs
import contextvars
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from . import _values
from ._encoding import encode
from ._run import Call, ErrorInfo

if TYPE_CHECKING:
    import asyncio

    from . import _native
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
    ) -> None:
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
            self.error = error
            if (job := self.job) is not None:
                job.cancel()

    def on_progress(self, name: str) -> None:
        """Receives the name of a step of long work."""

    def on_call(self, number: int, name: str, arguments: str, buffers: list[bytearray], reply: _native.Reply) -> None:
        """Calls a function of this process. ``reply`` gets its result: at once, or later if it is async."""
        tool = self._tools.get(name)
        if tool is None:
            reply.error("NameError", f"the host has no function {name!r}")
            return
        args, kwargs = _values.decode(arguments, buffers)
        call = Call(name, tuple(args), kwargs)
        if self._max_calls is not None and len(self.calls) >= self._max_calls:
            reply.error("RuntimeError", f"the code has called functions of the host {self._max_calls} times, its limit")
            return
        self.calls.append(call)
        begin = time.perf_counter()
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

        def start() -> None:
            self._tasks[number] = _create_task(loop, run(), self._context.copy())

        loop.call_soon_threadsafe(start)

    def on_cancel(self, number: int) -> None:
        """Cancels a call whose result the code does not wait for any more."""
        loop = self._loop if self._loop is not None else background_loop()
        loop.call_soon_threadsafe(self._cancel_task, number)

    def end(self) -> None:
        """Cancels the calls that still run when the code has ended."""
        for number in list(self._tasks):
            self.on_cancel(number)
        # A job whose result nothing takes, since its caller was cancelled, refers to this receiver.
        self.job = None

    def _cancel_task(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None:
            task.cancel()


def _create_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], context: contextvars.Context
) -> asyncio.Future[Any]:
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

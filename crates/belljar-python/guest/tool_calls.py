"""Calls of tools: the object that a call is until it is awaited, and the exceptions of calls."""

import linecache
import sys
from collections.abc import Callable, Generator
from types import FrameType, TracebackType
from typing import Any, NoReturn

from . import exchange, host_functions

_MAX_REPORTED = 10
"""The maximum number of calls that are reported because they were never awaited."""


class ToolException(Exception):
    """A call of a tool that has no result."""

    server: str | None = None
    tool: str | None = None


class ToolError(ToolException):
    """The tool failed, or its arguments are not valid."""


class ToolDenied(ToolException):
    """The policy or the user denied the call."""


class ToolTimeout(ToolException):
    """The tool did not respond in time."""


class ToolUnavailable(ToolException):
    """The server could not be reached."""


class ToolLimitExceeded(ToolException):
    """The run exceeded a limit of its tool calls."""


class ToolInterrupted(ToolException):
    """The server was restarted while the call was in progress: it may have been done."""


class NotAwaitedError(AttributeError, TypeError):
    """The value of a call was used before it was there."""


EXCEPTIONS = (
    *(ToolException, ToolError, ToolDenied, ToolTimeout, ToolUnavailable, ToolLimitExceeded, ToolInterrupted),
    NotAwaitedError,
)
for _class in EXCEPTIONS:
    _class.__module__ = "tools"
host_functions.exceptions.update((f"tools.{kind.__name__}", kind) for kind in EXCEPTIONS)


class Call:
    """A call of a tool: ``await`` it, or call `result` in synchronous code. It is sent then, and not before."""

    def __init__(
        self,
        path: str,
        operation: str,
        arguments: tuple[Any, ...],
        frame: FrameType,
        decode: Callable[[str, Any], Any],
    ) -> None:
        """``decode`` returns the value of a reply of the server that is the first of ``arguments``."""
        self._path = path
        self._operation = f'"tools:{operation}"'
        self._arguments = arguments
        self._decode = decode
        self._place = (frame.f_code.co_filename, frame.f_lineno)
        self._coroutine: Any = None
        self._outcome: tuple[Any, Exception | None] | None = None

    def result(self) -> Any:
        """Waits for the result and returns it, or raises the call's exception."""
        if self._outcome is None:
            self._begin("result")
            try:
                reply = exchange.call_blocking(self._operation, self._arguments, {})
                self._outcome = (self._decode(self._arguments[0], reply), None)
            except Exception as error:
                self._outcome = (None, self._named(error))
        return self._finished()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._start().__await__()

    # A task is made of an object with these three methods.

    def send(self, value: Any) -> Any:
        """Continues the call, as the coroutine of an ``async`` function."""
        if self._coroutine is None:
            self._coroutine = self._start()
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None) -> Any:
        """Raises an exception in the call, as in the coroutine of an ``async`` function."""
        if self._coroutine is None:
            self._coroutine = self._start()
        return self._coroutine.throw(kind) if value is None else self._coroutine.throw(kind, value, traceback)

    def close(self) -> None:
        """Ends the call without a result."""
        if self._coroutine is not None:
            self._coroutine.close()
        else:
            self._coroutine = self

    def _start(self) -> Any:
        if self._outcome is None:
            self._begin("await")
        return self._run()

    def _begin(self, how: str) -> None:
        if self._coroutine is not None:
            raise RuntimeError(f"{how}: the call of {self._path} is already being awaited")
        self._coroutine = self

    async def _run(self) -> Any:
        if self._outcome is None:
            try:
                reply = await exchange.call_soon(self._operation, self._arguments, {})
                self._outcome = (self._decode(self._arguments[0], reply), None)
            except Exception as error:
                self._outcome = (None, self._named(error))
        return self._finished()

    def _finished(self) -> Any:
        value, error = self._outcome or (None, None)
        if error is not None:
            raise error
        return value

    def _named(self, error: Exception) -> Exception:
        if isinstance(error, exchange.HostCallError):
            error = ToolError(f"the call of {self._path} was not sent: {error}")
        if isinstance(error, ToolException):
            error.server, _, error.tool = self._path.partition(".")
        return error

    def not_awaited(self, *_: Any, **__: Any) -> NoReturn:
        """Raises the error of a call whose value is used before it is there."""
        raise NotAwaitedError(f"the call of {self._path} has no value yet: write `await {self._path}(...)`")

    def __getattr__(self, name: str) -> Any:
        self.not_awaited()

    def __repr__(self) -> str:
        state = "not awaited" if self._coroutine is None else "awaited"
        return f"<call of {self._path}, {state}>"

    def __del__(self) -> None:
        if self.__dict__.get("_coroutine", self) is None:
            _never_awaited.append((self._path, *self._place))

    __hash__ = object.__hash__


for _name in (
    *("str", "format", "bool", "len", "iter", "contains", "getitem", "setitem", "delitem", "call", "int"),
    *("float", "index", "eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv"),
    *("rtruediv", "floordiv", "mod", "rmod", "or", "ror", "and", "rand", "neg", "enter", "exit", "fspath"),
):
    setattr(Call, f"__{_name}__", Call.not_awaited)

_never_awaited: list[tuple[str, str, int]] = []
"""The calls that were freed without having been sent: their names and places."""


def report_never_awaited() -> None:
    """Writes a warning to standard error for each call that was freed without having been awaited."""
    lost = _never_awaited[:]
    _never_awaited.clear()
    for path, filename, line in lost[:_MAX_REPORTED]:
        place = f"{shown_filename(filename)}:{line}"
        print(f"{place}: RuntimeWarning: the call of {path} was never awaited", file=sys.stderr)
    if len(lost) > _MAX_REPORTED:
        print(f"[{len(lost) - _MAX_REPORTED} more calls of tools were never awaited]", file=sys.stderr)


def check_value(value: object) -> None:
    """Raises an error if the value of a cell is a call that was not awaited."""
    if type(value) is Call and value._coroutine is None:
        value._coroutine = value  # It is not reported a second time.
        value.not_awaited()


shown_filename: Callable[[str], str] = str
"""Returns the name of a file of code as its user knows it."""


def line_of(frame: FrameType) -> str:
    """Returns the line of code that a frame is at, which the user sees when the call needs approval."""
    filename, line = frame.f_code.co_filename, frame.f_lineno
    return f"{shown_filename(filename)}:{line}: {linecache.getline(filename, line).strip()[:200]}"

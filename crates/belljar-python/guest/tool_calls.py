"""Calls of tools: the object that a call is until it is awaited, and the exceptions of calls."""

import asyncio
import linecache
import sys
from collections.abc import Callable, Generator
from json import dumps
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

from . import exchange, host_functions

_MAX_REPORTED = 10
"""The maximum number of calls that are reported because they were never awaited."""
_MAX_LINES = 200
"""The maximum number of lines of code that are kept, so that calls in a loop find theirs only once."""


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


class Target:
    """A tool, or the resources of a server, as calls need it. Has the texts that its calls have in common."""

    def __init__(
        self,
        path: str,
        operation: str,
        server: str,
        decode: Callable[[str, Any], Any],
        given: tuple[Any, ...] = (),
        rest: tuple[Any, ...] = (),
        *,
        has_line: bool = True,
    ) -> None:
        """The arguments of the host's operation are ``server`` and ``given``; then those that a call has, its line, and
        ``rest``. ``decode`` returns the value of the server's reply.
        """
        self.path = path
        self.operation = dumps(f"tools:{operation}")
        self.server = server
        self.decode = decode
        self.prefix = "[[" + ",".join(map(dumps, (server, *given)))
        self.suffix = "".join([f",{dumps(each)}" for each in rest]) + "],{}]"
        self.has_line = has_line
        self.request_prefix = f'{{"name":{self.operation},"arguments":{self.prefix}'


class Call:
    """A call of a tool: ``await`` it, or call `result` in synchronous code. It is sent then, and not before."""

    number: int | None = None
    """The call's number, once it was sent."""
    _waiter: Any = None
    """The object that waits for the reply, with the methods of `_Waiter`; the call itself if none does."""
    _has_ended = False
    _value: Any = None
    _error: Exception | None = None
    _steps: Any = None
    """The iterator that a task continues."""

    def __init__(self, target: Target, given: str, frame: FrameType) -> None:
        """``given`` is the JSON text of the call's own arguments, with a comma before each."""
        self._target = target
        self._given = given
        self._code = frame.f_code
        # The line is found when it is needed: this takes as long as the rest of a call.
        self._instruction = frame.f_lasti

    def result(self) -> Any:
        """Waits for the result and returns it, or raises the call's exception."""
        if not self._has_ended:
            self._begin("result", _Blocking)
            try:
                reply = exchange.call_blocking_with(self.operation, self.arguments())
            except Exception as error:
                self.receive(None, error)
            else:
                self.receive(reply, None)
        return self._finished()

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._has_ended:
            return self._finish()
        waiter = _Waiter(self)
        self._begin("await", waiter)
        try:
            exchange.start(self)
        except exchange.HostCallError as error:
            self.receive(None, error)
        return waiter.__await__()

    # A task is made of an object with these three methods.

    def send(self, value: Any) -> Any:
        """Continues the call, as the coroutine of an ``async`` function."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None) -> Any:
        """Raises an exception in the call, as in the coroutine of an ``async`` function."""
        if self._steps is None:
            self._steps = self._finish()
            self.begin_in(self)
        return self._steps.throw(kind) if value is None else self._steps.throw(kind, value, traceback)

    def close(self) -> None:
        """Ends the call without a result."""
        if self._steps is not None:
            self._steps.close()
        self.begin_in(self)

    # The interface of `exchange`.

    @property
    def operation(self) -> str:
        """The JSON text of the name of the host's operation."""
        return self._target.operation

    def arguments(self) -> str:
        """Returns the JSON text of the operation's arguments."""
        target = self._target
        return f"{target.prefix}{self._given}{self._line() if target.has_line else ''}{target.suffix}"

    def request(self) -> str:
        """Returns the JSON text of the operation: an object with its name and its arguments."""
        target = self._target
        # Calls in a loop have the place of the one before.
        code, instruction, line = _last_place
        if code is not self._code or instruction != self._instruction or not target.has_line:
            line = self._line() if target.has_line else ""
        return f"{target.request_prefix}{self._given}{line}{target.suffix}}}"

    def receive(self, reply: Any, error: Exception | None) -> None:
        """Ends the call with a reply or an error."""
        target = self._target
        self._has_ended = True
        if error is None:
            try:
                value = self._value = target.decode(target.server, reply)
            except Exception as failure:
                error = failure
            else:
                self._waiter.finish(value, None)
                return
        if isinstance(error, exchange.HostCallError):
            error = ToolError(f"the call of {target.path} was not sent: {error}")
        if isinstance(error, ToolException):
            error.server, _, error.tool = target.path.partition(".")
        self._error = error
        self._waiter.finish(None, error)

    def abandon(self, reason: str) -> None:
        """Ends the call because nothing will deliver its reply."""
        self._waiter.abandon(reason)

    def begin_in(self, waiter: Any) -> bool:
        """Sets what waits for the reply. Returns whether nothing has waited before."""
        if self._waiter is not None:
            return False
        self._waiter = waiter
        return True

    def withdraw_from(self, waiter: Any) -> None:
        """Undoes `begin_in`."""
        if self._waiter is waiter:
            self._waiter = None

    def outcome(self) -> Any:
        """Returns the result or the exception of a call that has ended."""
        return self._value if self._error is None else self._error

    def _begin(self, how: str, waiter: Any) -> None:
        if not self.begin_in(waiter):
            raise RuntimeError(f"{how}: the call of {self._target.path} is already being awaited")

    def _line(self) -> str:
        """Returns the JSON text of the line of the call, after a comma."""
        return _line_at(self._code, self._instruction)

    def _finish(self) -> Generator[Any, Any, Any]:
        return self._finished()
        yield

    def _finished(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def not_awaited(self, *_: Any, **__: Any) -> NoReturn:
        """Raises the error of a call whose value is used before it is there."""
        path = self._target.path
        raise NotAwaitedError(f"the call of {path} has no value yet: write `await {path}(...)`")

    def __getattr__(self, name: str) -> Any:
        if name == "_target":  # An object that was made without the initializer.
            raise AttributeError(name)
        self.not_awaited()

    def __repr__(self) -> str:
        state = "not awaited" if self._waiter is None else "awaited"
        return f"<call of {self._target.path}, {state}>"

    def __del__(self) -> None:
        if self._waiter is None and "_instruction" in self.__dict__:
            _never_awaited.append((self._target.path, self._code, self._instruction))

    __hash__ = object.__hash__


class _Blocking:
    """The waiter of a call whose `result` blocks until it has ended."""

    @staticmethod
    def finish(value: Any, error: Exception | None) -> None:
        """Does nothing: the outcome is that of the call."""


class _Waiter(asyncio.Future):
    """The future of a call. Cancelling it cancels the call."""

    def __init__(self, call: Call) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._call = call

    def cancel(self, msg: Any = None) -> bool:
        if not super().cancel(msg):
            return False
        exchange.cancel(self._call)
        return True

    def finish(self, value: Any, error: Exception | None) -> None:
        """Sets the outcome of the call."""
        if self.done():
            return
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)

    def abandon(self, reason: str) -> None:
        """Cancels the future alone."""
        super().cancel(reason)


for _name in (
    *("str", "format", "bool", "len", "iter", "contains", "getitem", "setitem", "delitem", "call", "int"),
    *("float", "index", "eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv"),
    *("rtruediv", "floordiv", "mod", "rmod", "or", "ror", "and", "rand", "neg", "enter", "exit", "fspath"),
):
    setattr(Call, f"__{_name}__", Call.not_awaited)

_never_awaited: list[tuple[str, CodeType, int]] = []
"""The calls that were freed without having been sent: their names and places."""
_lines: dict[tuple[int, int], tuple[CodeType, str]] = {}
"""The lines of calls as JSON after a comma, by the identity of the code and the instruction."""
_last_place: tuple[CodeType | None, int, str] = (None, 0, "")
"""The code, the instruction and the line that were looked up last."""


def report_never_awaited() -> None:
    """Writes a warning to standard error for each call that was freed without having been awaited."""
    global _last_place
    lost = _never_awaited[:]
    _never_awaited.clear()
    _lines.clear()
    _last_place = (None, 0, "")
    for path, code, instruction in lost[:_MAX_REPORTED]:
        place = f"{shown_filename(code.co_filename)}:{_line_number(code, instruction)}"
        print(f"{place}: RuntimeWarning: the call of {path} was never awaited", file=sys.stderr)
    if len(lost) > _MAX_REPORTED:
        print(f"[{len(lost) - _MAX_REPORTED} more calls of tools were never awaited]", file=sys.stderr)


def check_value(value: object) -> None:
    """Raises an error if the value of a cell is a call that was not awaited."""
    if type(value) is Call and value.begin_in(value):  # It is not reported a second time.
        value.not_awaited()


shown_filename: Callable[[str], str] = str
"""Returns the name of a file of code as its user knows it."""


def _line_at(code: CodeType, instruction: int) -> str:
    """Returns the line of code of an instruction as JSON, after a comma. It is shown when the call needs approval."""
    global _last_place
    if (known := _lines.get((id(code), instruction))) is None:
        filename, line = code.co_filename, _line_number(code, instruction)
        text = f"{shown_filename(filename)}:{line}: {linecache.getline(filename, line).strip()[:200]}"
        if len(_lines) >= _MAX_LINES:
            _lines.clear()
        known = _lines[id(code), instruction] = code, f",{dumps(text)}"
    _last_place = code, instruction, known[1]
    return known[1]


def _line_number(code: CodeType, instruction: int) -> int:
    return next((line for start, end, line in code.co_lines() if start <= instruction < end and line is not None), 0)

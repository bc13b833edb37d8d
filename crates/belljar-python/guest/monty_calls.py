"""Questions to the parent of a Monty session: calls of its functions, names that it defines, its files and clocks.

A question is asked in one of two ways. Code that awaits asks on the event loop, and nothing of it is on the stack while
it waits, so that the session can be saved. Other code blocks. The parent decides whether a function is asynchronous: it
then answers with a future, which is awaitable.
"""

import asyncio
import binascii
import opcode
import sys
import types
from collections.abc import Coroutine, Generator
from json import dumps, loads
from typing import Any

from . import event_loop, exchange
from .monty_decoding import decode
from .monty_encoding import Encoder
from .monty_objects import Function, HostObject, create_exception, printable


class FeedAborted(BaseException):
    """The parent has ended the feed. No handler of the code gets it twice: each further question raises it again."""

    def __init__(self, exception: dict[str, Any]) -> None:
        super().__init__()
        self.exception = exception


_LOAD_ATTR, _LOAD_GLOBAL = opcode.opmap["LOAD_ATTR"], opcode.opmap["LOAD_GLOBAL"]
_LOAD_NAME = opcode.opmap["LOAD_NAME"]
_PUSH_NULL = bytes([opcode.opmap["PUSH_NULL"]])

aborted: FeedAborted | None = None
"""Set once the parent has ended the feed."""


def ask(question: dict[str, Any]) -> dict[str, Any]:
    """Asks the parent, and blocks until it answers."""
    if aborted is not None:
        raise aborted
    return _answer(exchange.call_blocking_with('"monty:now"', _arguments(question)))


async def ask_later(question: dict[str, Any]) -> dict[str, Any]:
    """Asks the parent when the event loop has nothing else to do."""
    if aborted is not None:
        raise aborted
    future = exchange._Reply('"monty:later"', _arguments(question))
    exchange.start(future)
    return _answer(await future)


def _arguments(question: dict[str, Any]) -> str:
    return f"[[{dumps(question)}],{{}}]"


def _answer(text: str) -> dict[str, Any]:
    global aborted
    answer = loads(text)
    if (exception := answer.get("abort")) is not None:
        aborted = FeedAborted(exception)
        raise aborted
    if (exception := answer.get("error")) is not None:
        raise error(exception)
    return answer


def error(exception: dict[str, Any]) -> BaseException:
    """Returns the exception that the parent raised."""
    return create_exception(exception["exc_type"], exception.get("message"))


def value(answer: dict[str, Any]) -> Any:
    """Returns the value in an answer."""
    content = answer["value"]
    return decode(content["values"])[content["index"]]


def _call(name: str, identity: bytes | None, args: Any, kwargs: Any, *, eager: bool = False) -> dict[str, Any]:
    encoder = Encoder()
    call: dict[str, Any] = {
        "function_name": name,
        "args": [encoder.add(each) for each in args],
        "kwargs": [[encoder.add(key), encoder.add(each)] for key, each in kwargs.items()],
        "allow_eager_await": eager,
    }
    if identity is not None:
        call["object_id"] = binascii.b2a_base64(identity, newline=False).decode()
    return {"function": call | {"values": encoder.arena()}}


def _result(answer: dict[str, Any], name: str) -> Any:
    if (number := answer.get("future")) is not None:
        return ExternalCoroutine(number)
    if "not_found" in answer:
        raise NameError(f"name {answer['not_found']!r} is not defined", name=name)
    return value(answer)


def call(name: str, identity: bytes | None, args: Any, kwargs: Any) -> Any:
    """Calls a function of the parent, and blocks until it has a result or is known to be asynchronous."""
    return _result(ask(_call(name, identity, args, kwargs)), name)


async def call_later(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Does the same on the event loop for a function of the parent, and calls any other."""
    if type(function) is not Function:
        return function(*args, **kwargs)
    name = function.__name__
    return _result(await ask_later(_call(name, None, args, kwargs)), name)


async def call_and_await(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Calls a function and awaits its result. That of a synchronous function of the parent need not be awaitable."""
    if type(function) is not Function:
        return await function(*args, **kwargs)
    name = function.__name__
    result = _result(await ask_later(_call(name, None, args, kwargs, eager=True)), name)
    return await result if isinstance(result, ExternalCoroutine) else result


def look_up(name: str, identity: bytes, frame: types.FrameType) -> Any:
    """Returns an attribute of an object of the parent, or what calls its method if the frame loads it for that."""

    def method(*args: Any, **kwargs: Any) -> Any:
        return call(name, identity, args, kwargs)

    if _is_called(frame):
        # The parent decides about the attribute when it is called.
        return method
    encoded = binascii.b2a_base64(identity, newline=False).decode()
    answer = ask({"name": {"name": name, "object_id": encoded}})
    if "undefined" in answer:
        raise AttributeError(f"object of the host has no attribute {name!r}", name=name)
    found = value(answer)
    return method if type(found) is Function else found


Function.call = staticmethod(call)
HostObject.look_up = staticmethod(look_up)


class Builtins(dict[str, Any]):
    """The builtin names, and those that the parent defines."""

    def __init__(self, names: dict[str, Any], namespace: dict[str, Any]) -> None:
        super().__init__(names)
        self._namespace = namespace
        self.is_open = False
        """True while a feed runs."""

    def __missing__(self, name: str) -> Any:
        if not self.is_open or not isinstance(name, str) or name.startswith("__"):
            raise KeyError(name)
        if _is_called(sys._getframe(1)):
            # The parent decides about the name when it is called.
            return Function(name, None)
        answer = ask({"name": {"name": printable(name)}})
        if "undefined" in answer:
            raise KeyError(name)
        found = self._namespace[name] = value(answer)
        return found

    def function(self, name: str) -> Any:
        """Returns what a call of a name calls: its value, or else the parent's function."""
        for names in (self._namespace, self):
            if name in names:
                return names[name]
        return Function(name, None)


def _is_called(frame: types.FrameType) -> bool:
    """Returns whether a frame loads a name or an attribute in order to call it."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if code[at] in (_LOAD_GLOBAL, _LOAD_ATTR):
        return bool(code[at + 1] & 1)
    return code[at] == _LOAD_NAME and code[at + 2 : at + 3] == _PUSH_NULL


class _ExternalFuture(asyncio.Future):
    """The future of a call that the parent runs."""

    def __init__(self, number: int) -> None:
        super().__init__(loop=event_loop._shared_loop())
        self.number: int | None = None
        self._arguments = _arguments({"future": number})

    def request(self) -> str:
        return f'{{"name":"monty:later","arguments":{self._arguments}}}'

    def cancel(self, msg: Any = None) -> bool:
        if not super().cancel(msg):
            return False
        exchange.cancel(self)
        return True

    def receive(self, reply: Any, failure: Exception | None) -> None:
        if self.done():
            return
        try:
            if failure is not None:
                raise failure
            self.set_result(value(_answer(reply)))
        except FeedAborted:
            super().cancel()
        except StopIteration as stop:
            # A future cannot raise it.
            self.set_exception(RuntimeError(f"the function of the host raised StopIteration: {stop}"))
        except BaseException as raised:
            self.set_exception(raised)

    def abandon(self, reason: str) -> None:
        super().cancel(reason)


class ExternalCoroutine(Coroutine[Any, Any, Any]):
    """The awaitable of a call that the parent runs. The call has begun already."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._future = _ExternalFuture(number)
        self._steps: Generator[Any, Any, Any] | None = None
        exchange.start(self._future)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._future.__await__()

    def send(self, given: Any) -> Any:
        if self._steps is None:
            self._steps = self._future.__await__()
        return self._steps.send(given)

    def throw(self, *args: Any) -> Any:
        if self._steps is None:
            self._steps = self._future.__await__()
        return self._steps.throw(*args)

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()

    def __repr__(self) -> str:
        return f"<coroutine external_future({self._number})>"

"""Values and functions of the host: variables for the code, the value that it returns, and functions that it calls.

A function of the host is an ``async def`` function for the code. A call starts the host's function and waits for its
reply on the event loop, so that calls run side by side under `asyncio.gather`. Functions that the host declares as
blocking are called without ``await``.

Buffers of values are files of the directory `_DIRECTORY`: the host reads and writes them there.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from json import JSONDecoder, dumps, loads
from typing import Any

from . import host, host_functions, interrupts, value_json, values

_loads = JSONDecoder().decode

HostCallError = host.HostCallError

_DIRECTORY = "/var/lib/belljar"
_MAX_CALL_BYTES = 256 * 1024 * 1024
"""The maximum size of the arguments of a call."""
_MIN_NUMPY = 1 << 20
"""The size in bytes of a buffer that is read into memory of numpy, if it is loaded."""
_MAX_PLAIN = 1 << 63
"""The integers below this are written without looking at their length."""

_pending: dict[int, asyncio.Future[Any]] = {}
"""The calls that were sent, by their numbers."""
_queued: list[_QueuedCall] = []
"""The calls that are sent when the event loop waits."""
_written = 0
"""The number of buffers that this interpreter has written."""


class _QueuedCall:
    """A call that is sent together with others."""

    __slots__ = ("future", "number", "text")

    def __init__(self, text: str, future: asyncio.Future[Any]) -> None:
        self.text = text
        self.future = future
        self.number: int | None = None


def receive(exchange: dict[str, Any]) -> dict[str, Any]:
    """Returns the variables that the host passes, and its functions, by name."""
    variables: dict[str, Any] = {}
    if (encoded := exchange.get("variables")) is not None:
        variables = {name: _decode(value) for name, value in encoded.items()}
        _remove_buffers()
    for description in exchange.get("functions", ()):
        variables[description["name"]] = _function(description)
    return variables


def send(value: object, max_bytes: int) -> str:
    """Returns the text of a value for the host. Its buffers are the files ``out-0`` and so on."""
    text, buffers = _encode(value, max_bytes)
    for at, buffer in enumerate(buffers):
        _write(f"out-{at}", buffer)
    return text


def abandon() -> None:
    """Ends the calls that still run when the code has ended: nothing will deliver their replies."""
    futures = [*_pending.values(), *(call.future for call in _queued)]
    _pending.clear()
    _queued.clear()
    for future in futures:
        if not future.done():
            future.cancel("the code ended before the host's function replied")


def is_waiting() -> bool:
    """Returns whether calls of the host's functions run."""
    return bool(_pending or _queued)


def wait(timeout: float | None) -> bool:
    """Sends the queued calls, and waits until a call has a reply, at most for ``timeout`` seconds.

    Resolves the futures of all calls that have one, and returns whether there was one. All this takes one call of the
    host.
    """
    calls = _queued[:]
    _queued.clear()
    texts = ",".join([call.text for call in calls])
    request = f'{{"name":"await_functions","request":{{"timeout":{dumps(timeout)},"calls":[{texts}]}}}}'
    text = host.call_host(request)
    answer = _loads(text)
    if "error" in answer:
        error = host.HostCallError(answer["error"])
        for call in calls:
            if not call.future.done():
                call.future.set_exception(error)
        interrupts.raise_pending()
        if not calls:
            raise error
        return True
    answer = answer["answer"]
    for number, call in enumerate(calls, answer["first"]):
        call.number = number
        _pending[number] = call.future
    # Without a key that has a meaning in the encoding, the values are those of JSON.
    is_plain = '"$' not in text
    for reply in answer["replies"]:
        future = _pending.pop(reply["id"], None)
        if future is None or future.done():
            continue
        if is_plain and "error" not in reply:
            future.set_result(reply["value"])
            continue
        try:
            future.set_result(_result(reply))
        except Exception as error:
            future.set_exception(error)
    interrupts.raise_pending()
    return bool(answer["replies"])


def _function(description: dict[str, Any]) -> Callable[..., Any]:
    """Returns the function that calls the host's."""
    name = description["name"]
    quoted = dumps(name)
    if description["blocking"]:

        def function(*args: Any, **kwargs: Any) -> Any:
            return call_blocking(quoted, args, kwargs)

    else:

        async def function(*args: Any, **kwargs: Any) -> Any:
            return await call(quoted, args, kwargs)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "__main__"
    function.__doc__ = description["doc"]
    function.__signature__ = host_functions.signature(description)  # type: ignore[attr-defined]
    return function


async def call(quoted: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the function with this name, in quotes, and waits for its result on the event loop."""
    reply = _start(quoted, args, kwargs, wait=False)
    if "value" in reply or "error" in reply:
        return _result(reply)
    future = asyncio.get_running_loop().create_future()
    _pending[reply["id"]] = future
    try:
        return await future
    finally:
        if _pending.pop(reply["id"], None) is not None:
            host.call("cancel_function", id=reply["id"])


async def call_soon(quoted: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Does the same as `call`, but sends the call when the event loop waits, together with other calls.

    Only for functions that do not reply at once, and arguments that are plain JSON.
    """
    text = f'{{"name":{quoted},"arguments":{_plain_arguments(args, kwargs)}}}'
    queued = _QueuedCall(text, asyncio.get_running_loop().create_future())
    _queued.append(queued)
    try:
        return await queued.future
    finally:
        if queued.number is None:
            if queued in _queued:
                _queued.remove(queued)
        elif _pending.pop(queued.number, None) is not None:
            host.call("cancel_function", id=queued.number)


def call_blocking(quoted: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the function with this name, in quotes, and blocks until it has a result."""
    return _result(_start(quoted, args, kwargs, wait=True))


def _start(quoted: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, wait: bool) -> dict[str, Any]:
    """Starts a call of the function with this name, in quotes.

    The reply has the ``value`` or ``error`` of the call if it has already ended, and else its ``id``.
    """
    global _written
    text = _plain_arguments(args, kwargs)
    buffers: list[Any] = []
    if text is None:
        text, buffers = _encode([list(args), kwargs], _MAX_CALL_BYTES)
    names: list[str] = []
    for buffer in buffers:
        _written += 1
        names.append(f"call-{_written}")
        _write(names[-1], buffer)
    try:
        listed = dumps(names) if names else "[]"
        request = f'{{"name":"call_function","request":{{"name":{quoted},"wait":{"true" if wait else "false"}'
        answer = _loads(host.call_host(f'{request},"buffers":{listed},"arguments":{text}}}}}'))
    finally:
        for each in names:
            os.unlink(f"{_DIRECTORY}/{each}")
    interrupts.raise_pending()
    if "error" in answer:
        raise host.HostCallError(answer["error"])
    return answer["answer"]


def _plain_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Returns the text of arguments that are plain JSON, without containers; None for others."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is int:
            if not -_MAX_PLAIN < value < _MAX_PLAIN:
                return None
        elif kind is float:
            if value - value != 0.0:
                return None  # NaN, or infinite.
        elif kind is not str and kind is not bool and value is not None:
            return None
    if any(name.startswith("$") for name in kwargs):
        return None
    return values._dumps([args, kwargs])


def _result(reply: dict[str, Any]) -> Any:
    if (error := reply.get("error")) is not None:
        raise host_functions.exception(error["name"], error["message"])
    value = reply["value"]
    if type(value) is not dict and type(value) is not list:
        return value
    return values._Decoder(_read(reply.get("buffers", ()))).decode(value)


def _encode(value: object, limit: int) -> tuple[str, list[Any]]:
    def convert(other: object) -> Any:
        fields = value_json.render(other, limit)
        return loads(fields.get("strict") or fields["value"])  # type: ignore[arg-type]

    try:
        text, buffers = values.encode(value, convert)
    except ValueError, TypeError, RecursionError:
        # A structure that contains itself: the same as in an answer in JSON.
        text, buffers = values.encode(convert(value), convert)
    size = len(text) + sum(memoryview(buffer).nbytes for buffer in buffers)
    if size > limit:
        note = f"[left out: the value takes {size} bytes, and at most {limit} are returned]"
        return dumps(note), []
    return text, buffers


def _decode(tree: Any) -> Any:
    return values._Decoder(_InputBuffers()).decode(tree)


class _InputBuffers:
    """The buffers of variables, which are read when a value refers to them."""

    def __len__(self) -> int:
        return len(os.listdir(_DIRECTORY)) if os.path.isdir(_DIRECTORY) else 0

    def __getitem__(self, at: int) -> Any:
        return _read([f"in-{at}"], remove=False)[0]


def _remove_buffers() -> None:
    if os.path.isdir(_DIRECTORY):
        for name in os.listdir(_DIRECTORY):
            os.unlink(f"{_DIRECTORY}/{name}")


def _memory(size: int) -> Any:
    """Returns memory of this size. That of numpy is not filled with zeros first, as that of byte arrays is."""
    if size < _MIN_NUMPY or (numpy := sys.modules.get("numpy")) is None:
        return bytearray(size)
    return memoryview(numpy.empty(size, "u1"))


def _read(names: Any, *, remove: bool = True) -> list[Any]:
    contents = []
    for name in names:
        path = f"{_DIRECTORY}/{name}"
        data = _memory(os.stat(path).st_size)
        with open(path, "rb", buffering=0) as file:
            view, at = memoryview(data), 0
            while at < len(data) and (count := file.readinto(view[at:])):
                at += count
        if remove:
            os.unlink(path)
        contents.append(data)
    return contents


def _write(name: str, buffer: Any) -> None:
    os.makedirs(_DIRECTORY, exist_ok=True)
    with open(f"{_DIRECTORY}/{name}", "wb", buffering=0) as file:
        view, at = memoryview(buffer).cast("B"), 0
        while at < len(view):
            at += file.write(view[at:])

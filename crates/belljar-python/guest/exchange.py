"""Values and functions of the host: variables for the code, the value that it returns, and functions that it calls.

A function of the host is an ``async def`` function for the code. A call starts the host's function and waits for its
reply on the event loop, so that calls run side by side under `asyncio.gather`. Functions that the host declares as
blocking are called without ``await``.

Buffers of values are files of the directory `_DIRECTORY`: the host reads and writes them there.
"""

import asyncio
import os
import sys
from asyncio import events
from collections.abc import Callable
from json import JSONDecoder, dumps, loads
from typing import Any, Protocol

from . import host, host_functions, interrupts, value_json, values

_scan = JSONDecoder().scan_once

HostCallError = host.HostCallError

_DIRECTORY = "/var/lib/belljar"
_MAX_CALL_BYTES = 256 * 1024 * 1024
"""The maximum size of the arguments of a call."""
_MIN_NUMPY = 1 << 20
"""The size in bytes of a buffer that is read into memory of numpy, if it is loaded."""
_MAX_PLAIN = 1 << 63
"""The integers below this are written without looking at their length."""

_CALL_BATCH = 64
"""The number of calls that are sent at once. The host works on them while the next ones are written."""
_MAX_BATCH_SIZE = 1 << 20
"""The maximum size of the text of these calls. One call may be larger."""
_MIN_LINGERING = 32
"""The number of calls in progress from which the host collects several replies, for at most a millisecond."""

_RUN_CALLBACK = events.Handle._run.__code__
"""The function of the event loop that continues tasks. One that is started eagerly is called by another function."""

_pending: dict[int, Receiver] = {}
"""The calls that were sent, by their numbers."""
_queued: list[Receiver] = []
"""The calls that are sent when the event loop waits."""
_written = 0
"""The number of buffers that this interpreter has written."""


class Receiver(Protocol):
    """A call whose reply can be waited for together with others."""

    number: int | None
    """The number of the call, once it was sent."""

    def request(self) -> str:
        """Returns the text of an object with the ``name`` of the host's function and ``arguments``: plain JSON."""

    def receive(self, reply: Any, error: Exception | None) -> None:
        """Receives the reply, or the error instead of one."""

    def abandon(self, reason: str) -> None:
        """Ends the call because nothing will deliver its reply."""


class _Reply(asyncio.Future):
    """The future of a reply of the host. Cancelling it cancels the call."""

    def __init__(self, operation: str, arguments: str, number: int | None = None) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.number = number
        self._operation = operation
        self._arguments = arguments

    def request(self) -> str:
        return f'{{"name":{self._operation},"arguments":{self._arguments}}}'

    def cancel(self, msg: Any = None) -> bool:
        if not super().cancel(msg):
            return False
        cancel(self)
        return True

    def receive(self, reply: Any, error: Exception | None) -> None:
        if self.done():
            return
        if error is None:
            self.set_result(reply)
        else:
            self.set_exception(error)

    def abandon(self, reason: str) -> None:
        super().cancel(reason)


class _DirectCall:
    """A call whose task waits for the reply itself: a plain object, since a future's attributes take longer."""

    __slots__ = ("_arguments", "_operation", "error", "has_reply", "number", "value")

    def __init__(self, operation: str, arguments: str) -> None:
        self.number: int | None = None
        self.has_reply = False
        self.value: Any = None
        self.error: Exception | None = None
        self._operation = operation
        self._arguments = arguments

    def request(self) -> str:
        return f'{{"name":{self._operation},"arguments":{self._arguments}}}'

    def receive(self, reply: Any, error: Exception | None) -> None:
        self.has_reply = True
        self.value, self.error = reply, error

    def abandon(self, reason: str) -> None:
        """Does nothing: the task that waits ends with the code."""


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
    calls = [*_pending.values(), *_queued]
    _pending.clear()
    _queued.clear()
    for call in calls:
        call.abandon("the code ended before the host's function replied")


def is_waiting() -> bool:
    """Returns whether calls of the host's functions run."""
    return bool(_pending or _queued)


def start(*calls: Receiver) -> None:
    """Sends calls when the event loop waits, together with others. Only for functions that do not reply at once."""
    _queued.extend(calls)


def cancel(*calls: Receiver) -> None:
    """Does not send calls, or informs the host that nothing waits for their replies."""
    # By identity: calls of tools cannot be compared.
    cancelled = {id(call) for call in calls if call.number is None}
    if cancelled:
        _queued[:] = [call for call in _queued if id(call) not in cancelled]
    for call in calls:
        if call.number is not None and _pending.pop(call.number, None) is not None:
            host.call("cancel_function", id=call.number)


def wait(timeout: float | None) -> bool:
    """Sends the queued calls, and waits until a call has a reply, at most for ``timeout`` seconds.

    The calls that have a reply receive it. Returns whether there was one. All this takes one call of the host, unless
    there are many calls.
    """
    any_replies = False
    calls, texts = _take_batch()
    while _queued:
        any_replies |= _transfer(calls, texts, 0)
        calls, texts = _take_batch()
    return _transfer(calls, texts, 0 if any_replies else timeout) or any_replies


def _take_batch() -> tuple[list[Receiver], list[str]]:
    """Removes the first calls from the queue, up to a number and a size. Returns them and their texts."""
    texts: list[str] = []
    size = 0
    for call in _queued[:_CALL_BATCH]:
        text = call.request()
        size += len(text)
        if texts and size > _MAX_BATCH_SIZE:
            break
        texts.append(text)
    calls = _queued[: len(texts)]
    del _queued[: len(texts)]
    return calls, texts


def _transfer(calls: list[Receiver], texts: list[str], timeout: float | None) -> bool:
    """Sends a batch of calls, and delivers replies. Returns whether there was one."""
    in_progress = len(_pending) + len(calls)
    count = in_progress // 4 if in_progress >= _MIN_LINGERING else 1
    request = f'{{"timeout":{dumps(timeout)},"count":{count},"pairs":true,"calls":[{",".join(texts)}]}}'
    text = host.call_host(f'{{"name":"await_functions","request":{request}}}')
    answer = _scan(text, 0)[0]
    if "error" in answer:
        error = host.HostCallError(answer["error"])
        for call in calls:
            call.receive(None, error)
        interrupts.raise_pending()
        if not calls:
            raise error
        return True
    answer = answer["answer"]
    for number, call in enumerate(calls, answer["first"]):
        call.number = number
        _pending[number] = call
    # Without a key that has a meaning in the encoding, the values are those of JSON.
    is_plain = '"$' not in text
    for reply in answer["replies"]:
        if type(reply) is list and is_plain:
            number, value = reply
            if (receiver := _pending.pop(number, None)) is not None:
                receiver.receive(value, None)
            continue
        # A reply with an error or with buffers, or of a host of another build, is an object.
        number, fields = (reply[0], {"value": reply[1]}) if type(reply) is list else (reply["id"], reply)
        if (receiver := _pending.pop(number, None)) is None:
            continue
        if "error" in fields:
            # Not raised here: its traceback begins where the code waits.
            receiver.receive(None, host_functions.exception(**fields["error"]))
            continue
        try:
            value, failure = _result(fields), None
        except Exception as error:
            value, failure = None, error
        receiver.receive(value, failure)
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

        is_waited_for = False

        async def function(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_waited_for
            text, buffers = _encode_arguments(args, kwargs)
            if is_waited_for and not buffers:
                if _can_wait_directly():
                    return await _wait_directly(quoted, text)
                # As long as the event loop has to wait anyway, sending the call takes no call of the host.
                future = _Reply(quoted, text)
                start(future)
                return await future
            reply = _start(quoted, text, buffers, wait=False)
            if "value" in reply or "error" in reply:
                return _result(reply)
            is_waited_for = True
            future = _pending[reply["id"]] = _Reply(quoted, text, reply["id"])
            return await future

    function.__name__ = function.__qualname__ = name
    function.__module__ = "__main__"
    function.__doc__ = description["doc"]
    function.__signature__ = host_functions.signature(description)  # type: ignore[attr-defined]
    return function


def _can_wait_directly() -> bool:
    """Returns whether the event loop would only wait for the reply of a call. Then the task can wait itself, which
    saves a future and a round of the loop.

    Not if another task, a timer or a thread may go on meanwhile, or if the task is to be cancelled at its next
    ``await`` or was started eagerly: its caller may have more to do.
    """
    if _pending or _queued:
        return False
    can_block = getattr(asyncio.get_running_loop(), "can_block", None)
    if can_block is None or not can_block():
        return False
    task = asyncio.current_task()
    if task is None or task.cancelling():
        return False
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and frame.f_back is not None and frame.f_back.f_code is _RUN_CALLBACK


async def _wait_directly(quoted: str, arguments: str) -> Any:
    """Calls the function with this name, in quotes, and blocks until it has a result."""
    call = _DirectCall(quoted, arguments)
    start(call)
    try:
        wait(None)
    except BaseException:
        cancel(call)
        raise
    if call.has_reply:
        if call.error is not None:
            raise call.error
        return call.value
    # The handler of a signal has ended the wait, and may have added a callback to the loop.
    assert call.number is not None
    future = _pending[call.number] = _Reply(quoted, arguments, call.number)
    return await future


def call_blocking(quoted: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the function with this name, in quotes, and blocks until it has a result."""
    return _result(_start(quoted, *_encode_arguments(args, kwargs), wait=True))


def call_blocking_with(quoted: str, arguments: str) -> Any:
    """Does the same as `call_blocking` with the text of arguments that are plain JSON."""
    return _result(_start(quoted, arguments, [], wait=True))


def _start(quoted: str, arguments: str, buffers: list[Any], *, wait: bool) -> dict[str, Any]:
    """Starts a call of the function with this name, in quotes, with encoded arguments.

    The reply has the ``value`` or ``error`` of the call if it has already ended, and else its ``id``.
    """
    global _written
    names: list[str] = []
    for buffer in buffers:
        _written += 1
        names.append(f"call-{_written}")
        _write(names[-1], buffer)
    request = f'{{"name":"call_function","request":{{"name":{quoted},"wait":{"true" if wait else "false"}'
    try:
        text = host.call_host(f'{request},"buffers":{dumps(names)},"arguments":{arguments}}}}}')
    finally:
        for each in names:
            os.unlink(f"{_DIRECTORY}/{each}")
    answer = _scan(text, 0)[0]
    interrupts.raise_pending()
    if "error" in answer:
        raise host.HostCallError(answer["error"])
    return answer["answer"]


def _encode_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, list[Any]]:
    """Returns the JSON text of the arguments of a call, and its buffers."""
    text = _plain_arguments(args, kwargs)
    return _encode([list(args), kwargs], _MAX_CALL_BYTES) if text is None else (text, [])


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
    return values.dumps([args, kwargs])


def _result(reply: dict[str, Any]) -> Any:
    if (error := reply.get("error")) is not None:
        raise host_functions.exception(**error)
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

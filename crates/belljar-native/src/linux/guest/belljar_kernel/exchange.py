"""Calls of functions of the host, over a socket to which the host connects: the guest's side of `function_calls.rs`.

A call is a line of JSON. Its reply is a line of JSON, followed by the buffers that it lists. A thread receives the
replies, so that calls run side by side under `asyncio.gather`, on any event loop and any thread.
"""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from concurrent.futures import Future
from json import JSONDecoder, dumps
from typing import Any

from . import host_functions, values

_loads = JSONDecoder().decode


class HostCallError(Exception):
    """A call was not sent; the message is the reason."""


class _Channel:
    """The socket, and the calls that wait for their replies."""

    def __init__(self, path: str) -> None:
        self._process = os.getpid()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(1)
        self._stream: socket.socket | None = None
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._last = 0
        self.serves = False
        """True while a cell runs: the host reads calls only then."""

    def start(self, text: str) -> tuple[int, "Future[Any]"]:
        """Sends a call, whose fields but the number are ``text``. Returns its number, and the future of its reply."""
        if os.getpid() != self._process:
            raise HostCallError("processes that the code starts cannot call functions of the host")
        if not self.serves:
            raise HostCallError("no cell is running")
        future: Future[Any] = Future()
        with self._lock:
            self._last += 1
            number = self._last
            self._pending[number] = future
            try:
                self._send(f'{{"call":{{"id":{number},{text}}}}}\n')
            except OSError as error:
                self._pending.pop(number, None)
                raise HostCallError(f"the host does not accept calls: {error}") from None
        return number, future

    def cancel(self, number: int) -> None:
        """Informs the host that nothing waits for the reply of a call any more."""
        with self._lock:
            if self._pending.pop(number, None) is not None:
                # Fails if the host has closed the connection, and so cancelled its calls.
                with contextlib.suppress(OSError):
                    self._send(f'{{"cancel":{{"id":{number}}}}}\n')

    def _send(self, line: str) -> None:
        # An interrupt in the middle would leave a part of a line behind.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            if self._stream is None:
                self._stream, _ = self._listener.accept()
                threading.Thread(target=self._receive, args=(self._stream,), name="tools", daemon=True).start()
            self._stream.sendall(line.encode())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _receive(self, stream: socket.socket) -> None:
        try:
            with stream.makefile("rb") as replies:
                while line := replies.readline():
                    reply = _loads(line.decode())
                    buffers = [replies.read(size) for size in reply.get("buffers", ())]
                    future = self._pending.pop(reply["id"], None)
                    if future is not None and future.set_running_or_notify_cancel():
                        future.set_result({**reply, "buffers": buffers})
        except OSError:
            pass  # The connection has ended.
        while self._pending:
            _, future = self._pending.popitem()
            if future.set_running_or_notify_cancel():
                future.set_exception(HostCallError("the host has closed the connection"))


_channel: _Channel | None = None


def listen(path: str) -> None:
    """Creates the socket to which the host connects."""
    global _channel
    _channel = _Channel(path)


def set_serving(serves: bool) -> None:
    """Sets whether the host reads calls: while a cell runs."""
    if _channel is not None:
        _channel.serves = serves


def start(call: Any) -> None:
    """Sends a call: an object as the guest in WebAssembly has it, whose ``receive`` is called on its event loop."""
    loop = asyncio.get_running_loop()

    def deliver(future: "Future[Any]") -> None:
        if not (future.cancelled() or loop.is_closed()):
            loop.call_soon_threadsafe(_deliver, call, future)

    call.number, future = _start(call.operation, call.arguments())
    future.add_done_callback(deliver)


def cancel(call: Any) -> None:
    """Informs the host that nothing waits for the reply of a call any more."""
    if _channel is not None and call.number is not None:
        _channel.cancel(call.number)


def call_blocking(quoted: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the function with this name, in quotes, and blocks until it has a result."""
    return call_blocking_with(quoted, dumps([args, kwargs]))


def call_blocking_with(quoted: str, arguments: str) -> Any:
    """Does the same as `call_blocking` with the text of the arguments."""
    number, future = _start(quoted, arguments)
    try:
        return _result(future.result())
    finally:
        _channel.cancel(number)


def _start(quoted: str, arguments: str) -> tuple[int, "Future[Any]"]:
    if _channel is None:
        raise HostCallError("the host has no functions")
    return _channel.start(f'"name":{quoted},"arguments":{arguments}')


def _deliver(call: Any, future: "Future[Any]") -> None:
    try:
        reply = future.result()
        # Not raised here: its traceback begins where the code waits.
        error = host_functions.exception(**reply["error"]) if reply.get("error") is not None else None
        call.receive(None if error else _result(reply), error)
    except Exception as error:
        call.receive(None, error)


def _result(reply: dict[str, Any]) -> Any:
    if (error := reply.get("error")) is not None:
        raise host_functions.exception(**error)
    return values._Decoder(reply["buffers"]).decode(reply["value"])

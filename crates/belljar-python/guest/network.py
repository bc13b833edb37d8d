"""Sockets of programs: connections that the host makes, as far as its policy allows.

The system calls are the host's. This module makes their errors say what is not allowed, and what is.
"""

import errno
import select
import socket
from typing import Any, NoReturn

from . import host, scheduler

NO_NETWORK = "this sandbox has no network access"
NO_LISTENING = "nothing can listen for connections in this sandbox"
_ONLY_TCP = "only TCP connections are supported in this sandbox"


def install() -> None:
    """Patches `socket`."""
    socket.socket.__init__ = _open_socket
    socket.socket.connect = _connect  # type: ignore[method-assign]
    socket.socket.recv = _receive  # type: ignore[method-assign]
    socket.socket.recv_into = _receive_into  # type: ignore[method-assign]
    socket.socket.setsockopt = _set_option  # type: ignore[method-assign, assignment]
    socket.socket.bind = _bind  # type: ignore[method-assign]
    socket.socket.listen = _listen  # type: ignore[method-assign]
    socket.getaddrinfo = _get_address_info
    socket.gethostbyname = _get_host_by_name


_socket_init = socket.socket.__init__
_socket_connect = socket.socket.connect
_socket_recv = socket.socket.recv
_socket_recv_into = socket.socket.recv_into
_getaddrinfo = socket.getaddrinfo
_gethostbyname = socket.gethostbyname


def is_available() -> bool:
    """Returns whether the policy of the host allows anything."""
    try:
        return bool(host.call("network_allowed"))
    except host.HostCallError:
        return False


def _refusal() -> OSError | None:
    """Returns the error for the connection that the host has just refused; None if it has refused none."""
    try:
        text = host.call("network_refusal")
    except host.HostCallError:
        return None
    return None if text is None else PermissionError(errno.EACCES, text)


def _open_socket(self: socket.socket, *args: Any, **options: Any) -> None:
    try:
        _socket_init(self, *args, **options)
    except OSError as error:
        reason = _ONLY_TCP if is_available() else NO_NETWORK
        raise OSError(error.errno, f"{reason} ({error.strerror})") from None


def _connect(self: socket.socket, address: Any) -> None:
    try:
        _socket_connect(self, address)
    except BlockingIOError:
        raise
    except OSError:
        if refusal := _refusal():
            raise refusal from None
        raise


def _receive(self: socket.socket, size: int, flags: int = 0) -> bytes:
    if not scheduler.is_idle():
        _let_threads_run(self)
    return _socket_recv(self, size, flags)


def _receive_into(self: socket.socket, buffer: Any, size: int = 0, flags: int = 0) -> int:
    if not scheduler.is_idle():
        _let_threads_run(self)
    return _socket_recv_into(self, buffer, size, flags)


def _let_threads_run(self: socket.socket) -> None:
    """Runs other threads until a blocking socket is readable or its timeout is over. The operation itself would block
    all of them."""
    timeout = self.gettimeout()
    if timeout == 0.0 or self.fileno() < 0:
        return
    poll = select.poll()
    poll.register(self.fileno(), select.POLLIN)
    scheduler.wait(lambda: bool(poll.poll(0)), timeout, sleep=lambda seconds: poll.poll(seconds * 1000))


def _set_option(self: socket.socket, level: int, option: int, *value: Any) -> None:
    """Ignores options: the host sets those of its connections."""
    if self.fileno() < 0:
        raise OSError(errno.EBADF, "Bad file descriptor")


def _bind(self: socket.socket, address: Any) -> None:
    """Accepts the address of a connection that is to be made, which the host chooses, and refuses others."""
    if isinstance(address, tuple) and address[0] in ("", "0.0.0.0", "::") and address[1] == 0:
        return
    raise OSError(errno.EOPNOTSUPP, NO_LISTENING)


def _listen(self: socket.socket, backlog: int = 0) -> NoReturn:
    raise OSError(errno.EOPNOTSUPP, NO_LISTENING)


def _get_address_info(name: Any, port: Any, *args: Any, **options: Any) -> Any:
    try:
        return _getaddrinfo(_encoded(name), port, *args, **options)
    except socket.gaierror as error:
        raise _look_up_error(name, error) from None


def _encoded(name: Any) -> Any:
    """Returns a name as bytes, unless it has other than ASCII characters: for texts CPython imports `encodings.idna`,
    which takes a session 0.9 MB."""
    return name.encode() if isinstance(name, str) and name.isascii() and "\0" not in name else name


def _get_host_by_name(name: Any) -> str:
    try:
        return _gethostbyname(_encoded(name))
    except socket.gaierror as error:
        failure = _look_up_error(name, error)
        # Callers such as smtplib expect this class: they look up the name of this machine.
        raise socket.gaierror(error.errno, failure.strerror) from None


def _look_up_error(name: Any, error: socket.gaierror) -> OSError:
    """Returns the exception for a name that was not found: a `PermissionError` if it is not allowed."""
    if not is_available():
        return socket.gaierror(error.errno, f"{NO_NETWORK} (cannot look up {name!r})")
    if error.errno != socket.EAI_NONAME and (refusal := _refusal()):
        return refusal
    return error

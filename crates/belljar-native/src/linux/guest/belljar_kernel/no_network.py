"""The missing network as such: errors of lookups and connections name it as their reason.

The system reports a network that is down ("Temporary failure in name resolution"), which programs and models retry.
The types of the exceptions are the system's, because libraries catch them.
"""

import _socket
import errno
import socket
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

_NO_NETWORK = "this sandbox has no network access"
_PROXY_ALONE = "this sandbox reaches the network through a proxy alone, which HTTPS_PROXY names"
_PROXY_ADVICE = "; libraries that ignore the variable have an option for it, such as trust_env=True of aiohttp"

_UNREACHABLE = frozenset([errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN])
_UNKNOWN_NAME = frozenset([socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_NODATA])
_LOOKUPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr")
_MAX_CAUSES = 100
_MAX_MESSAGE = 500
"""The number of characters of an exception's message that a short traceback has."""


class _State:
    """The text that explains errors."""

    reason = _NO_NETWORK
    advice = ""


def install(proxy: bool) -> None:
    """Patches lookups, connections and the creation of sockets."""
    if proxy:
        _State.reason, _State.advice = _PROXY_ALONE, _PROXY_ADVICE
    for name in _LOOKUPS:
        replacement = _explain_lookup(getattr(_socket, name))
        if getattr(socket, name) is getattr(_socket, name):
            setattr(socket, name, replacement)
        setattr(_socket, name, replacement)
    # The methods of `_socket.socket`, which is immutable.
    socket.socket.connect = _explain_connection(_socket.socket.connect, -1)  # type: ignore[method-assign]
    socket.socket.sendto = _explain_connection(_socket.socket.sendto, -1)  # type: ignore[method-assign]
    socket.socket.__init__ = _explain_creation(socket.socket.__init__)  # type: ignore[method-assign]


def short_traceback(shell: InteractiveShell, error: BaseException) -> list[str] | None:
    """Returns a traceback of the cells' own lines, if the missing network caused the error; `None` otherwise.

    The full one has thousands of characters: the frames of an HTTP library and its chained exceptions.
    """
    cause = next((cause for cause in _causes(error) if _is_explained(cause)), None)
    if cause is None:
        return None
    lines = ["Traceback (most recent call last):"]
    for frame in traceback.extract_tb(error.__traceback__):
        cell = shell.compile.format_code_name(frame.filename)
        if cell is not None:
            lines.append(f"  {' '.join(cell)}, line {frame.lineno}")
            if frame.line:
                lines.append(f"    {frame.line}")
    lines.append(_describe(error))
    if cause is not error:
        lines.append(f"Caused by {_describe(cause)}")
    return lines


def _explain_lookup(look_up: Callable[..., Any]) -> Callable[..., Any]:
    def explained(host: Any, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        try:
            return look_up(host, *args, **options)
        except socket.gaierror as failure:
            if failure.errno not in _UNKNOWN_NAME:
                raise
            error = socket.gaierror(socket.EAI_NONAME, _explanation("look up", host))
        except PermissionError:
            # In the weak sandbox, where the resolver cannot create its sockets.
            error = socket.gaierror(socket.EAI_NONAME, _explanation("look up", host))
        except socket.herror as failure:
            error = socket.herror(failure.errno, _explanation("look up", host))
        raise error

    explained.__name__ = look_up.__name__
    return explained


def _explain_connection(call: Callable[..., Any], address: int) -> Callable[..., Any]:
    def explained(self: socket.socket, *args: Any) -> Any:
        __tracebackhide__ = True
        try:
            return call(self, *args)
        except OSError as failure:
            refused = failure.errno == errno.EPERM and self.family != socket.AF_UNIX
            if failure.errno not in _UNREACHABLE and not refused:
                raise
            error = OSError(failure.errno, _explanation("connect to", args[address]))
        raise error

    explained.__name__ = call.__name__
    return explained


def _explain_creation(init: Callable[..., None]) -> Callable[..., None]:
    def explained(self: socket.socket, *args: Any, **options: Any) -> None:
        __tracebackhide__ = True
        try:
            init(self, *args, **options)
            return
        except PermissionError as failure:
            # In the weak sandbox there are sockets of the session's directory only.
            error = PermissionError(failure.errno, _State.reason)
        raise error

    return explained


def _explanation(action: str, address: Any) -> str:
    return f"{_State.reason} (cannot {action} {_text(address)}){_State.advice}"


def _text(address: Any) -> str:
    host = address[0] if isinstance(address, tuple) and address else address
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    return str(host)[:_MAX_MESSAGE]


def _describe(error: BaseException) -> str:
    text = str(error)
    if len(text) > _MAX_MESSAGE:
        text = text[:_MAX_MESSAGE] + "…"
    return f"{type(error).__name__}: {text}"


def _is_explained(error: BaseException) -> bool:
    return isinstance(error, OSError) and str(error.strerror).startswith(_State.reason)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Returns the error and what led to it, through chains and groups."""
    pending, seen = [error], set()
    while pending and len(seen) < _MAX_CAUSES:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        following = [current.__cause__, current.__context__, *getattr(current, "exceptions", ())]
        pending.extend(one for one in following if isinstance(one, BaseException))

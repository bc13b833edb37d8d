"""Functions, objects and exceptions that cross between a Monty session and its parent, by identity or by name."""

import builtins
import os
import re
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from . import monty_names

BUILTIN, SANDBOX, HOST = 1, 2, 3
"""The origins of types."""

STANDARD_TYPES = {
    "Field": ("dataclasses", "Field"),
    "FrozenInstanceError": ("dataclasses", "FrozenInstanceError"),
    "NoneType": ("types", "NoneType"),
    "NotImplementedType": ("types", "NotImplementedType"),
    "datetime.date": ("datetime", "date"),
    "datetime.datetime": ("datetime", "datetime"),
    "datetime.time": ("datetime", "time"),
    "datetime.timedelta": ("datetime", "timedelta"),
    "datetime.timezone": ("datetime", "timezone"),
    "decimal.Decimal": ("decimal", "Decimal"),
    "json.JSONDecodeError": ("json", "JSONDecodeError"),
    "PosixPath": ("pathlib", "PosixPath"),
    "ellipsis": ("types", "EllipsisType"),
    "re.Pattern": ("re", "Pattern"),
    "re.Match": ("re", "Match"),
}
"""The types outside of the module `builtins` that cross by their names."""

_OS_ERROR = re.compile(r"\[Errno (\d+)\] ([^:]*)(?:: '(.*)')?", re.DOTALL)
"""The text of an error of the system."""

type Node = dict[str, Any]
"""A value and its kind, whose children are indexes of other nodes."""


class Function:
    """A function of the parent. `monty_calls` calls it."""

    call: Callable[..., Any]
    """Calls a function and waits for its result; set by `monty_calls`."""

    def __init__(self, name: str, doc: str | None) -> None:
        self.__name__ = name
        self.__doc__ = doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Function.call(self.__name__, None, args, kwargs)

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"


class HostObject:
    """An instance of a class of the parent, or such a class or module itself."""

    look_up: Callable[[str, bytes, types.FrameType], Any]
    """Looks up an attribute that a frame loads; set by `monty_calls`."""

    def __init__(self, kind: Node, attributes: dict[str, Any], identity: bytes) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_identity", identity)
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"{self._kind['name']!r} object has no attribute {name!r}")
        return HostObject.look_up(name, self._identity, sys._getframe(1))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Function.call("__call__", self._identity, args, kwargs)

    def __repr__(self) -> str:
        return f"<{self._kind['name']} object of the host>"


class Identities:
    """The objects of this session that the parent has seen, by their random identities."""

    def __init__(self) -> None:
        self._by_identity: dict[bytes, Any] = {}
        self._by_address: dict[int, bytes] = {}

    def of(self, value: Any) -> bytes:
        """Returns the identity of an object."""
        identity = self._by_address.get(id(value))
        if identity is not None:
            return identity
        identity, address = os.urandom(16), id(value)

        def forget(_: Any) -> None:
            self._by_address.pop(address, None)
            self._by_identity.pop(identity, None)

        try:
            held: Any = weakref.ref(value, forget)
        except TypeError:
            held = _Strong(value)
        self._by_address[address] = identity
        self._by_identity[identity] = held
        return identity

    def get(self, identity: bytes) -> Any:
        """Returns the object with an identity, or None."""
        held = self._by_identity.get(identity)
        return None if held is None else held()

    def add(self, identity: bytes, value: Any) -> None:
        """Adds an object of the parent."""
        self._by_identity[identity] = _Strong(value)
        self._by_address[id(value)] = identity


class _Strong:
    """A reference that keeps its object alive."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self) -> Any:
        return self._value


identities = Identities()


def printable(value: str) -> str:
    """Returns a text that UTF-8 can encode."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def exception_parts(error: BaseException) -> tuple[str, str | None]:
    """Returns the name of an exception's class in the protocol, and its text.

    A class that the client does not know is its nearest base that the client knows, and the text begins with its name.
    """
    names = (_exception_name(kind) for kind in type(error).__mro__)
    known = next((name for name in names if name in monty_names.exceptions), "Exception")
    text = argument(error)
    if known != _exception_name(type(error)):
        name = printable(type(error).__name__)
        text = f"{name}: {text}" if text else name
    return known, text


def _exception_name(kind: type) -> str:
    if kind.__module__ in ("builtins", "dataclasses"):
        # The names of other classes, such as those of exceptions of the parent, mean nothing to the client.
        return kind.__name__ if kind.__module__ == "dataclasses" or vars(builtins).get(kind.__name__) is kind else ""
    return f"{'json' if kind.__module__ == 'json.decoder' else kind.__module__}.{kind.__name__}"


def argument(error: BaseException) -> str | None:
    """Returns the text of an exception; None if it has no arguments."""
    if type(error).__module__ in ("builtins", "__main__") and not error.args and not isinstance(error, OSError):
        return None
    if isinstance(error, KeyError) and len(error.args) == 1 and isinstance(error.args[0], str):
        return printable(error.args[0])
    try:
        return printable(str(error))
    except Exception as failure:
        return f"<its str() raised {type(failure).__name__}>"


def find_class(name: str) -> type | None:
    """Returns the class of Python with a name of the protocol."""
    module, _, attribute = name.rpartition(".")
    if name in STANDARD_TYPES:
        module, attribute = STANDARD_TYPES[name]
    elif module and name not in monty_names.exceptions and name not in monty_names.types:
        return None
    found = getattr(__import__(module or "builtins"), attribute, None)
    return found if isinstance(found, type) else None


def create_exception(name: str, message: str | None) -> BaseException:
    """Returns an exception of the class of Python with this name, or of a new class of this name."""
    found = find_class(name)
    arguments = () if message is None else (message,)
    if found is not None and issubclass(found, BaseException):
        try:
            if issubclass(found, OSError) and (parts := _OS_ERROR.fullmatch(message or "")) is not None:
                return found(int(parts[1]), parts[2], *(() if parts[3] is None else (parts[3],)))
            return found(*arguments)
        except TypeError:
            pass  # Such as UnicodeDecodeError, which has five arguments.
    return type(name.rpartition(".")[2] or "Exception", (Exception,), {"__module__": "builtins"})(*arguments)

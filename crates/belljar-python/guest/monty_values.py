"""Values of Monty's worker protocol: a list of nodes, in which containers refer to their children by index.

The host converts nodes between this form and the messages of the protocol, and has checked what it passes. A node is
``{kind: content}``, such as ``{"int": 1}`` or ``{"list": [0, 1]}``.
"""

import binascii
import builtins
import math
import os
import re
import sys
import types
import weakref
from collections.abc import Callable
from json import loads
from typing import Any

from . import value_json

MAX_NODES = 1_000_000
"""The maximum number of nodes of a value."""
MAX_DEPTH = 500
"""The depth from which a value is only described."""
_MAX_TEXT = 16 << 20
"""The size in bytes of the JSON of an object of a package."""

_INT64 = 1 << 63
_BUILTIN, _SANDBOX, _HOST = 1, 2, 3
"""The origins of types."""

_STANDARD_TYPES = {
    "datetime.date": ("datetime", "date"),
    "datetime.datetime": ("datetime", "datetime"),
    "datetime.time": ("datetime", "time"),
    "datetime.timedelta": ("datetime", "timedelta"),
    "datetime.timezone": ("datetime", "timezone"),
    "decimal.Decimal": ("decimal", "Decimal"),
    "json.JSONDecodeError": ("json", "JSONDecodeError"),
    "pathlib.PosixPath": ("pathlib", "PosixPath"),
    "re.Pattern": ("re", "Pattern"),
    "re.Match": ("re", "Match"),
}
"""The types outside of the module `builtins` that cross by their names."""

_OS_ERROR = re.compile(r"\[Errno (\d+)\] ([^:]*)(?:: '(.*)')?", re.DOTALL)
"""The text of an error of the system."""

type Node = dict[str, Any]


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

    look_up: Callable[[str, bytes], Any]
    """Looks an attribute up; set by `monty_calls`."""

    def __init__(self, kind: Node, attributes: dict[str, Any], identity: bytes) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_identity", identity)
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"{self._kind['name']!r} object has no attribute {name!r}")
        return HostObject.look_up(name, self._identity)

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


class Encoder:
    """The nodes of the values of one message."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[int, int] = {}
        self._open: set[int] = set()
        self._held: list[Any] = []

    def add(self, value: Any) -> int:
        """Adds a value and returns its index."""
        kind = type(value)
        if (simple := _SIMPLE.get(kind)) is not None:
            return self._append(simple(value))
        if (known := self._known.get(id(value))) is not None:
            return known
        if id(value) in self._open:
            return self._append({"cycle": _PLACEHOLDERS.get(kind, "...")})
        if len(self._open) >= MAX_DEPTH:
            return self._append({"repr": "..."})
        self._open.add(id(value))
        try:
            index = self._append(self._node(value, kind))
        finally:
            self._open.discard(id(value))
        self._known[id(value)] = index
        self._held.append(value)
        return index

    def arena(self) -> dict[str, Any]:
        """Returns the nodes as a part of a message."""
        return {"nodes": self.nodes}

    def _append(self, node: Node) -> int:
        if len(self.nodes) >= MAX_NODES:
            raise MemoryError(f"a value that crosses to the host has at most {MAX_NODES} parts")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _items(self, values: Any) -> list[int]:
        return [self.add(item) for item in values]

    def _pairs(self, items: Any) -> list[list[int]]:
        return [[self.add(key), self.add(value)] for key, value in items]

    def _node(self, value: Any, kind: type) -> Node:
        if kind in _CONTAINERS:
            return {_CONTAINERS[kind]: self._items(value)}
        if kind is dict:
            return {"dict": self._pairs(list(value.items()))}
        if isinstance(value, type):
            return _type_node(value)
        if (special := _SPECIAL.get(f"{kind.__module__}.{kind.__qualname__}")) is not None:
            return special(value)
        if isinstance(value, HostObject):
            return self._host_object(value)
        return self._other(value, kind)

    def _other(self, value: Any, kind: type) -> Node:
        if isinstance(value, BaseException):
            return {"exception": {"exc_type": exception_name(kind), "arg": argument(value)}}
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            values, fields = self._items(value), [str(name) for name in kind._fields]
            return {"named_tuple": {"type_name": kind.__name__, "field_names": fields, "values": values}}
        package = kind.__module__.partition(".")[0]
        if package in ("numpy", "pandas", "polars", "pyarrow"):
            return self._of_package(value)
        if package == "pathlib" or isinstance(value, os.PathLike) and isinstance(value, _path_type()):
            return {"path": text(str(value))}
        for base, name in _BASES:
            # Enumerations with a value of their own type are that value, as in JSON.
            if base in kind.__mro__:
                plain = base(value) if base is not int else int.__index__(value)
                return self.nodes_of(plain) if name is None else {name: self._items(plain)}
        if dict in kind.__mro__:
            return {"dict": self._pairs(list(dict.items(value)))}
        if isinstance(value, types.BuiltinFunctionType) and getattr(builtins, value.__name__, None) is value:
            return {"builtin_function": value.__name__}
        if kind.__module__ in sys.stdlib_module_names or kind.__flags__ & (1 << 9) == 0:
            return {"repr": text(value_json.safe_repr(value))}
        return self._instance(value, kind)

    def nodes_of(self, value: Any) -> Node:
        """Returns the node of a value without children."""
        return _SIMPLE[type(value)](value)

    def _of_package(self, value: Any) -> Node:
        """Returns the node of an object of a package, as a result in JSON has it: a list for an array."""
        fields = value_json.render(value, _MAX_TEXT)
        plain = loads(fields.get("strict") or fields["value"])
        kind = type(plain)
        if kind is list:
            return {"list": self._items(plain)}
        if kind is dict:
            return {"dict": self._pairs(list(plain.items()))}
        return self.nodes_of(plain)

    def _instance(self, value: Any, kind: type) -> Node:
        class_type = self.add(kind)
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict):
            names = [name for base in kind.__mro__ for name in _slots(base)]
            attributes = {name: getattr(value, name) for name in names if hasattr(value, name)}
        pairs = self._pairs([(name, each) for name, each in attributes.items() if isinstance(name, str)])
        identity = binascii.b2a_base64(identities.of(value), newline=False).decode()
        return {"class_instance": {"class_type": class_type, "instance_id": identity, "attrs": pairs}}

    def _host_object(self, value: HostObject) -> Node:
        kind: Node = value._kind
        identity = binascii.b2a_base64(value._identity, newline=False).decode()
        if kind["form"] == "module":
            return {"module": {"name": kind["name"], "id": identity, "attrs": []}}
        host_type = {"name": kind["name"], "id": kind["class"], "origin": _HOST, "is_dataclass": kind["is_dataclass"]}
        if kind["form"] == "type":
            return {"type": host_type | {"id": identity, "attrs": []}}
        class_type = self._append({"type": host_type | {"attrs": []}})
        attributes = [(name, each) for name, each in vars(value).items() if name not in ("_kind", "_identity")]
        return {"class_instance": {"class_type": class_type, "instance_id": identity, "attrs": self._pairs(attributes)}}


def text(value: str) -> str:
    """Returns a text that UTF-8 can encode."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def exception_name(kind: type) -> str:
    """Returns the name of an exception's class in the protocol."""
    return "json.JSONDecodeError" if kind.__name__ == "JSONDecodeError" else text(kind.__name__)


def argument(error: BaseException) -> str | None:
    """Returns the text of an exception; None if it has no arguments."""
    if type(error).__module__ in ("builtins", "__main__") and not error.args and not isinstance(error, OSError):
        return None
    if isinstance(error, KeyError) and len(error.args) == 1 and isinstance(error.args[0], str):
        return text(error.args[0])
    try:
        return text(str(error))
    except Exception as failure:
        return f"<its str() raised {type(failure).__name__}>"


def _int(value: int) -> Node:
    if -_INT64 <= value < _INT64:
        return {"int": value}
    size = (value.bit_length() + 7) // 8
    magnitude = binascii.b2a_base64(abs(value).to_bytes(size), newline=False).decode()
    return {"bigint": {"negative": value < 0, "magnitude": magnitude}}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _offset(value: Any) -> tuple[int | None, str | None]:
    offset = value.utcoffset()
    return (None, None) if offset is None else (int(offset.total_seconds()), text(value.tzname() or "") or None)


def _datetime(value: Any) -> Node:
    offset, name = _offset(value)
    parts = {"year": value.year, "month": value.month, "day": value.day, "hour": value.hour, "minute": value.minute}
    rest = {"second": value.second, "microsecond": value.microsecond, "offset_seconds": offset, "timezone_name": name}
    return {"datetime": parts | rest}


def _time(value: Any) -> Node:
    offset, name = _offset(value)
    parts = {"hour": value.hour, "minute": value.minute, "second": value.second, "microsecond": value.microsecond}
    return {"time": parts | {"offset_seconds": offset, "timezone_name": name, "fold": value.fold}}


def _timezone(value: Any) -> Node:
    name = value.tzname(None)
    return {"timezone": {"offset_seconds": int(value.utcoffset(None).total_seconds()), "name": name}}


def _type_node(value: type) -> Node:
    name = value.__name__
    if value.__module__ == "builtins":
        return {"type": {"name": name, "id": None, "origin": _BUILTIN, "is_dataclass": False, "attrs": None}}
    dotted = f"{value.__module__}.{name}"
    if dotted in _STANDARD_TYPES or value.__module__ in sys.stdlib_module_names:
        return {"type": {"name": dotted, "id": None, "origin": _BUILTIN, "is_dataclass": False, "attrs": None}}
    identity = binascii.b2a_base64(identities.of(value), newline=False).decode()
    is_dataclass = "__dataclass_fields__" in vars(value)
    node = {"name": text(name), "id": identity, "origin": _SANDBOX, "is_dataclass": is_dataclass, "attrs": []}
    return {"type": node}


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _path_type() -> type:
    pathlib = sys.modules.get("pathlib")
    return getattr(pathlib, "PurePath", types.NoneType)


_SIMPLE: dict[type, Callable[[Any], Node]] = {
    types.NoneType: lambda _: {"none": {}},
    types.EllipsisType: lambda _: {"ellipsis": {}},
    types.NotImplementedType: lambda _: {"not_implemented": {}},
    bool: lambda value: {"boolean": value},
    int: _int,
    float: lambda value: {"float": _number(value)},
    str: lambda value: {"str": text(value)},
    bytes: lambda value: {"bytes": binascii.b2a_base64(value, newline=False).decode()},
    bytearray: lambda value: {"bytes": binascii.b2a_base64(value, newline=False).decode()},
    complex: lambda value: {"complex": {"real": _number(value.real), "imag": _number(value.imag)}},
}
_CONTAINERS = {list: "list", tuple: "tuple", set: "set", frozenset: "frozen_set"}
_PLACEHOLDERS = {list: "[...]", tuple: "(...)", dict: "{...}", set: "{...}"}
_BASES: tuple[tuple[Any, str | None], ...] = (
    (str, None),
    (int, None),
    (float, None),
    (bytes, None),
    (list, "list"),
    (tuple, "tuple"),
    (set, "set"),
    (frozenset, "frozen_set"),
)
_SPECIAL: dict[str, Callable[[Any], Node]] = {
    "datetime.datetime": _datetime,
    "datetime.date": lambda value: {"date": {"year": value.year, "month": value.month, "day": value.day}},
    "datetime.time": _time,
    "datetime.timedelta": lambda value: {
        "timedelta": {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    },
    "datetime.timezone": _timezone,
    "decimal.Decimal": lambda value: {"decimal": str(value)},
    f"{Function.__module__}.Function": lambda value: {
        "function": {"name": value.__name__, "docstring": value.__doc__}
    },
}


def decode(arena: dict[str, Any] | None) -> list[Any]:
    """Returns the values of all nodes."""
    values: list[Any] = []
    for node in (arena or {}).get("nodes", ()):
        ((kind, content),) = node.items()
        decoder = _DECODERS.get(kind)
        if decoder is None:
            raise ValueError(f"a value of the kind {kind!r} cannot be passed to the code")
        values.append(decoder(values, content))
    return values


def _decoded_pairs(values: list[Any], pairs: Any) -> dict[Any, Any]:
    return {values[key]: values[value] for key, value in pairs or ()}


def _decode_named_tuple(values: list[Any], content: Node) -> Any:
    from collections import namedtuple

    name = content["type_name"].rpartition(".")[2]
    kind = namedtuple(name if name.isidentifier() else "NamedTuple", content["field_names"], rename=True)
    return kind(*(values[at] for at in content["values"]))


def _zone(offset: int | None, name: str | None) -> Any:
    from datetime import UTC, timedelta, timezone

    if offset is None:
        return None
    if offset == 0 and name in (None, "UTC"):
        return UTC
    return timezone(timedelta(seconds=offset)) if name is None else timezone(timedelta(seconds=offset), name)


def _decode_datetime(_: list[Any], content: Node) -> Any:
    from datetime import datetime

    zone = _zone(content.pop("offset_seconds"), content.pop("timezone_name"))
    return datetime(**content, tzinfo=zone)


def _decode_time(_: list[Any], content: Node) -> Any:
    from datetime import time

    zone = _zone(content.pop("offset_seconds"), content.pop("timezone_name"))
    return time(**content, tzinfo=zone)


def _decode_standard(module: str, name: str) -> Callable[[list[Any], Any], Any]:
    def decode_value(_: list[Any], content: Any) -> Any:
        kind = getattr(__import__(module), name)
        return kind(**content) if isinstance(content, dict) else kind(content)

    return decode_value


def _decode_type(values: list[Any], content: Node) -> Any:
    name, origin = content["name"], content["origin"]
    if origin == _BUILTIN:
        if name in _STANDARD_TYPES:
            module, attribute = _STANDARD_TYPES[name]
            return getattr(__import__(module), attribute)
        kind = getattr(builtins, name, None)
        if isinstance(kind, type):
            return kind
        raise ValueError(f"there is no type {name!r}")
    identity = binascii.a2b_base64(content["id"])
    known = identities.get(identity)
    if known is None and origin == _SANDBOX:
        raise ValueError(f"the class {name!r} of this session does not exist any more")
    attributes = _decoded_pairs(values, content["attrs"])
    if known is None:
        kind = {"form": "type", "name": name, "class": content["id"], "is_dataclass": content["is_dataclass"]}
        known = HostObject(kind, attributes, identity)
        identities.add(identity, known)
    elif isinstance(known, HostObject):
        known.__dict__.update(attributes)
    return known


def _decode_instance(values: list[Any], content: Node) -> Any:
    identity = binascii.a2b_base64(content["instance_id"])
    attributes = _decoded_pairs(values, content["attrs"])
    if (known := identities.get(identity)) is not None:
        if isinstance(known, HostObject):
            known.__dict__.update(attributes)
        return known
    kind = values[content["class_type"]]
    if not isinstance(kind, HostObject):
        raise ValueError("an object of this session does not exist any more")
    instance = HostObject(kind._kind | {"form": "instance"}, attributes, identity)
    identities.add(identity, instance)
    return instance


def _decode_module(values: list[Any], content: Node) -> Any:
    identity = binascii.a2b_base64(content["id"])
    if (known := identities.get(identity)) is None:
        known = types.ModuleType(content["name"])
        known.__getattr__ = lambda name: _module_attribute(name, identity)  # type: ignore[method-assign]
        identities.add(identity, known)
    for name, value in _decoded_pairs(values, content["attrs"]).items():
        setattr(known, name, value)
    return known


def _module_attribute(name: str, identity: bytes) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return HostObject.look_up(name, identity)


def _decode_exception(_: list[Any], content: Node) -> BaseException:
    return exception(content["exc_type"], content["arg"])


def exception(name: str, message: str | None) -> BaseException:
    """Returns an exception of the builtin class of this name, or of a new class of this name."""
    kind = _STANDARD_TYPES.get(name)
    found = getattr(__import__(kind[0]), kind[1]) if kind else getattr(builtins, name, None)
    arguments = () if message is None else (message,)
    if isinstance(found, type) and issubclass(found, BaseException):
        try:
            if issubclass(found, OSError) and (parts := _OS_ERROR.fullmatch(message or "")) is not None:
                return found(int(parts[1]), parts[2], *(parts[3:4] if parts[3] else ()))
            return found(*arguments)
        except TypeError:
            pass  # Such as UnicodeDecodeError, which has five arguments.
    return type(name.rpartition(".")[2] or "Exception", (Exception,), {"__module__": "builtins"})(*arguments)


_DECODERS: dict[str, Callable[[list[Any], Any], Any]] = {
    "ellipsis": lambda *_: ...,
    "none": lambda *_: None,
    "not_implemented": lambda *_: NotImplemented,
    "boolean": lambda _, content: content,
    "int": lambda _, content: content,
    "bigint": lambda _, content: (
        int.from_bytes(binascii.a2b_base64(content["magnitude"])) * (-1 if content["negative"] else 1)
    ),
    "float": lambda _, content: float(content),
    "str": lambda _, content: content,
    "bytes": lambda _, content: binascii.a2b_base64(content),
    "list": lambda values, items: [values[at] for at in items],
    "tuple": lambda values, items: tuple(values[at] for at in items),
    "named_tuple": _decode_named_tuple,
    "dict": _decoded_pairs,
    "set": lambda values, items: {values[at] for at in items},
    "frozen_set": lambda values, items: frozenset(values[at] for at in items),
    "date": _decode_standard("datetime", "date"),
    "time": _decode_time,
    "datetime": _decode_datetime,
    "timedelta": _decode_standard("datetime", "timedelta"),
    "timezone": lambda _, content: _zone(content["offset_seconds"], content["name"]),
    "exception": _decode_exception,
    "type": _decode_type,
    "class_instance": _decode_instance,
    "function": lambda _, content: Function(content["name"], content["docstring"]),
    "builtin_function": lambda _, name: getattr(builtins, name),
    "path": _decode_standard("pathlib", "PurePosixPath"),
    "file_handle": lambda _, content: content,
    "complex": lambda _, content: complex(float(content["real"] or 0), float(content["imag"] or 0)),
    "module": _decode_module,
    "decimal": _decode_standard("decimal", "Decimal"),
}

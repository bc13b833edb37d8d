"""Values of a Monty session for its parent: a list of nodes, in which containers refer to their children by index.

The host converts nodes between this form and the messages of the protocol. A node is ``{kind: content}``, such as
``{"int": 1}`` or ``{"list": [0, 1]}``.
"""

import binascii
import builtins
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from . import monty_names, value_json
from .monty_objects import (
    BUILTIN,
    HOST,
    SANDBOX,
    Function,
    HostObject,
    Node,
    exception_parts,
    identities,
    printable,
)

MAX_NODES = 1_000_000
"""The maximum number of nodes of a value."""
MAX_DEPTH = 500
"""The depth from which a value is only described."""
_PACKAGES = ("numpy", "pandas", "polars", "pyarrow")
"""The packages whose objects cross as values of Python's own types."""

_INT64 = 1 << 63


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
            name, text = exception_parts(value)
            return {"exception": {"exc_type": name, "arg": text}}
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            values, fields = self._items(value), [str(name) for name in kind._fields]
            return {"named_tuple": {"type_name": kind.__name__, "field_names": fields, "values": values}}
        package = kind.__module__.partition(".")[0]
        if package in _PACKAGES:
            return self._of_package(value, package)
        if package == "pathlib" or isinstance(value, os.PathLike) and isinstance(value, _path_type()):
            return {"path": printable(str(value))}
        for base, name in _BASES:
            # Enumerations with a value of their own type are that value, as in JSON.
            if base in kind.__mro__:
                plain = base(value) if base is not int else int.__index__(value)
                return self.nodes_of(plain) if name is None else {name: self._items(plain)}
        if dict in kind.__mro__:
            return {"dict": self._pairs(list(dict.items(value)))}
        is_builtin = isinstance(value, types.BuiltinFunctionType) and getattr(builtins, value.__name__, None) is value
        if is_builtin and value.__name__ in monty_names.FUNCTIONS:
            return {"builtin_function": value.__name__}
        if kind.__module__ in sys.stdlib_module_names or kind.__flags__ & (1 << 9) == 0:
            return {"repr": printable(value_json.safe_repr(value))}
        return self._instance(value, kind)

    def nodes_of(self, value: Any) -> Node:
        """Returns the node of a value without children."""
        return _SIMPLE[type(value)](value)

    def _of_package(self, value: Any, package: str) -> Node:
        """Returns the node of an object of a package: a list for an array, a list of records for a data frame."""
        try:
            plain = _in_plain_types(value, package)
        except Exception:
            plain = value
        kind = type(plain)
        if kind.__module__.partition(".")[0] in _PACKAGES:
            return {"repr": printable(value_json.safe_repr(value))}
        if (simple := _SIMPLE.get(kind)) is not None:
            return simple(plain)
        return self._node(plain, kind)

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
        host_type = {"name": kind["name"], "id": kind["class"], "origin": HOST, "is_dataclass": kind["is_dataclass"]}
        if kind["form"] == "type":
            return {"type": host_type | {"id": identity, "attrs": []}}
        class_type = self._append({"type": host_type | {"attrs": []}})
        attributes = [(name, each) for name, each in vars(value).items() if name not in ("_kind", "_identity")]
        return {"class_instance": {"class_type": class_type, "instance_id": identity, "attrs": self._pairs(attributes)}}


def _in_plain_types(value: Any, package: str) -> Any:
    """Returns an object of a package in types of Python, or of packages in these; others as they are."""
    if package == "numpy" and getattr(getattr(value, "dtype", None), "kind", None) in ("M", "m"):
        # Python's times have microseconds; numpy returns numbers of shorter units.
        unit, _ = sys.modules["numpy"].datetime_data(value.dtype)
        if unit in ("ns", "ps", "fs", "as"):
            value = value.astype(value.dtype.str[1:3] + "[us]")
    elif package == "pandas":
        pandas = sys.modules["pandas"]
        if value is pandas.NaT or value is pandas.NA:
            return None
        if isinstance(value, pandas.DataFrame):
            return value.to_dict("records")
        if isinstance(value, pandas.Timestamp):
            return value.to_pydatetime(warn=False)
        if isinstance(value, pandas.Timedelta):
            return value.to_pytimedelta()
    for name in ("to_dicts", "to_pylist", "as_py", "to_list", "tolist"):
        if callable(method := getattr(value, name, None)):
            return method()
    return value


def _int(value: int) -> Node:
    if -_INT64 <= value < _INT64:
        return {"int": value}
    size = (value.bit_length() + 7) // 8
    magnitude = binascii.b2a_base64(abs(value).to_bytes(size), newline=False).decode()
    return {"bigint": {"negative": value < 0, "magnitude": magnitude}}


def _offset(value: Any) -> tuple[int | None, str | None]:
    offset = value.utcoffset()
    return (None, None) if offset is None else (int(offset.total_seconds()), printable(value.tzname() or "") or None)


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


def _decimal(value: Any) -> str:
    return str(value) if monty_names.has_decimals else repr(value)


def _type_node(value: type) -> Node:
    name, package = value.__name__, value.__module__.partition(".")[0]
    if package in sys.stdlib_module_names and package != "__main__":
        # Such as `json.decoder`, whose class is known as that of `json`. The client resolves exceptions without a
        # module only among the builtins, and would fail for `FrozenInstanceError`.
        has_bare_name = package in ("builtins", "pathlib") or (package, name) == ("dataclasses", "Field")
        dotted = name if has_bare_name else f"{package}.{name}"
        if dotted not in monty_names.types and dotted not in monty_names.exceptions:
            return {"repr": printable(value_json.safe_repr(value))}
        return {"type": {"name": dotted, "id": None, "origin": BUILTIN, "is_dataclass": False, "attrs": None}}
    identity = binascii.b2a_base64(identities.of(value), newline=False).decode()
    is_dataclass = "__dataclass_fields__" in vars(value)
    node = {"name": printable(name), "id": identity, "origin": SANDBOX, "is_dataclass": is_dataclass, "attrs": []}
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
    float: lambda value: {"float": repr(value)},
    str: lambda value: {"str": printable(value)},
    bytes: lambda value: {"bytes": binascii.b2a_base64(value, newline=False).decode()},
    bytearray: lambda value: {"bytes": binascii.b2a_base64(value, newline=False).decode()},
    complex: lambda value: {"complex": {"real": repr(value.real), "imag": repr(value.imag)}},
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
    "decimal.Decimal": lambda value: {"decimal" if monty_names.has_decimals else "repr": _decimal(value)},
    f"{Function.__module__}.Function": lambda value: {"function": {"name": value.__name__, "docstring": value.__doc__}},
}

"""Values of the parent for a Monty session: see `monty_encoding`. The host has checked their indexes and identities."""

import binascii
import builtins
import sys
import types
from collections.abc import Callable
from typing import Any

from .monty_objects import BUILTIN, SANDBOX, Function, HostObject, Node, create_exception, find_class, identities


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
    if origin == BUILTIN:
        if (found := find_class(name)) is not None:
            return found
        raise ValueError(f"there is no type {name!r}")
    identity = binascii.a2b_base64(content["id"])
    known = identities.get(identity)
    if known is None and origin == SANDBOX:
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
    return HostObject.look_up(name, identity, sys._getframe(2))


def _decode_exception(_: list[Any], content: Node) -> BaseException:
    return create_exception(content["exc_type"], content["arg"])


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

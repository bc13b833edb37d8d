"""Functions for code from tools that are described by a JSON Schema."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import ArgumentError
from ._tools import Tool

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict", "null": "None"}
_MAX_DEPTH = 4
"""The depth of nested types that annotations show."""


class _Annotation(str):
    """A type as text, which signatures show without quotes."""

    def __repr__(self) -> str:
        return str(self)


def schema_tool(name: str, description: str, schema: Mapping[str, Any], call: Callable[[dict[str, Any]], Any]) -> Tool:
    """Returns an async function for code that calls ``call``, an async function, with its arguments by name.

    The parameters of the function are the properties of the schema. A parameter that the code leaves out is not passed
    on, so that defaults are those of the tool.
    """
    signature = _signature(name, schema)

    async def function(*args: Any, **kwargs: Any) -> Any:
        return await call(dict(signature.bind(*args, **kwargs).arguments))

    function.__signature__ = signature  # type: ignore[attr-defined]
    return Tool(function, name=name, description=description)


def _signature(name: str, schema: Mapping[str, Any]) -> inspect.Signature:
    properties = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    parameters = []
    for each, described in properties.items():
        if not each.isidentifier() or keyword.iskeyword(each):
            raise ArgumentError(f"tools: the argument {each!r} of {name} is not the name of a variable")
        parameter = inspect.Parameter(
            each,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=_Annotation(_annotation(described, schema, 0)),
            default=inspect.Parameter.empty if each in required else _default(described),
        )
        parameters.append(parameter)
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    return inspect.Signature(parameters)


def _default(described: object) -> Any:
    default = described.get("default") if isinstance(described, Mapping) else None
    return default if isinstance(default, (bool, int, float, str)) else None


def _annotation(described: object, root: Mapping[str, Any], depth: int) -> str:
    """Returns a type of Python as text, ``Any`` for a schema without an equivalent."""
    if not isinstance(described, Mapping) or depth > _MAX_DEPTH:
        return "Any"
    if isinstance(reference := described.get("$ref"), str):
        definitions = root.get("$defs") or {}
        return _annotation(definitions.get(reference.rpartition("/")[2]), root, depth + 1)
    if isinstance(choices := described.get("enum"), list):
        simple = all(isinstance(choice, (str, int, bool)) for choice in choices)
        return f"Literal[{', '.join(map(repr, choices))}]" if simple and choices else "Any"
    for key in ("anyOf", "oneOf"):
        if isinstance(alternatives := described.get(key), list):
            return " | ".join(dict.fromkeys(_annotation(each, root, depth + 1) for each in alternatives))
    kind = described.get("type")
    if isinstance(kind, list):
        return " | ".join(_TYPES.get(each, "list" if each == "array" else "Any") for each in kind)
    if kind == "array":
        return f"list[{_annotation(described.get('items'), root, depth + 1)}]"
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"

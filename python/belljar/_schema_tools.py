"""Functions for the code, made of the JSON schemas with which models' APIs and agent frameworks describe tools."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ._tools import Tool

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_MAX_DEPTH = 4
"""The depth of types that annotations show."""
_REST = "others"
"""The name of the parameter for arguments whose names are not names of variables."""


class _Annotation(str):
    """The source of an annotation, which signatures show without quotes."""

    def __repr__(self) -> str:
        return str(self)


def function_name(name: str) -> str:
    """Returns the name of a tool in the code: characters that names of variables lack are replaced by ``_``."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    if name[0].isdigit():
        name = f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


class SchemaTool(Tool):
    """A function of the host with the parameters of a JSON schema."""

    def __init__(
        self,
        name: str,
        description: str | None,
        schema: Mapping[str, Any],
        function: Callable[[dict[str, Any]], Awaitable[Any]] | None = None,
    ) -> None:
        """Creates a tool.

        Args:
            name: The name of the tool, which becomes one of a variable.
            description: The docstring, to which the descriptions of the parameters are added.
            schema: The schema of the arguments, an object.
            function: Receives the arguments by name, as `arguments` returns them. Without it, the tool is deferred.
        """

        async def call(*args: Any, **kwargs: Any) -> Any:
            if function is None:
                raise NotImplementedError("a deferred function is not called")
            return await function(self.arguments(args, kwargs))

        described: Any = call
        described.__signature__ = _signature(schema)
        docstring = _docstring(description, schema)
        super().__init__(described, name=function_name(name), description=docstring, deferred=function is None)
        self._types = {name: _source(each, schema) for name, each in _properties(schema).items()}

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a call by name, or raises TypeError if they do not fit the parameters.

        None for an optional parameter that cannot be null is the same as no argument.
        """
        assert self.signature is not None
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None
        rest = bound.pop(_REST, {})
        optional = {name for name, each in self.signature.parameters.items() if each.default is None}
        return {
            name: value
            for name, value in {**bound, **rest}.items()
            if value is not None or name not in optional or self._may_be_null(name)
        }

    def _may_be_null(self, name: str) -> bool:
        return self._types[name] == "Any" or "None" in self._types[name]


def _signature(schema: Mapping[str, Any]) -> inspect.Signature:
    """Returns the parameters of a JSON schema: the required ones first, all of them by position or by name."""
    properties = _properties(schema)
    required = schema.get("required")
    is_required = set(required if isinstance(required, (list, tuple)) else ())
    names = [name for name in properties if name.isidentifier() and not keyword.iskeyword(name) and name != _REST]
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if name in is_required else properties[name].get("default"),
            annotation=_Annotation(_type(properties[name], schema, name in is_required)),
        )
        for name in sorted(names, key=lambda name: name not in is_required)
    ]
    if len(names) < len(properties) or "properties" not in schema or schema.get("additionalProperties"):
        parameters.append(inspect.Parameter(_REST, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): each if isinstance(each, Mapping) else {} for name, each in properties.items()}


def _type(described: Mapping[str, Any], root: Mapping[str, Any], is_required: bool) -> str:
    """Returns the type of a parameter, with None for one that can be left out."""
    source = _source(described, root)
    is_optional = not is_required and "default" not in described
    return f"{source} | None" if is_optional and source != "Any" and "None" not in source else source


def _source(described: object, root: Mapping[str, Any], depth: int = 0) -> str:
    """Returns the type of a schema as the source of an annotation."""
    if not isinstance(described, Mapping) or depth > _MAX_DEPTH:
        return "Any"
    if isinstance(reference := described.get("$ref"), str):
        definitions = root.get("$defs")
        target = definitions.get(reference.rpartition("/")[2]) if isinstance(definitions, Mapping) else None
        return _source(target, root, depth + 1)
    choices = described.get("enum", [described["const"]] if "const" in described else None)
    if isinstance(choices, list) and choices and all(isinstance(each, (str, int, type(None))) for each in choices):
        return f"Literal[{', '.join(map(repr, choices))}]"
    alternatives = described.get("anyOf", described.get("oneOf"))
    if isinstance(alternatives, list) and alternatives:
        return _union([_source(each, root, depth + 1) for each in alternatives])
    kind = described.get("type")
    if isinstance(kind, list) and kind:
        return _union([_source({**described, "type": each}, root, depth + 1) for each in kind])
    if kind == "array":
        return f"list[{_source(described.get('items'), root, depth + 1)}]"
    if kind == "object":
        return f"dict[str, {_source(described.get('additionalProperties'), root, depth + 1)}]"
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _union(sources: list[str]) -> str:
    return "Any" if "Any" in sources else " | ".join(dict.fromkeys(sources))


def _docstring(description: str | None, schema: Mapping[str, Any]) -> str:
    described = [
        f"    {name}: {text}"
        for name, each in _properties(schema).items()
        if isinstance(text := each.get("description"), str) and text
    ]
    arguments = "\n".join(["Args:", *described]) if described else ""
    return "\n\n".join(part for part in (description or "", arguments) if part)

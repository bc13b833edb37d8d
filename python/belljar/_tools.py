"""Functions of this process that sandboxed code can call."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from ._errors import ArgumentError, ArgumentTypeError
from ._mcp import McpServer

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Tool:
    """A function that sandboxed code can call by its name. Calling the tool calls the function itself."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        blocking: bool = False,
        deferred: bool = False,
    ) -> None:
        """Creates a tool.

        Args:
            function: The function, sync or async.
            name: The name in the code; that of the function by default.
            description: The docstring in the code; that of the function by default.
            blocking: If true, the code calls the tool without ``await``, and waits for it.
            deferred: If true, the function is not called. A run whose code waits for nothing else is paused instead,
                and `Run.resume` continues it with the result, as soon as there is one.
        """
        if not callable(function):
            raise ArgumentTypeError(f"function: {function!r} is not callable")
        name = name if name is not None else getattr(function, "__name__", type(function).__name__)
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ArgumentError(f"name: {name!r} is not the name of a variable; use Tool(function, name=…)")
        if blocking and deferred:
            raise ArgumentError(f"{name}: code pauses where it awaits, so that a tool is either blocking or deferred")
        self.function = function
        self.deferred = deferred
        self.name = name
        self.description = description if description is not None else inspect.getdoc(function)
        self.blocking = blocking
        call = getattr(type(function), "__call__", None)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        try:
            self.signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = None  # Functions in C may have none.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name}{self.signature or '(…)'})"

    def stub(self) -> str:
        """Returns the function as a model is to see it: its signature and its docstring."""
        keyword = "def" if self.blocking else "async def"
        lines = [f"{keyword} {self.name}{self.signature or '(*args, **kwargs)'}:"]
        if self.description:
            text = self.description.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
            lines += [f"    {line}".rstrip() for line in f'"""{text}"""'.splitlines()]
        return "\n".join([*lines, "    ..."])

    def describe(self) -> dict[str, Any]:
        """Returns the description for the code: names, defaults and annotations as Python source."""
        parameters = [
            {
                "name": parameter.name,
                "kind": int(parameter.kind),
                "annotation": _source(parameter.annotation),
                "default": None if parameter.default is inspect.Parameter.empty else repr(parameter.default),
            }
            for parameter in (self.signature.parameters.values() if self.signature else ())
        ]
        returns = _source(self.signature.return_annotation) if self.signature else None
        return {
            "name": self.name,
            "blocking": self.blocking,
            "doc": self.description,
            "parameters": parameters,
            "returns": returns,
        }


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, blocking: bool = False, deferred: bool = False
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    blocking: bool = False,
    deferred: bool = False,
) -> Any:
    """Makes a function a `Tool`: a decorator, with or without arguments. Plain functions can be passed as well."""
    if function is not None:
        return Tool(function)
    return lambda function: Tool(function, name=name, description=description, blocking=blocking, deferred=deferred)


def collect(tools: Iterable[object], argument: str = "tools") -> tuple[dict[str, Tool], list[McpServer]]:
    """Returns functions by name, and MCP servers."""
    collected: dict[str, Tool] = {}
    servers: list[McpServer] = []
    if callable(tools) or isinstance(tools, (str, McpServer)):
        raise ArgumentTypeError(f"{argument}: pass a list of functions and MCP servers")
    for each in tools:
        if isinstance(each, McpServer):
            servers.append(each)
            continue
        if not callable(each):
            raise ArgumentTypeError(f"{argument}: {each!r} is not a function")
        one = each if isinstance(each, Tool) else Tool(each)
        if one.name in collected:
            raise ArgumentError(f"{argument}: two functions have the name {one.name!r}")
        collected[one.name] = one
    return collected, servers


def _source(annotation: Any) -> str | None:
    if annotation is inspect.Signature.empty:
        return None
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

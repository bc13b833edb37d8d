"""The module `tools` of programs: tools of MCP servers as functions, one module for each server.

    from tools import github
    issues = await github.search_issues(query="is:open")

The host connects to the servers, checks calls against its policy, and sends them. A server's functions are created when
they are first used, from descriptions that the host derives from the tools' schemas. Native kernels use this module,
too, with an `exchange` of their own.

| module | subject |
| --- | --- |
| `tool_calls` | calls that can be awaited, and their exceptions |
| `tool_values` | results and arguments |
"""

import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from importlib.machinery import ModuleSpec
from json import dumps
from types import ModuleType
from typing import Any

from . import exchange, host_functions
from .tool_calls import EXCEPTIONS, Call, Target, check_value, report_never_awaited
from .tool_values import File, Resource, Resources, to_json, value

__all__ = ["check_value", "install", "report_never_awaited"]


class Server(ModuleType):
    """The tools of a server: ``dir()`` lists them, and ``help()`` describes one."""

    def __init__(self, name: str, title: str) -> None:
        super().__init__(f"tools.{name}", f"Tools of the MCP server {title!r}. `dir` lists them, `help` describes one.")
        self.__dict__["resources"] = Resources(name)

    def __getattr__(self, name: str) -> Any:
        # Python and IPython look such names up in any module.
        if name.startswith(("__", "_repr_", "_ipython_")):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        server = self.__name__.partition(".")[2]
        function = _function(server, _look_up("function", server, name))
        self.__dict__[name] = function
        return function

    def __dir__(self) -> list[str]:
        return ["resources", *_ask("names", self.__name__.partition(".")[2])]


def _function(server: str, description: dict[str, Any]) -> Callable[..., Call]:
    """Returns the function of a tool."""
    name, renamed = description["name"], dict(description["renamed"])
    path = f"{server}.{name}"
    target = Target(path, "call", server, value, (name,), (False,))

    def function(*args: Any, **arguments: Any) -> Call:
        if args:
            raise TypeError(f"{path}() takes keyword arguments only: {name}{signature}")
        if renamed:
            arguments = {renamed.get(each, each): argument for each, argument in arguments.items()}
        return Call(target, to_json(path, arguments), sys._getframe(1))

    signature = host_functions.signature(description)
    function.__name__ = function.__qualname__ = name
    function.__module__ = f"tools.{server}"
    function.__doc__ = description["doc"]
    function.__signature__ = signature  # type: ignore[attr-defined]
    # Python 3.12
    return inspect.markcoroutinefunction(function) if hasattr(inspect, "markcoroutinefunction") else function


def _ask(operation: str, *arguments: Any) -> Any:
    """Returns the host's reply to an operation that is not a call of a tool."""
    return exchange.call_blocking(dumps(f"tools:{operation}"), arguments, {})


def _look_up(operation: str, *arguments: Any) -> Any:
    """Does the same as `_ask` for an attribute, which does not exist if the host cannot be asked: between cells."""
    try:
        return _ask(operation, *arguments)
    except exchange.HostCallError as error:
        failure = AttributeError(f"the host does not describe tools: {error}")
    raise failure


class _Text(str):
    """A text that can be awaited, since other functions of `tools` have to be."""

    def __await__(self) -> Generator[Any, Any, str]:
        return str(self)
        yield


def call(server: str, tool: str, arguments: Mapping[str, Any] | None = None) -> Call:
    """Calls a tool by the names that the server has for it and for its parameters."""
    path = f"{server}.{tool}"
    target = Target(path, "call", str(server), value, (str(tool),), (True,))
    return Call(target, to_json(path, dict(arguments or {})), sys._getframe(1))


def search(query: str = "", limit: int = 10, detail: str = "summary") -> str:
    """Searches for tools by relevance. ``detail`` is "names", "summary" (signatures) or "full" (stubs)."""
    return _Text(_ask("search", str(query), int(limit), str(detail)))


def describe(*names: str | Iterable[str]) -> str:
    """Returns the stubs of tools, by names such as "github.search_issues"."""
    flat = [name for given in names for name in ([given] if isinstance(given, str) else given)]
    return _Text(_ask("describe", [str(name) for name in flat]))


def servers() -> list[str]:
    """Returns the names of the servers."""
    return [name for name, _ in _ask("servers")]


class _Module(ModuleType):
    """The module `tools`."""

    def __getattr__(self, name: str) -> Any:
        # See `Server.__getattr__`. One underscore begins the names of servers such as "1password".
        if name.startswith(("__", "_repr_", "_ipython_")):
            raise AttributeError(f"module 'tools' has no attribute {name!r}", name=name, obj=self)
        known = dict(_look_up("servers"))
        if name not in known:
            raise AttributeError(f"there is no server {name!r}; the servers are {', '.join(known)}", name=name)
        server = sys.modules[f"tools.{name}"] = self.__dict__[name] = Server(name, known[name])
        return server

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *servers()})


class _Finder:
    """Finds the modules of servers: ``from tools.github import search_issues``."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, server = name.partition(".")
        if package != "tools" or sys.modules.get("tools") is not _module or server not in servers():
            return None
        return ModuleSpec(name, _Finder)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return getattr(_module, spec.name.partition(".")[2])

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        pass


_module = _Module("tools", __doc__)
_module.__dict__.update(
    {each.__name__: each for each in (*EXCEPTIONS, Call, File, Resource, call, search, describe, servers)},
    __path__=[],
)


def install() -> None:
    """Makes the module importable: the host has servers."""
    if sys.modules.get("tools") is not _module:
        sys.modules["tools"] = _module
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)  # type: ignore[arg-type]

"""The module `tools` of programs: tools of MCP servers as functions, one module for each server.

    from tools import github
    issues = await github.search_issues(query="is:open")

The host connects to the servers, checks calls against its policy, and sends them. A server's functions are created when
they are first used, from descriptions that the host derives from the tools' schemas.
"""

import inspect
import linecache
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from importlib.machinery import ModuleSpec
from json import JSONEncoder, dumps
from types import FrameType, ModuleType, TracebackType
from typing import Any, NoReturn

from . import exchange, host

_MAX_REPORTED = 10
"""The maximum number of calls that are reported because they were never awaited."""


class ToolException(Exception):
    """A call of a tool that has no result."""

    server: str | None = None
    tool: str | None = None


class ToolError(ToolException):
    """The tool failed, or its arguments are not valid."""


class ToolDenied(ToolException):
    """The policy or the user denied the call."""


class ToolTimeout(ToolException):
    """The tool did not respond in time."""


class ToolUnavailable(ToolException):
    """The server could not be reached."""


class ToolLimitExceeded(ToolException):
    """The run exceeded a limit of its tool calls."""


class NotAwaitedError(AttributeError, TypeError):
    """The value of a call was used before it was there."""


_EXCEPTIONS = (ToolException, ToolError, ToolDenied, ToolTimeout, ToolUnavailable, ToolLimitExceeded, NotAwaitedError)
for _class in _EXCEPTIONS:
    _class.__module__ = "tools"
exchange.exceptions.update((f"tools.{kind.__name__}", kind) for kind in _EXCEPTIONS)


class Call:
    """A call of a tool: ``await`` it, or call `result` in synchronous code. It is sent then, and not before."""

    def __init__(self, path: str, operation: str, arguments: tuple[Any, ...], frame: FrameType) -> None:
        self._path = path
        self._operation = dumps(f"tools:{operation}")
        self._arguments = arguments
        self._place = (frame.f_code.co_filename, frame.f_lineno)
        self._coroutine: Any = None
        self._outcome: tuple[Any, Exception | None] | None = None

    def result(self) -> Any:
        """Waits for the result and returns it, or raises the call's exception."""
        if self._outcome is None:
            self._begin("result")
            try:
                reply = exchange._start(self._operation, self._arguments, {}, wait=True)
                self._outcome = (_value(self._server(), exchange._result(reply)), None)
            except Exception as error:
                self._outcome = (None, self._named(error))
        return self._finished()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._start().__await__()

    # A task is made of an object with these three methods.

    def send(self, value: Any) -> Any:
        """Continues the call, as the coroutine of an ``async`` function."""
        if self._coroutine is None:
            self._coroutine = self._start()
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None) -> Any:
        """Raises an exception in the call, as in the coroutine of an ``async`` function."""
        if self._coroutine is None:
            self._coroutine = self._start()
        return self._coroutine.throw(kind) if value is None else self._coroutine.throw(kind, value, traceback)

    def close(self) -> None:
        """Ends the call without a result."""
        if self._coroutine is not None:
            self._coroutine.close()
        else:
            self._coroutine = self

    def _start(self) -> Any:
        if self._outcome is None:
            self._begin("await")
        return self._run()

    def _begin(self, how: str) -> None:
        if self._coroutine is not None:
            raise RuntimeError(f"{how}: the call of {self._path} is already being awaited")
        self._coroutine = self

    async def _run(self) -> Any:
        if self._outcome is None:
            try:
                reply = await exchange.call(self._operation, self._arguments, {})
                self._outcome = (_value(self._server(), reply), None)
            except Exception as error:
                self._outcome = (None, self._named(error))
        return self._finished()

    def _finished(self) -> Any:
        value, error = self._outcome or (None, None)
        if error is not None:
            raise error
        return value

    def _server(self) -> str:
        return self._arguments[0]

    def _named(self, error: Exception) -> Exception:
        if isinstance(error, host.HostCallError):
            error = ToolError(f"the call of {self._path} was not sent: {error}")
        if isinstance(error, ToolException):
            error.server, _, error.tool = self._path.partition(".")
        return error

    def _not_awaited(self, *_: Any, **__: Any) -> NoReturn:
        raise NotAwaitedError(f"the call of {self._path} has no value yet: write `await {self._path}(...)`")

    def __getattr__(self, name: str) -> Any:
        self._not_awaited()

    def __repr__(self) -> str:
        state = "not awaited" if self._coroutine is None else "awaited"
        return f"<call of {self._path}, {state}>"

    def __del__(self) -> None:
        if self.__dict__.get("_coroutine", self) is None:
            _never_awaited.append((self._path, *self._place))

    __hash__ = object.__hash__


for _name in (
    *("str", "format", "bool", "len", "iter", "contains", "getitem", "setitem", "delitem", "call", "int"),
    *("float", "index", "eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv"),
    *("rtruediv", "floordiv", "mod", "rmod", "or", "ror", "and", "rand", "neg", "enter", "exit", "fspath"),
):
    setattr(Call, f"__{_name}__", Call._not_awaited)

_never_awaited: list[tuple[str, str, int]] = []
"""The calls that were freed without having been sent: their names and places."""


def report_never_awaited() -> None:
    """Writes a warning to standard error for each call that was freed without having been awaited."""
    lost = _never_awaited[:]
    _never_awaited.clear()
    for path, filename, line in lost[:_MAX_REPORTED]:
        print(f"{filename}:{line}: RuntimeWarning: the call of {path} was never awaited", file=sys.stderr)
    if len(lost) > _MAX_REPORTED:
        print(f"[{len(lost) - _MAX_REPORTED} more calls of tools were never awaited]", file=sys.stderr)


def check_value(value: object) -> None:
    """Raises an error if the value of a cell is a call that was not awaited."""
    if type(value) is Call and value._coroutine is None:
        value._coroutine = value  # It is not reported a second time.
        value._not_awaited()


class File(bytes):
    """The bytes of a file, an image or a sound. Images display themselves."""

    mime_type: str

    def __new__(cls, data: bytes, mime_type: str) -> File:
        file = super().__new__(cls, data)
        file.mime_type = mime_type
        return file

    def __reduce__(self) -> Any:
        return File, (bytes(self), self.mime_type)

    def __repr__(self) -> str:
        return f"<File of {len(self)} bytes, {self.mime_type}>"

    def _of(self, mime_type: str) -> bytes | None:
        return bytes(self) if self.mime_type == mime_type else None

    def _repr_png_(self) -> bytes | None:
        return self._of("image/png")

    def _repr_jpeg_(self) -> bytes | None:
        return self._of("image/jpeg")

    def _repr_svg_(self) -> str | None:
        return self.decode(errors="replace") if self.mime_type == "image/svg+xml" else None


class Resource:
    """A resource of a server: `read` returns its contents."""

    def __init__(self, server: str, link: dict[str, Any]) -> None:
        self.server = server
        self.uri: str = link["uri"]
        self.name: str = link["name"]
        self.title: str | None = link["title"]
        self.description: str | None = link["description"]
        self.mime_type: str | None = link["mime_type"]
        self.size: int | None = link["size"]

    def read(self) -> Call:
        """Reads the contents: text, or a `File`; a list if there are several."""
        return _read(self.server, self.uri, sys._getframe(1))

    def __repr__(self) -> str:
        return f"<Resource {self.uri!r} of {self.server}>"


class Resources:
    """The resources of a server: ``await github.resources.list()`` and ``await github.resources.read(uri)``."""

    def __init__(self, server: str) -> None:
        self._server = server

    def list(self) -> Call:
        """Lists the server's resources."""
        return Call(f"{self._server}.resources.list", "resources", (self._server,), sys._getframe(1))

    def read(self, uri: str) -> Call:
        """Reads a resource: text, or a `File`; a list if it has several contents."""
        return _read(self._server, str(uri), sys._getframe(1))

    def __repr__(self) -> str:
        return f"<resources of {self._server}>"


def _read(server: str, uri: str, frame: FrameType) -> Call:
    return Call(f"{server}.resources.read", "read", (server, uri, _line(frame)), frame)


def _value(server: str, reply: Any) -> Any:
    if isinstance(reply, list):  # Resources.
        return [Resource(server, link) for link in reply]
    if "one" in reply:
        return _part(server, reply["one"])
    return [_part(server, part) for part in reply["many"]]


def _part(server: str, part: dict[str, Any]) -> Any:
    if "value" in part:
        return part["value"]
    if "file" in part:
        return File(part["file"], part["mime"])
    return Resource(server, part["link"])


def _line(frame: FrameType) -> str:
    """Returns the line of code that a frame is at, which the user sees when the call needs approval."""
    filename, line = frame.f_code.co_filename, frame.f_lineno
    return f"{filename}:{line}: {linecache.getline(filename, line).strip()[:200]}"


def _plain(value: Any) -> Any:
    """Returns a value that JSON has for one that it does not have, or raises TypeError."""
    for method in ("model_dump", "isoformat", "__fspath__", "tolist", "_asdict"):
        if hasattr(type(value), method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset, Mapping)):
        return dict(value) if isinstance(value, Mapping) else list(value)
    if isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes: encode them as text first, for example with base64")
    if type(value) is Call:
        value._not_awaited()
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if type(value).__module__ in ("decimal", "uuid", "fractions"):
        return str(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not a type of JSON")


_encode = JSONEncoder(allow_nan=False, default=_plain, separators=(",", ":")).encode


def _to_json(path: str, arguments: dict[str, Any]) -> str:
    try:
        return _encode(arguments)
    except NotAwaitedError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        failure = ToolError(f"the arguments of {path} cannot be sent: {error}")
    raise failure


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
        function = _function(server, _ask("function", server, name))
        self.__dict__[name] = function
        return function

    def __dir__(self) -> list[str]:
        return ["resources", *_ask("names", self.__name__.partition(".")[2])]


def _function(server: str, description: dict[str, Any]) -> Callable[..., Call]:
    """Returns the function of a tool."""
    name, renamed = description["name"], dict(description["renamed"])
    path = f"{server}.{name}"

    def function(*args: Any, **arguments: Any) -> Call:
        if args:
            raise TypeError(f"{path}() takes keyword arguments only: {name}{signature}")
        if renamed:
            arguments = {renamed.get(given, given): value for given, value in arguments.items()}
        frame = sys._getframe(1)
        return Call(path, "call", (server, name, _to_json(path, arguments), _line(frame), False), frame)

    signature = exchange._signature(description)
    function.__name__ = function.__qualname__ = name
    function.__module__ = f"tools.{server}"
    function.__doc__ = description["doc"]
    function.__signature__ = signature  # type: ignore[attr-defined]
    return inspect.markcoroutinefunction(function)


def _ask(operation: str, *arguments: Any) -> Any:
    """Returns the host's reply to an operation that is not a call of a tool."""
    return exchange._result(exchange._start(dumps(f"tools:{operation}"), arguments, {}, wait=True))


class _Text(str):
    """A text that can be awaited, since other functions of `tools` have to be."""

    def __await__(self) -> Generator[Any, Any, str]:
        return str(self)
        yield


def call(server: str, tool: str, arguments: Mapping[str, Any] | None = None) -> Call:
    """Calls a tool by the names that the server has for it and for its parameters."""
    path, frame = f"{server}.{tool}", sys._getframe(1)
    text = _to_json(path, dict(arguments or {}))
    return Call(path, "call", (str(server), str(tool), text, _line(frame), True), frame)


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
        if not name.startswith("_"):
            for known, title in _ask("servers"):
                if known == name:
                    server = sys.modules[f"tools.{name}"] = self.__dict__[name] = Server(name, title)
                    return server
        raise AttributeError(f"there is no server {name!r}; the servers are {', '.join(servers())}", name=name)

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
    {each.__name__: each for each in (*_EXCEPTIONS, Call, File, Resource, call, search, describe, servers)},
    __path__=[],
)


def install() -> None:
    """Makes the module importable: the host has servers."""
    if sys.modules.get("tools") is not _module:
        sys.modules["tools"] = _module
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)  # type: ignore[arg-type]

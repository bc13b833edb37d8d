"""The options of sandboxes, and the requests of runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _native
from ._encoding import encode
from ._errors import ArgumentError, ArgumentTypeError, from_native

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from ._limits import Limits
    from ._tools import Tool

    Tools: TypeAlias = Iterable[Tool | Callable[..., Any]]

BUNDLE = os.path.join(os.path.dirname(__file__), "_bundle")
"""The compiled CPython, the standard library and the images, as pip has installed them."""

_LIMITS = ("timeout", "cpu", "memory", "output", "disk", "files", "value", "calls")


class Options:
    """The options of a sandbox, checked."""

    def __init__(
        self, runtime: _native.Runtime | _native.RemoteRuntime, tools: dict[str, Tool], max_calls: int | None
    ) -> None:
        self.runtime = runtime
        self.tools = tools
        self.max_calls = max_calls

    @classmethod
    def local(
        cls,
        packages: Iterable[str],
        limits: Limits | None,
        tools: Tools,
        install: bool,
        index_url: str | None,
        find_links: Iterable[str | os.PathLike[str]],
        offline: bool,
        cache: str | os.PathLike[str] | None,
        network: object,
    ) -> Options:
        """Returns the options of a sandbox in this process."""
        if network not in (None, False):
            raise ArgumentError("network: code has no access to a network in this version; pass tools instead")
        checked = dict(_checked_limits(limits))
        max_calls: int | None = checked.pop("calls", None)
        settings = {
            "bundle": str(BUNDLE) if os.path.isdir(BUNDLE) else None,
            "cache": os.fspath(cache) if cache is not None else os.environ.get("BELLJAR_CACHE") or None,
            "offline": bool(offline) or bool(os.environ.get("BELLJAR_OFFLINE")),
            "packages": texts(packages, "packages"),
            "install": bool(install),
            "index_url": index_url,
            "find_links": [os.fspath(each) for each in find_links],
            "limits": checked,
        }
        collected: dict[str, Tool] = {}
        if tools:
            from ._tools import collect

            collected = collect(tools)
        try:
            return cls(_native.Runtime(json.dumps(settings)), collected, max_calls)
        except _native.NativeError as error:
            raise from_native(error) from None

    @classmethod
    def remote(cls, runtime: _native.RemoteRuntime) -> Options:
        """Returns the options of a sandbox on a server."""
        return cls(runtime, {}, None)

    @property
    def remote_runtime(self) -> _native.RemoteRuntime | None:
        """The connection, if the sandbox is on a server."""
        return self.runtime if isinstance(self.runtime, _native.RemoteRuntime) else None


def _checked_limits(limits: object) -> Mapping[str, Any]:
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        raise ArgumentTypeError(f"limits: a dictionary is needed, not {type(limits).__name__}")
    for name, value in limits.items():
        if name not in _LIMITS:
            known = ", ".join(_LIMITS)
            raise ArgumentError(f"limits: unknown limit {name!r}; the limits are {known}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_size = name in ("memory", "output", "disk", "value")
        if not (number or (is_size and isinstance(value, str))) or (name not in ("timeout", "cpu") and value == 0):
            raise ArgumentTypeError(f"limits[{name!r}]: {value!r} is not a {'size' if is_size else 'number'}")
        if number and (value < 0 or (isinstance(value, float) and name not in ("timeout", "cpu"))):
            raise ArgumentError(f"limits[{name!r}]: {value!r} is not a positive {'size' if is_size else 'number'}")
    return limits


def texts(values: Iterable[str], argument: str) -> list[str]:
    """Returns a list of texts."""
    if isinstance(values, str):
        raise ArgumentTypeError(f"{argument}: pass a list of texts, not one text")
    values = list(values)
    for value in values:
        if not isinstance(value, str):
            raise ArgumentTypeError(f"{argument}: {value!r} is not a text")
    return values


def request(
    code: str,
    variables: Mapping[str, Any] | None,
    timeout: float | None,
    packages: Iterable[str],
    tools: dict[str, Tool],
) -> tuple[str, list[bytes], set[str]]:
    """Returns a request for the extension module, its buffers, and the packages that the variables need."""
    if not isinstance(code, str):
        raise ArgumentTypeError(f"code: a text is needed, not {type(code).__name__}")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout <= 0):
        raise ArgumentError(f"timeout: {timeout!r} is not a positive number of seconds")
    names = texts(packages, "packages")
    needed: set[str] = set()
    text = "null"
    buffers: list[bytes] = []
    if variables:
        text, buffers, needed = _variables(variables)
        names.extend(sorted(needed.difference(names)))
    functions = [tool.describe() for tool in tools.values()] if tools else []
    head = json.dumps({"code": code, "timeout": timeout, "packages": names, "functions": functions})
    return f'{head[:-1]},"variables":{text}}}', buffers, needed


def _variables(variables: Mapping[str, Any]) -> tuple[str, list[bytes], set[str]]:
    if not isinstance(variables, Mapping):
        raise ArgumentTypeError(f"globals: a dictionary is needed, not {type(variables).__name__}")
    for name in variables:
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"globals: {name!r} is not the name of a variable")
    try:
        whole, buffers = encode(dict(variables))
    except (TypeError, ValueError, RecursionError):
        for name, value in variables.items():
            try:
                encode(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise ArgumentTypeError(f"globals[{name!r}]: {error}") from None
        raise
    needed = {"numpy"} if '"$array":' in whole or '"$scalar":' in whole or '"$objects":' in whole else set()
    if '"$frame":' in whole or '"$series":' in whole or '"$timestamp":' in whole or '"$missing":' in whole:
        needed.add("pandas")
    return whole, buffers, needed


"""The options of sandboxes, and the requests of runs."""

from __future__ import annotations

import json
import keyword
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._arguments import check_seconds, check_text, path, paths, texts
from ._encoding import encode
from ._errors import ArgumentError, ArgumentTypeError, from_native

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from ._limits import Limits
    from ._mcp import Approve, McpServer
    from ._tools import Tool

    Tools: TypeAlias = Iterable[Tool | McpServer | Callable[..., Any]]
    Network: TypeAlias = Mapping[str, Any] | Iterable[str]
    Files: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

BUNDLE = os.path.join(os.path.dirname(__file__), "_bundle")
"""The compiled CPython, the standard library and the images, as pip has installed them."""

_LIMITS = ("timeout", "cpu", "memory", "output", "disk", "files", "value", "calls")
_TOOL_LIMITS = ("tool_calls", "tool_concurrency", "tool_timeout", "tool_wait", "tool_result", "tool_results")
_NET_LIMITS = ("net_connections", "net_bytes", "net_idle", "net_lifetime", "net_time", "net_lookups")
_SECONDS = ("timeout", "cpu", "tool_timeout", "tool_wait", "net_idle", "net_lifetime", "net_time")
_SIZES = ("memory", "output", "disk", "value", "tool_result", "tool_results", "net_bytes")


class Options:
    """The options of a sandbox, checked."""

    def __init__(
        self, runtime: _native.Runtime | _native.RemoteRuntime, tools: dict[str, Tool], max_calls: int | None
    ) -> None:
        self.runtime = runtime
        self.tools = tools
        self.max_calls = max_calls
        self.approve: Approve | None = None
        self.has_servers = False
        self.pauses_for_approval = False
        """True if runs pause for calls of MCP servers' tools that need approval."""

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
        network: Network | None,
        secrets: Mapping[str, str] | None,
        servers: Files,
        approve: Approve | Literal["pause"] | None,
        approval: str,
        allow_tools: Iterable[str],
        deny_tools: Iterable[str],
    ) -> Options:
        """Returns the options of a sandbox in this process."""
        checked = dict(_checked_limits(limits))
        tool_limits = {name: checked.pop(name) for name in _TOOL_LIMITS if name in checked}
        net_limits = {name.removeprefix("net_"): checked.pop(name) for name in _NET_LIMITS if name in checked}
        max_calls: int | None = checked.pop("calls", None)
        check_text(index_url, "index_url")
        settings = {
            "bundle": str(BUNDLE) if os.path.isdir(BUNDLE) else None,
            "cache": path(cache, "cache") if cache is not None else os.environ.get("BELLJAR_CACHE") or None,
            "offline": bool(offline) or bool(os.environ.get("BELLJAR_OFFLINE")),
            "packages": texts(packages, "packages"),
            "install": bool(install),
            "index_url": index_url,
            "find_links": paths(find_links, "find_links"),
            "limits": checked,
            "network": _network(network, secrets, net_limits),
        }
        collected: dict[str, Tool] = {}
        mcp_servers: list[McpServer] = []
        if tools:
            from ._tools import collect

            collected, mcp_servers = collect(tools)
        if approve is not None and approve != "pause" and not callable(approve):
            raise ArgumentTypeError(f"approve: {approve!r} is neither a function nor 'pause'")
        tool_settings = None
        allow, deny = texts(allow_tools, "allow_tools"), texts(deny_tools, "deny_tools")
        if mcp_servers or servers or approval != "writes":
            from ._mcp import settings as settings_of_tools

            tool_settings = settings_of_tools(mcp_servers, servers, allow, deny, approval, tool_limits)
        for argument, patterns in (("allow_tools", allow), ("deny_tools", deny)):
            if patterns and tool_settings is None:
                raise ArgumentError(
                    f"{argument}: the patterns are those of tools of MCP servers, and the sandbox has no servers; \
code can call all functions in tools"
                )
        try:
            options = cls(_native.Runtime(json.dumps(settings), tool_settings), collected, max_calls)
        except _native.NativeError as error:
            raise from_native(error) from None
        options.has_servers = tool_settings is not None
        if options.has_servers and approve == "pause":
            options.pauses_for_approval = True
        elif options.has_servers and callable(approve):
            options.approve = approve
        return options

    @classmethod
    def remote(cls, runtime: _native.RemoteRuntime) -> Options:
        """Returns the options of a sandbox on a server."""
        return cls(runtime, {}, None)

    @property
    def remote_runtime(self) -> _native.RemoteRuntime | None:
        """The connection, if the sandbox is on a server."""
        return self.runtime if isinstance(self.runtime, _native.RemoteRuntime) else None

    @property
    def connected_runtime(self) -> _native.Runtime | _native.RemoteRuntime | None:
        """The runtime, if it has connections that are closed with the sandbox."""
        return self.runtime if self.has_servers else self.remote_runtime

    @property
    def stubs_runtime(self) -> _native.Runtime | None:
        """The runtime, if it is in this process and has MCP servers."""
        return self.runtime if self.has_servers and isinstance(self.runtime, _native.Runtime) else None


def _network_policy(network: Network) -> dict[str, Any]:
    if isinstance(network, str) or not isinstance(network, (Mapping, Iterable)):
        raise ArgumentTypeError(f"network: {network!r} is neither a policy nor a list of hosts")
    policy = dict(network) if isinstance(network, Mapping) else {"allow": texts(network, "network")}
    try:
        json.dumps({name: value for name, value in policy.items() if name != "ca"})
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"network: {error}") from None
    return policy


def narrowing_policy(network: Network) -> dict[str, Any]:
    """Returns the policy with which a run or a session narrows the network of its sandbox."""
    policy = _network_policy(network)
    if "ca" in policy:
        raise ArgumentError("network['ca']: only a sandbox has certificate authorities")
    return policy


def _network(
    network: Network | None, secrets: Mapping[str, str] | None, limits: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns the settings of the network, None if code may not use it."""
    if network is None and not secrets:
        return None
    policy = _network_policy(network or ())
    authorities: Any = policy.pop("ca", None)
    if authorities is not None:
        try:
            with open(authorities, encoding="ascii") as file:
                authorities = file.read()
        except (OSError, UnicodeError, TypeError) as error:
            raise ArgumentError(f"network['ca']: {error}") from None
    listed = []
    for target, value in (secrets or {}).items():
        name, separator, hosts = target.partition("@") if isinstance(target, str) else ("", "", "")
        if not separator:
            raise ArgumentError(f"secrets: {target!r} is not of the form 'NAME@HOST' or 'NAME@HOST,HOST'")
        if not isinstance(value, str):
            raise ArgumentTypeError(f"secrets[{target!r}]: the value is not a text")
        listed.append((name, [host.strip() for host in hosts.split(",")], value))
    return {"policy": policy, "secrets": listed, "authorities": authorities, "limits": limits}


def _checked_limits(limits: object) -> Mapping[str, Any]:
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        raise ArgumentTypeError(f"limits: a dictionary is needed, not {type(limits).__name__}")
    for name, value in limits.items():
        known = (*_LIMITS, *_TOOL_LIMITS, *_NET_LIMITS)
        if name not in known:
            raise ArgumentError(f"limits: unknown limit {name!r}; the limits are {', '.join(known)}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_size = name in _SIZES
        if not (number or (is_size and isinstance(value, str))) or (name not in _SECONDS and value == 0):
            raise ArgumentTypeError(f"limits[{name!r}]: {value!r} is not a {'size' if is_size else 'number'}")
        if number and (value < 0 or not math.isfinite(value) or (isinstance(value, float) and name not in _SECONDS)):
            raise ArgumentError(f"limits[{name!r}]: {value!r} is not a positive {'size' if is_size else 'number'}")
    return limits


def request(
    code: str,
    variables: Mapping[str, Any] | None,
    timeout: float | None,
    packages: Iterable[str],
    options: Options | None = None,
    network: Network | None = None,
) -> tuple[str, list[bytes], set[str]]:
    """Returns a request for the extension module, its buffers, and the packages that the variables need."""
    if not isinstance(code, str):
        raise ArgumentTypeError(f"code: a text is needed, not {type(code).__name__}")
    if timeout is not None:
        check_seconds(timeout, "timeout")
    names = texts(packages, "packages")
    needed: set[str] = set()
    text = "null"
    buffers: list[bytes] = []
    if variables:
        text, buffers, needed = _variables(variables)
        names.extend(sorted(needed.difference(names)))
    tools = options.tools if options is not None else {}
    functions = [tool.describe() for tool in tools.values()] if tools else []
    head_fields: dict[str, Any] = {"code": code, "timeout": timeout, "packages": names, "functions": functions}
    if deferred := [tool.name for tool in tools.values() if tool.deferred]:
        head_fields["deferred"] = deferred
    if options is not None and options.pauses_for_approval:
        head_fields["pauses_for_approval"] = True
    if network is not None:
        head_fields["network"] = narrowing_policy(network)
    head = json.dumps(head_fields)
    return f'{head[:-1]},"variables":{text}}}', buffers, needed


def _variables(variables: Mapping[str, Any]) -> tuple[str, list[bytes], set[str]]:
    if not isinstance(variables, Mapping):
        raise ArgumentTypeError(f"globals: a dictionary is needed, not {type(variables).__name__}")
    for name in variables:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
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

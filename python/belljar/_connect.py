"""Sandboxes on a Belljar server: the same surface as in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _native
from ._arguments import check_seconds, check_text, texts_by_name
from ._errors import ArgumentTypeError, UnsupportedError, from_native
from ._options import Options
from ._sandbox import Sandbox

if TYPE_CHECKING:
    from ._asyncio import AsyncSandbox
    from ._tools import Tool

_READ_TIMEOUT = 3600.0


def connect(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 10,
    read_timeout: float = _READ_TIMEOUT,
    tools: Iterable[Tool | Callable[..., Any]] = (),
) -> Sandbox:
    """Connects to a Belljar server that `belljar streamable-http --toolset all` has started.

    The result is a `Sandbox` whose code runs on the server, with the limits and packages of the server. `Sandbox.load`
    and `Session.dump` raise `UnsupportedError`, whose message names what to use instead.

    Args:
        url: The address, such as ``https://belljar.example.org/mcp``.
        token: The token of the server, which is sent as ``Authorization: Bearer``.
        headers: Further headers of HTTP.
        timeout: The seconds within which the server must accept the connection.
        read_timeout: The seconds that a call waits for a server that sends nothing.
        tools: Not supported: MCP has no request with which a server calls functions of its client. Serve them as an
            MCP server instead, which the option ``--servers`` of the Belljar server names.
    """
    sandbox = Sandbox._with_options(_options(url, token, headers, timeout, read_timeout, tools))
    sandbox.prepare()
    return sandbox


def connect_async(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 10,
    read_timeout: float = _READ_TIMEOUT,
    tools: Iterable[Tool | Callable[..., Any]] = (),
) -> AsyncSandbox:
    """Returns an `AsyncSandbox` on a Belljar server. ``async with``, or the first call, connects to it.

    The arguments are those of `connect`.
    """
    from ._asyncio import AsyncSandbox

    return AsyncSandbox._with_options(_options(url, token, headers, timeout, read_timeout, tools))


def _options(
    url: str,
    token: str | None,
    headers: Mapping[str, str] | None,
    timeout: float,
    read_timeout: float,
    tools: Iterable[Tool | Callable[..., Any]],
) -> Options:
    if not isinstance(url, str):
        raise ArgumentTypeError(f"url: a text is needed, not {type(url).__name__}")
    if given := list(tools):
        raise UnsupportedError(_refusal(given))
    check_seconds(timeout, "timeout")
    check_seconds(read_timeout, "read_timeout")
    check_text(token, "token")
    settings = {
        "url": url,
        "token": token,
        "headers": texts_by_name(headers, "headers"),
        "timeout": timeout,
        "read_timeout": read_timeout,
    }
    try:
        return Options.remote(_native.RemoteRuntime(json.dumps(settings)))
    except _native.NativeError as error:
        raise from_native(error) from None


def _refusal(tools: list[Any]) -> str:
    """Returns the reason why tools cannot be passed to a server, with the remedy."""
    from ._mcp import McpServer

    if all(isinstance(tool, McpServer) for tool in tools):
        return (
            "tools: a server connects only to the MCP servers of its own options --servers and --server NAME=TARGET; a \
Sandbox in this process does to others"
        )
    return (
        "tools: MCP has no request with which a server calls functions of its client. Serve them as an MCP server, and \
start the Belljar server with --server NAME=TARGET: its code calls them after `from tools import NAME`. A Sandbox in \
this process calls functions directly"
    )

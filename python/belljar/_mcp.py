"""Tools of MCP servers for sandboxed code: servers, the policy for their tools, and the approval of calls."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Union

from ._arguments import check_seconds, check_text, texts_by_name
from ._errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

Answer = Literal["once", "run", "session", "no"]
"""``once`` allows the call, ``run`` and ``session`` also later calls of the tool, and ``no`` denies it."""
ApprovalMode = Literal["none", "destructive", "writes", "all"]
"""The calls that need approval: none, those of tools that may destroy data, those that may write, or all."""

LIMITS = ("tool_calls", "tool_concurrency", "tool_timeout", "tool_wait", "tool_result", "tool_results")
"""The limits of calls of tools of MCP servers."""
ANSWERS = ("once", "run", "session", "no")
_MODES = ("none", "destructive", "writes", "all")


@dataclass(frozen=True)
class ApprovalRequest:
    """A call of an MCP server's tool that needs approval."""

    server: str
    """The server's name."""
    tool: str
    """The tool's name, as the server has it."""
    arguments: dict[str, Any]
    """The arguments."""
    line: str
    """The line of code that makes the call, as the code itself reports it. It is untrusted, and may be empty."""
    has_changed: bool
    """True if the tool was approved before and has changed since."""


Approve: TypeAlias = "Callable[[ApprovalRequest], Union[Answer, bool, Awaitable[Union[Answer, bool]]]]"


class McpServer:
    """An MCP server whose tools sandboxed code can call: ``from tools import NAME``.

    The server is connected when code first needs it. Its command, address, environment and credentials never enter the
    sandbox.
    """

    def __init__(
        self,
        target: str | Sequence[str],
        *,
        name: str,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Describes a server.

        Args:
            target: A command line, a list of a program and its arguments, or a URL. ``https://…/sse`` uses the
                transport of 2024, and every other URL streamable HTTP.
            name: The name in the code.
            env: Variables for the server's process.
            inherit_env: If true, the process inherits all variables of this one instead of a few.
            cwd: The directory in which the process starts.
            headers: Headers of HTTP.
            token: A token, which is sent as ``Authorization: Bearer``.
            timeout: The seconds within which the server must start.
        """
        if not isinstance(name, str):
            raise ArgumentTypeError(f"name: a text is needed, not {type(name).__name__}")
        if not name.strip():
            raise ArgumentError("name: the name is empty")
        if timeout is not None:
            check_seconds(timeout, "timeout")
        check_text(token, "token")
        self.name = name
        """The name in the code."""
        self.is_remote = isinstance(target, str) and target.lower().startswith(("http://", "https://"))
        """True if the server has a URL."""
        http, process = {"headers": headers, "token": token}, {"env": env, "inherit_env": inherit_env, "cwd": cwd}
        for option, value in (process if self.is_remote else http).items():
            if value:
                kind, other = ("URL", "command") if self.is_remote else ("command", "URL")
                raise ArgumentError(f"{option}: a server with a {kind} has no such option, one with a {other} has")
        self._settings: dict[str, Any] = {"name": name, "timeout": timeout}
        if self.is_remote:
            self._settings.update(url=target, headers=texts_by_name(headers, "headers"), token=token)
        else:
            directory = os.fspath(cwd) if cwd is not None else None
            env = texts_by_name(env, "env")
            self._settings.update(command=_command(target), env=env, inherit_env=bool(inherit_env), cwd=directory)

    def __repr__(self) -> str:
        # Neither the target, which may contain secrets, nor variables and headers.
        return f"McpServer(name={self.name!r})"


def _command(target: object) -> list[str]:
    if isinstance(target, str):
        try:
            command = shlex.split(target)
        except ValueError as error:
            raise ArgumentError(f"target: the command line cannot be split: {error}") from None
    elif isinstance(target, Sequence) and all(isinstance(each, (str, os.PathLike)) for each in target):
        command = [os.fspath(each) for each in target]
    else:
        raise ArgumentTypeError(f"target: a text or a list of texts is needed, not {type(target).__name__}")
    if not command or not command[0]:
        raise ArgumentError("target: the command is empty")
    return command


def settings(
    servers: list[McpServer],
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    allow: list[str],
    deny: list[str],
    approval: str,
    limits: Mapping[str, Any],
) -> str | None:
    """Returns the settings for the extension module; None without servers."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    paths = []
    for file in files:
        if not isinstance(file, (str, os.PathLike)):
            raise ArgumentTypeError(f"servers: {file!r} is not the path of a file")
        paths.append(os.fspath(file))
    if approval not in _MODES:
        raise ArgumentError(f"approval: {approval!r} is not one of {', '.join(_MODES)}")
    if not servers and not paths:
        return None
    described = [server._settings for server in servers]
    return json.dumps(
        {
            "servers": described,
            "files": paths,
            "allow": allow,
            "deny": deny,
            "approval": approval,
            "limits": dict(limits),
        }
    )


def answer_of(answer: object) -> Answer:
    """Returns the answer of a function that approves calls. True allows the call, and False denies it."""
    if answer is True:
        return "once"
    if answer is False:
        return "no"
    if answer not in ANSWERS:
        raise ArgumentError(f"approve: the function returned {answer!r}; the answers are {', '.join(ANSWERS)}")
    return answer  # type: ignore[return-value]

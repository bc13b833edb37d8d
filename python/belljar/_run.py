"""Results of code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from . import _values
from ._errors import (
    CancelledRunError,
    CodeError,
    CrashError,
    ExitError,
    InstallError,
    LimitError,
    RunFailedError,
    SandboxError,
)

if TYPE_CHECKING:
    from ._calls import Write
    from ._paused import Paused

CallStatus = Literal["ok", "error", "denied", "timeout", "unavailable", "limit", "cancelled"]
Status = Literal["success", "error", "exit", "limit", "cancelled", "crash", "install-error", "paused"]


@dataclass(frozen=True)
class ErrorInfo:
    """The reason why code did not succeed."""

    name: str
    """The name of the exception's class, such as ``ZeroDivisionError``, or of the limit."""
    message: str
    """The exception's text."""
    traceback: str
    """The traceback as Python prints it, or an empty text."""

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


@dataclass(frozen=True)
class Image:
    """An image that code displayed."""

    mime_type: str
    """``image/png``, ``image/jpeg`` or ``image/svg+xml``."""
    data: bytes
    """The contents of the image's file."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        # Jupyter encodes bytes itself, and SVG is text.
        return {self.mime_type: self.data.decode() if self.mime_type == "image/svg+xml" else self.data}


@dataclass(frozen=True)
class FileInfo:
    """A file of a session."""

    path: str
    """The path from the session's directory."""
    size: int
    """The size in bytes."""


@dataclass(frozen=True)
class Stats:
    """The time and memory that code took."""

    start: float
    """Seconds for starting the interpreter."""
    run: float
    """Seconds for running the code."""
    peak_memory: int
    """The most bytes of the interpreter's memory; 0 if that was not measured."""


@dataclass
class Call:
    """A call by code: of a function of the host, or of a tool of an MCP server."""

    name: str
    """The function's name, or that of the tool."""
    args: tuple[Any, ...]
    """The positional arguments."""
    kwargs: dict[str, Any]
    """The keyword arguments."""
    result: Any = None
    """The value that the function returned, or the answer. Results of tools of MCP servers are not recorded."""
    error: ErrorInfo | None = None
    """The exception that the code received: that of the function, or one of the module ``tools``."""
    seconds: float | None = None
    """The time until the function returned; None if it had not when the code ended."""
    server: str | None = None
    """The name of the MCP server, in the code; None for a function of the host."""
    status: CallStatus | None = None
    """How the call of an MCP server's tool ended; None for a function of the host."""
    result_bytes: int | None = None
    """The size of the result of an MCP server's tool."""
    began: float = field(default=0.0, repr=False, compare=False)
    """The time at which the call began, of `time.perf_counter`; 0 on a server."""
    id: int | None = None
    """The key of the answer in `Run.resume`, for a call that waits for one. It is unique in its run."""


@dataclass(frozen=True)
class Connection:
    """A connection of code to a host, or one of its HTTP requests."""

    host: str
    """The name that the code connected to, or the address if it used one."""
    port: int | None = None
    """The port; None if the code only looked the name up."""
    method: str | None = None
    """The method of an HTTP request."""
    path: str | None = None
    """The path of an HTTP request with its query, without secrets."""
    status: int | None = None
    """The status of the response to an HTTP request."""
    bytes_sent: int = 0
    """The bytes that were sent, without those of TLS."""
    bytes_received: int = 0
    """The bytes that were received, without those of TLS."""
    duration_ms: int = 0
    """The milliseconds from its beginning to its end."""
    allowed: bool = False
    """False if the policy refused it."""
    rule: str | None = None
    """The entry of the policy that allowed it."""
    error: str | None = None
    """The reason of a refusal or failure."""


@dataclass
class Run:
    """The result of a piece of code."""

    status: Status
    """How the code ended."""
    error: ErrorInfo | None = None
    """The reason why the code did not succeed."""
    pieces: Sequence[tuple[bool, str]] = ()
    """The output in order, each piece with whether it was written to standard output."""
    images: list[Image] = field(default_factory=list)
    """The images that the code displayed."""
    displays: list[dict[str, Any]] = field(default_factory=list)
    """All that a cell of a session displayed, including its value, by MIME type."""
    calls: list[Call] = field(default_factory=list)
    """The calls of functions of the host and of tools of MCP servers, in the order in which they began."""
    connections: list[Connection] = field(default_factory=list)
    """The connections and HTTP requests of the code, in the order in which they ended."""
    stats: Stats = Stats(0.0, 0.0, 0)
    """The time and memory that the code took."""
    packages: list[str] = field(default_factory=list)
    """The names of the packages that the code or its caller asked for."""
    exit_code: int | None = None
    """The exit status, if the code ended its interpreter."""
    limit: str | None = None
    """The limit that was reached: ``time``, ``cpu``, ``wait``, ``output``, ``stack`` or ``memory``."""
    hint: str | None = None
    """The remedy for an error, if that is known."""
    text: str | None = None
    """The value of a cell of a session, as IPython shows it."""
    pending: tuple[Call, ...] = ()
    """The calls that a run with the status ``paused`` waits for."""
    encoded: tuple[str, Sequence[Any] | None] | None = field(default=None, repr=False)
    """The value and its buffers, before they are read. Without buffers, the value is JSON."""
    paused: Paused | None = field(default=None, repr=False, compare=False)
    """The state from which a run with the status ``paused`` goes on."""

    @property
    def value(self) -> Any:
        """The value of the code's last line, if that is an expression. None otherwise."""
        if not hasattr(self, "_value"):
            self._value = None
            if self.encoded is not None:
                text, buffers = self.encoded
                try:
                    self._value = json.loads(text) if buffers is None else _values.decode(text, buffers)
                except ValueError as error:
                    del self._value
                    raise SandboxError(f"the value that the code returned cannot be read: {error}") from None
        return self._value

    @property
    def output(self) -> str:
        """The text that the code wrote, to both streams, in order."""
        return "".join(text for _, text in self.pieces)

    @property
    def stdout(self) -> str:
        """The text that the code wrote to standard output."""
        return "".join(text for is_stdout, text in self.pieces if is_stdout)

    @property
    def stderr(self) -> str:
        """The text that the code wrote to standard error."""
        return "".join(text for is_stdout, text in self.pieces if not is_stdout)

    @property
    def ok(self) -> bool:
        """True if the code succeeded."""
        return self.status == "success" or (self.status == "exit" and self.exit_code == 0)

    def check(self) -> Run:
        """Returns this run if its code succeeded, and else raises a `RunFailedError` with the reason."""
        if self.ok:
            return self
        kind = _FAILURES.get(self.status, RunFailedError)
        message = str(self.error) if self.error else self.status
        raise kind(message if self.hint is None else f"{message} (hint: {self.hint})", self)

    def resume(
        self, answers: Mapping[int, Any], *, on_stdout: Write | None = None, on_stderr: Write | None = None
    ) -> Run:
        """Continues a run with the status ``paused``, and returns it when it ends or pauses again. Can be called once.

        Args:
            answers: The results of the calls in `pending`, by their ids. An exception is raised in the code. For calls
                of MCP servers' tools, the answers of `approve`. Calls without an answer go on waiting. Timers of the
                code that are due fire, also without any answer.
            on_stdout: The same as for `Sandbox.run`.
            on_stderr: The same as for `Sandbox.run`.
        """
        run: Run = self._take_paused().resume(self, answers, on_stdout, on_stderr)
        return run

    def dump(self) -> bytes:
        """Returns a run with the status ``paused`` as bytes, with which `Sandbox.load` continues it, also in another
        process and more than once. The run itself can be resumed, too. For a cell, these are the bytes of its session.
        """
        dump: bytes = self._take_paused().dump()
        return dump

    def _take_paused(self) -> Any:
        if self.paused is None:
            raise SandboxError(f"the run is not paused: its status is {self.status!r}")
        return self.paused


_FAILURES: dict[str, type[RunFailedError]] = {
    "error": CodeError,
    "exit": ExitError,
    "limit": LimitError,
    "cancelled": CancelledRunError,
    "crash": CrashError,
    "install-error": InstallError,
}


_TOOL_ERRORS = {
    "error": "ToolError",
    "denied": "ToolDenied",
    "timeout": "ToolTimeout",
    "unavailable": "ToolUnavailable",
    "limit": "ToolLimitExceeded",
    "interrupted": "ToolInterrupted",
}


def _with_tool_calls(calls: list[Call], tool_calls: Sequence[tuple[Any, ...]]) -> list[Call]:
    """Returns calls in the order in which they began, with those of tools of MCP servers."""
    merged = list(calls)
    for began, server, tool, arguments, status, seconds, size, message in tool_calls:
        try:
            kwargs = json.loads(arguments)
        except ValueError:
            kwargs = {}
        if not isinstance(kwargs, dict):
            kwargs = {}
        error = None if message is None else ErrorInfo(_TOOL_ERRORS.get(status, "ToolException"), message, "")
        merged.append(Call(tool, (), kwargs, None, error, seconds, server, status, size, began))
    merged.sort(key=lambda call: call.began)
    return merged


def from_native(result: dict[str, Any], calls: list[Call], kind: type[Run] = Run) -> Run:
    """Returns the run that the extension module describes."""
    error = result.get("error")
    if (tool_calls := result.get("tool_calls")) is not None:
        calls = _with_tool_calls(calls, tool_calls)
    encoded = result.get("value")
    return kind(
        status=result["status"],
        error=ErrorInfo(*error) if error is not None else None,
        pieces=result["output"],
        images=[Image(mime_type, data) for mime_type, data in result["images"]],
        displays=[json.loads(bundle) for bundle in result.get("displays", ())],
        calls=calls,
        connections=[Connection(**each) for each in json.loads(result.get("connections", "[]"))],
        stats=Stats(*result["stats"]),
        packages=result["packages"],
        exit_code=result.get("exit_code"),
        limit=result.get("limit"),
        hint=result.get("hint"),
        text=result.get("text"),
        encoded=(encoded, result["buffers"] if result["is_encoded"] else None) if encoded is not None else None,
    )

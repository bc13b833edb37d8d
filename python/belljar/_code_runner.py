"""Code that a model's API asks a host to run, and whose calls of tools go back to the caller of that API.

The steps are those of `_steps`, with the methods of a session.
"""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ._base import BaseSession
from ._code_tool import why_not_code
from ._errors import ArgumentError, ArgumentTypeError, DumpError, ServerError
from ._integration_sandbox import session_with_tools
from ._run import Call, Run
from ._schema_tools import SchemaTool
from ._steps import Steps

MAX_CALLS = 100
"""The calls of tools by one piece of code, unless the caller sets another number."""
MAX_ARGUMENTS = 1_000_000
"""The characters of the arguments of one call, as JSON."""

MAX_FILES = 100
"""The files of one piece of code that are read."""
MAX_FILE_BYTES = 32 * 1024 * 1024
"""The size of a file that is read."""

_HEAD_SIZE = 4
"""The bytes of a dump that are the size of its state."""


class ToolError(Exception):
    """The error of a tool, as the code receives it."""


@dataclass(frozen=True)
class Request:
    """A piece of code to run."""

    id: str
    """The identifier of the model's call."""
    code: object
    """The code as the model has written it, a text unless the model is wrong."""
    item: Any
    """The block or item of the API."""


@dataclass(frozen=True)
class Finished:
    """A piece of code that has ended."""

    request: Request
    run: Run | None = None
    """The result; None if the code was not run."""
    invalid: str | None = None
    """The reason why the model's request cannot be run."""
    unavailable: str | None = None
    """The reason why the server of the sandbox did not run the code."""
    files: tuple[tuple[str, bytes], ...] = ()
    """The first `MAX_FILES` files that are new or have another size than before, without larger ones."""


@dataclass(frozen=True)
class PendingCall:
    """A call of a tool that waits for its result."""

    id: str
    """The identifier with which the result arrives."""
    name: str
    """The name of the tool."""
    arguments: dict[str, Any]
    """The arguments, which can be JSON."""
    request: Request
    """The code that makes the call."""


@dataclass
class _Current:
    """The piece of code that runs or waits."""

    request: Request
    sizes: dict[str, int]
    run: Run | None = None
    calls: dict[int, PendingCall] = field(default_factory=dict)
    made: int = 0


class CodeRunner:
    """The session in which pieces of code run one after the other, and the calls that wait."""

    def __init__(
        self,
        session: BaseSession,
        tools: Mapping[str, SchemaTool],
        *,
        timeout: float | None,
        max_calls: int,
        call_prefix: str,
        reads_files: bool,
    ) -> None:
        """Creates a runner of a session's code, which can call ``tools``, by their names in the API."""
        self._session: Any = session_with_tools(session, tools.values())
        self._tools = {tool.name: (name, tool) for name, tool in tools.items()}
        self._timeout = timeout
        self._max_calls = max_calls
        self._call_prefix = call_prefix
        self._reads_files = reads_files
        self._queue: deque[Request] = deque()
        self._current: _Current | None = None
        self._finished: list[Finished] = []

    def take_finished(self) -> list[Finished]:
        """Returns the pieces of code that have ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def pending(self) -> list[PendingCall]:
        """Returns the calls that wait for results."""
        return list(self._current.calls.values()) if self._current is not None else []

    def dump(self) -> Steps[bytes]:
        """Returns the session with the code that waits."""
        current = self._current
        state: dict[str, Any] = {"queue": [_described(each) for each in self._queue], "current": None}
        if current is not None:
            calls = [[number, call.id, call.name, call.arguments] for number, call in current.calls.items()]
            fields = {"calls": calls, "made": current.made, "sizes": current.sizes}
            state["current"] = {"request": _described(current.request), **fields}
        head = json.dumps(state).encode()
        contents: bytes = yield self._session.dump
        return len(head).to_bytes(_HEAD_SIZE, "big") + head + contents

    def restore(self, state: Mapping[str, Any]) -> Steps[None]:
        """Goes on with a session that was loaded, and the state of its dump."""
        try:
            self._queue.extend(Request(**each) for each in state["queue"])
            if (waiting := state["current"]) is None:
                return
            current = _Current(Request(**waiting["request"]), dict(waiting["sizes"]), made=int(waiting["made"]))
            for number, identifier, name, passed in waiting["calls"]:
                current.calls[number] = PendingCall(identifier, name, passed, current.request)
        except (KeyError, TypeError, ValueError) as error:
            raise DumpError(f"the state of the code that waits is not valid: {error}") from None
        current.run = yield self._session.paused
        if current.run is None or {call.id for call in current.run.pending} != set(current.calls):
            raise DumpError("the calls that wait are not those of the session")
        self._current = current

    def begin(self, requests: Iterable[Request]) -> Steps[None]:
        """Runs pieces of code, until all have ended or one waits."""
        if self._current is not None:
            waiting = [call.id for call in self.pending()]
            raise ArgumentError(f"calls of tools wait for their results: {waiting}" if waiting else "code is running")
        self._queue.extend(requests)
        yield from self._guarded(self._work())

    def go_on(self, results: Mapping[str, Any]) -> Steps[None]:
        """Continues the code with results of its calls, by their identifiers. Exceptions are raised in the code."""
        current = self._current
        known = {call.id: number for number, call in current.calls.items()} if current is not None else {}
        if unknown := [each for each in results if each not in known]:
            raise ArgumentError(f"no call waits for a result with the identifier {unknown[0]!r}")
        if not results or current is None or current.run is None:
            raise ArgumentError("there is no result of a call that waits")
        answers = {known[identifier]: result for identifier, result in results.items()}
        yield from self._guarded(self._go_on(current, answers))

    def restart(self) -> Steps[None]:
        """Replaces the session's interpreter by a new one, without the code that waits."""
        self._queue.clear()
        self._current = None
        yield self._session.restart

    def _guarded(self, steps: Steps[None]) -> Steps[None]:
        try:
            yield from steps
        except BaseException:
            # The rest would otherwise run in the next step, whose caller does not expect it.
            self._queue.clear()
            self._current = None
            raise

    def _go_on(self, current: _Current, answers: dict[int, Any]) -> Steps[None]:
        assert current.run is not None
        for number in answers:
            del current.calls[number]
        current.run = yield partial(current.run.resume, answers)
        yield from self._settle(current)
        yield from self._work()

    def _work(self) -> Steps[None]:
        while self._current is None and self._queue:
            request = self._queue.popleft()
            if (reason := why_not_code(request.code)) is not None:
                self._finished.append(Finished(request, invalid=reason))
                continue
            self._current = current = _Current(request, (yield from self._sizes()))
            try:
                current.run = yield partial(self._session.run, request.code, timeout=self._timeout)
            except ServerError as error:
                self._finished.append(Finished(request, unavailable=str(error)))
                self._current = None
                continue
            yield from self._settle(current)

    def _settle(self, current: _Current) -> Steps[None]:
        """Ends a piece of code, or finds the calls for which it waits."""
        while (run := current.run) is not None and run.status == "paused":
            refused = {}
            for call in run.pending:
                if call.id is None or call.id in current.calls:
                    continue
                try:
                    current.calls[call.id] = self._pending_call(current, call)
                except Exception as error:
                    refused[call.id] = error
            if not refused:
                return
            current.run = yield partial(run.resume, refused)
        files = []
        if self._reads_files:
            sizes = yield from self._sizes()
            new = [path for path, size in sizes.items() if current.sizes.get(path) != size and size <= MAX_FILE_BYTES]
            for path in new[:MAX_FILES]:
                files.append((path, (yield partial(self._session.files.read, path))))
        self._finished.append(Finished(current.request, current.run, files=tuple(files)))
        self._current = None

    def _pending_call(self, current: _Current, call: Call) -> PendingCall:
        """Returns a call for the caller of the API, or raises the error that the code receives instead."""
        current.made += 1
        if current.made > self._max_calls:
            raise RuntimeError(f"the code has called tools {self._max_calls} times, its limit")
        name, tool = self._tools[call.name]
        passed = tool.arguments(call.args, call.kwargs)
        try:
            text = json.dumps(passed, allow_nan=False, ensure_ascii=False)
            text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"{tool.name}(): the arguments are not JSON: {error}") from None
        if len(text) > MAX_ARGUMENTS:
            raise ValueError(f"{tool.name}(): the arguments have {len(text):,} characters, at most {MAX_ARGUMENTS:,}")
        return PendingCall(f"{self._call_prefix}{secrets.token_hex(12)}", name, json.loads(text), current.request)

    def _sizes(self) -> Steps[dict[str, int]]:
        if not self._reads_files:
            return {}
        return {file.path: file.size for file in (yield self._session.files.list)}


def _described(request: Request) -> dict[str, Any]:
    """Returns the parts of a request that its result needs, as JSON."""
    code = request.code if isinstance(request.code, str) else None
    item = {name: get(request.item, name) for name in ("type", "container_id")}
    return {"id": request.id, "code": code, "item": item}


def split_dump(dump: bytes) -> tuple[dict[str, Any], bytes]:
    """Returns the state of a runner, and the bytes of its session."""
    if not isinstance(dump, (bytes, bytearray, memoryview)):
        raise ArgumentTypeError(f"dump: bytes are needed, not {type(dump).__name__}")
    dump = bytes(dump)
    end = _HEAD_SIZE + int.from_bytes(dump[:_HEAD_SIZE], "big")
    try:
        state = json.loads(dump[_HEAD_SIZE:end])
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict) or state.keys() != {"queue", "current"}:
        raise DumpError("the bytes are not a session of code that was dumped")
    return state, dump[end:]


def get(item: Any, name: str) -> Any:
    """Returns a field of a block or item, which is a dictionary or a model of the client's package."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)

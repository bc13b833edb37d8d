"""Runs that are paused: they wait for answers to their calls of deferred functions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _values
from ._arguments import check_functions
from ._encoding import encode
from ._errors import ArgumentError, ArgumentTypeError
from ._jobs import begin_job, finish, native_call, wait
from ._mcp import ANSWERS
from ._run import Call, ErrorInfo, Run

if TYPE_CHECKING:
    import asyncio

    from . import _native
    from ._base import BaseSandbox
    from ._calls import Callbacks, Write


class Paused:
    """The state from which a paused run goes on."""

    def __init__(self, sandbox: BaseSandbox[Any], native: _native.PausedCode, callbacks: Callbacks | None) -> None:
        self.sandbox = sandbox
        self.native = native
        self._callbacks = callbacks
        """The receiver of what the code does; None for code of another process."""

    def resume(self, run: Run, answers: Mapping[int, Any], on_stdout: Write | None, on_stderr: Write | None) -> Run:
        """Continues the run, and waits for its end or its next pause."""
        callbacks, arguments = self.begin(run, answers, None, on_stdout, on_stderr)
        return finish(begin_job(callbacks, self.native.resume, *arguments, None), callbacks, self.sandbox)

    def dump(self) -> bytes:
        """Returns the code as bytes."""
        dump: bytes = wait(native_call(self.native.dump, None))
        return dump

    def begin(
        self,
        run: Run,
        answers: Mapping[int, Any],
        loop: asyncio.AbstractEventLoop | None,
        on_stdout: Write | None,
        on_stderr: Write | None,
    ) -> tuple[Callbacks | None, tuple[Any, ...]]:
        """Returns the receiver of what the code does from now on, and the arguments of the extension module."""
        check_functions(on_stdout=on_stdout, on_stderr=on_stderr)
        encoded = _encoded_answers(run, answers)
        if self._callbacks is not None:
            self._callbacks.go_on(loop, on_stdout, on_stderr)
        elif (callbacks := self.sandbox._callbacks(loop, on_stdout, on_stderr)) is not None:
            callbacks.calls.extend(run.calls)
            self._callbacks = callbacks
        now = time.perf_counter()
        for call in run.pending:
            # The outcome of a call of a tool is reported by the tool's server.
            if call.id is not None and call.id in answers and call.server is None:
                answer = answers[call.id]
                call.seconds = now - call.began
                if isinstance(answer, BaseException):
                    call.error = ErrorInfo(type(answer).__name__, str(answer), "")
                else:
                    call.result = answer
        streams = on_stdout is not None or on_stderr is not None
        deferred = [tool.name for tool in self.sandbox._options.tools.values() if tool.deferred]
        return self._callbacks, (encoded, self._callbacks, deferred, streams)


def _encoded_answers(run: Run, answers: Mapping[int, Any]) -> list[tuple[int, Any, Any, str | None]]:
    if not isinstance(answers, Mapping):
        raise ArgumentTypeError(f"answers: a dictionary is needed, not {type(answers).__name__}")
    pending = {call.id: call for call in run.pending}
    encoded: list[tuple[int, Any, Any, str | None]] = []
    for key, answer in answers.items():
        if key not in pending:
            raise ArgumentError(
                f"answers: no call has the id {key!r}; the calls that wait have the ids {list(pending)}"
            )
        if pending[key].server is not None:
            encoded.append((key, None, None, _approval(key, answer)))
        elif isinstance(answer, BaseException):
            encoded.append((key, None, (type(answer).__name__, str(answer)), None))
        else:
            try:
                encoded.append((key, encode(answer), None, None))
            except (TypeError, ValueError, RecursionError) as error:
                raise ArgumentTypeError(f"answers[{key!r}]: {error}") from None
    return encoded


def _approval(key: int, answer: object) -> str:
    if isinstance(answer, bool):
        return "once" if answer else "no"
    if not isinstance(answer, str) or answer not in ANSWERS:
        raise ArgumentError(f"answers[{key!r}]: {answer!r} is not one of {', '.join(ANSWERS)}, True and False")
    return answer


def load(sandbox: BaseSandbox[Any], native: _native.PausedCode, described: dict[str, Any]) -> Run:
    """Returns the run of paused code of another process."""
    run = to_run(described, [], sandbox._run_type)
    run.paused = Paused(sandbox, native, None)
    return run


def to_run(described: dict[str, Any], calls: list[Call], kind: type[Run]) -> Run:
    """Returns the paused run that the extension module describes. Adds the calls that wait to ``calls``."""
    known = {call.id: call for call in calls if call.id is not None}
    pending = []
    for number, name, arguments, buffers in described["pending"]:
        call = known.get(number)
        if call is None:
            args, kwargs = _values.decode(arguments, buffers)
            call = Call(name, tuple(args), kwargs, began=time.perf_counter(), id=number)
            calls.append(call)
        pending.append(call)
    for number, server, tool, text in described["approvals"]:
        pending.append(Call(tool, (), json.loads(text), server=server, id=number))
    return kind("paused", pieces=described["output"], calls=list(calls), pending=tuple(pending))

"""The cells of a sandbox: code in contexts, and operations of the half that runs inside."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from .. import _native
from .._errors import BelljarError
from .._guest_sources import guest_source, module_cell
from .._run import Run
from ._errors import (
    FileNotFoundException,
    InvalidArgumentException,
    NotEnoughSpaceException,
    NotFoundException,
    SandboxException,
    SandboxNotRunningException,
    TimeoutException,
    UnsupportedException,
)
from ._info import SandboxState
from ._models import Context, Execution, ExecutionError, Logs, Result
from ._output import Lines

if TYPE_CHECKING:
    from .._base import BaseSandbox, BaseSession
    from ._output import Write
    from .._steps import Steps

ANSWER = "application/vnd.belljar.answer+json"
CODE_TIMEOUT = 300.0
"""The seconds that code may run by default."""
REQUEST_TIMEOUT = 60.0
"""The seconds that an operation may take by default."""
_MODULE = "_belljar_code_interpreter"
_CALL = f'__import__("sys").modules["{_MODULE}"].call'
_ERRORS: dict[str, type[SandboxException]] = {
    "argument": InvalidArgumentException,
    "command": UnsupportedException,
    "missing": FileNotFoundException,
    "process": NotFoundException,
    "space": NotEnoughSpaceException,
}


class Cells:
    """A session with contexts."""

    def __init__(self, box: BaseSandbox[Any], session: BaseSession, envs: Mapping[str, str]) -> None:
        self.box = box
        self.session: Any = session
        """The session, None when the sandbox does not run."""
        self.status: SandboxState | None = SandboxState.RUNNING
        """The state, None after the end."""
        self.saved: Future[bytes] | None = None
        """The bytes of the session while the sandbox is paused."""
        self.auto_resume = False
        self.envs = dict(envs)
        self.new_envs: Mapping[str, str] = {}
        """Environment variables to set in an interpreter that was loaded."""
        self.reboots = False
        """True if the interpreter is to be replaced before the first cell."""
        self.contexts: dict[str, Context] = {}
        self.counts: dict[str, int] = {}
        """The number of the cells of each context."""
        self.default = ""
        """The context of code that names no context. Empty before the first call."""
        self.home = ""
        self.is_native = False
        self.guard = threading.Lock()
        """Protects the session, the status and the job."""
        self._active = ""
        self._has_envs = False
        """True if the last cell had environment variables of its own."""
        self._is_ready = False
        """False if the interpreter may be new."""
        self._job: _native.Job | None = None
        self._receiving: int | None = None

    @property
    def is_remote(self) -> bool:
        """True if the session is on a server."""
        return self.box._options.remote_runtime is not None

    def prepare(self) -> Steps[None]:
        """Makes the session ready for cells."""
        if self.status is SandboxState.PAUSED and self.auto_resume:
            yield from self.resume()
        session = self.running()
        if self.reboots:
            self.reboots = False
            self.counts.clear()
            yield session.restart
        if self._is_ready:
            return
        if not self.default:
            self._add_context(uuid.uuid4().hex, "")
            self.default = next(reversed(self.contexts))
        envs = {"envs": self.envs, "new_envs": dict(self.new_envs)}
        arguments = json.dumps({"context": self.default, "charts": guest_source("charts"), **envs})
        code = module_cell(_MODULE, "code_interpreter", f"{_CALL}('setup', {arguments!r})")
        run = yield from self._cell(code, REQUEST_TIMEOUT)
        answer = answer_of("setup", run)
        try:
            self.home, self.is_native = str(answer["home"]), bool(answer["native"])
            is_new = bool(answer["is_new"])
        except (TypeError, KeyError, ValueError):
            raise SandboxException("the interpreter has sent an answer that cannot be read") from None
        self._is_ready, self.new_envs = True, {}
        if not self.contexts[self.default].cwd:
            self.contexts[self.default].cwd = self.home
        if is_new:
            self._active, self._has_envs = self.default, False
            for context in self.contexts.values():
                if context.id != self.default:
                    yield from self.call("create_context", context=context.id, cwd=context.cwd)

    def resume(self) -> Steps[None]:
        """Continues a sandbox that is paused."""
        saved = self.saved
        if saved is not None:
            dump = yield lambda: saved
            loaded: Any = self.box._load(dump)
            with self.guard:
                self.session, self.saved, self.status = loaded, None, SandboxState.RUNNING
                self._is_ready = False

    def running(self) -> Any:
        """Returns the session. Raises if the sandbox does not run."""
        session = self.session
        if session is None:
            raise SandboxNotRunningException(
                "the sandbox is paused: `connect` resumes it"
                if self.status is SandboxState.PAUSED
                else "the sandbox was killed or has reached its timeout; `timeout` and `set_timeout` extend it"
            )
        return session

    def stop(self) -> Any:
        """Ends the running cell, and returns the session, which no cell uses from now on."""
        with self.guard:
            session, self.session = self.session, None
            job = self._job
        if job is not None:
            job.cancel()
        return session

    def _cell(
        self, code: str, timeout: float | None, on_stdout: Write | None = None, on_stderr: Write | None = None
    ) -> Steps[Run]:
        """Runs a cell of the session."""
        session = self.running()
        text, buffers, _ = session._requests(code, None, timeout)

        def execute(*arguments: Any) -> _native.Job:
            job: _native.Job = session._native.execute(*arguments)
            with self.guard:
                self._job = job
                is_stopped = self.session is not session
            if is_stopped:
                job.cancel()
            return job

        execute_in_box: Any = getattr(self.box, "_execute")
        stdout, stderr = Lines(self._watched(on_stdout)), Lines(self._watched(on_stderr))
        run: Run
        try:
            run = yield lambda: execute_in_box(execute, text, buffers, stdout.receiver, stderr.receiver)
            stdout.flush()
            stderr.flush()
        except BelljarError:
            self._check(session)
            raise
        except BaseException:
            # Ctrl-C, a cancelled task, or an exception of a receiver of output: the interpreter may have been replaced.
            self._is_ready = False
            raise
        finally:
            with self.guard:
                self._job = None
        self._check(session)
        if run.status not in ("success", "error"):
            self._is_ready = False
        return run

    def _watched(self, write: Write | None) -> Write | None:
        """Returns a receiver of output that notes the thread on which it runs."""
        if write is None:
            return None
        receive = write

        def watched(text: str) -> None:
            self._receiving = threading.get_ident()
            try:
                receive(text)
            finally:
                self._receiving = None

        return watched

    @property
    def is_receiving(self) -> bool:
        """True in a function that receives output, for whose return the cell waits."""
        return self._receiving == threading.get_ident()

    def _check(self, session: Any) -> None:
        if self.session is not session:
            raise SandboxNotRunningException(
                "the sandbox was killed, was paused or reached its timeout while the request was in progress"
            )

    def call(self, name: str, timeout: float | None = None, /, **arguments: Any) -> Steps[Any]:
        """Performs an operation inside, and returns its answer."""
        run = yield from self.run_call(name, timeout, **arguments)
        return answer_of(name, run)

    def run_call(
        self,
        name: str,
        timeout: float | None,
        on_stdout: Write | None = None,
        on_stderr: Write | None = None,
        /,
        **arguments: Any,
    ) -> Steps[Run]:
        """Performs an operation inside, and returns the run of its cell. A timeout of 0 means no limit."""
        yield from self.prepare()
        seconds = REQUEST_TIMEOUT if timeout is None else seconds_of(timeout, "timeout")
        code = f"{_CALL}({name!r}, {json.dumps(arguments)!r})"
        run = yield from self._cell(code, seconds, on_stdout, on_stderr)
        self._has_envs = False
        return run

    def run_code(
        self,
        code: str,
        language: str | None,
        context: Context | None,
        envs: Mapping[str, str] | None,
        timeout: float | None,
        on_stdout: Write | None,
        on_stderr: Write | None,
    ) -> Steps[Execution]:
        """Runs code in a context."""
        if language and context:
            raise InvalidArgumentException("language: a context has one already; pass one of the two")
        check_language(language)
        variables = texts_by_name(envs, "envs")
        seconds = CODE_TIMEOUT if timeout is None else seconds_of(timeout, "timeout")
        yield from self.prepare()
        number = self.default if context is None else self.known(context).id
        if self._active != number or variables or self._has_envs:
            yield from self.call("enter", context=number, envs=variables)
            self._active, self._has_envs = number, bool(variables)
        run = yield from self._cell(code, seconds, on_stdout, on_stderr)
        self.counts[number] = self.counts.get(number, 0) + 1
        return _execution(run, self.counts[number])

    def create_context(self, cwd: str | None, language: str | None, timeout: float | None) -> Steps[Context]:
        """Creates a context without variables."""
        check_language(language)
        number = uuid.uuid4().hex
        answer = yield from self.call("create_context", timeout, context=number, cwd=cwd)
        return self._add_context(number, str(answer["cwd"]) if isinstance(answer, dict) else self.home)

    def list_contexts(self) -> Steps[list[Context]]:
        """Returns the contexts."""
        yield from self.prepare()
        return list(self.contexts.values())

    def restart_context(self, context: Context | str) -> Steps[None]:
        """Empties a context. Without other contexts, the interpreter is new."""
        found = self.known(context)
        session = self.running()
        if len(self.contexts) == 1:
            self._is_ready = False
            yield session.restart
        else:
            yield from self.call("create_context", context=found.id, cwd=found.cwd)
        self.counts.pop(found.id, None)

    def remove_context(self, context: Context | str) -> Steps[None]:
        """Removes a context with its variables. Code without a context gets a new one after that of the default."""
        yield from self.prepare()
        found = self.known(context)
        if found.id == self.default:
            replacement = uuid.uuid4().hex
            yield from self.call("create_context", context=replacement, cwd=None)
            self._add_context(replacement, self.home)
            self.default = replacement
        if found.id == self._active:
            yield from self.call("enter", context=self.default, envs={})
            self._active = self.default
        yield from self.call("remove_context", context=found.id)
        del self.contexts[found.id]
        self.counts.pop(found.id, None)

    def known(self, context: Context | str) -> Context:
        """Returns a context of this sandbox."""
        number = context.id if isinstance(context, Context) else context
        if not isinstance(number, str) or number not in self.contexts:
            raise NotFoundException(f"context: the sandbox has no context {number!r}")
        return self.contexts[number]

    def _add_context(self, number: str, cwd: str) -> Context:
        context = self.contexts[number] = Context(number, "python", cwd)
        return context


def check_language(language: str | None) -> None:
    """Refuses languages other than Python."""
    if language is not None and (not isinstance(language, str) or language.lower() not in ("", "python", "python3")):
        raise UnsupportedException(f"language: {language!r} is not supported, code is Python")


def seconds_of(timeout: object, argument: str) -> float | None:
    """Returns a time limit, None for 0."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InvalidArgumentException(f"{argument}: {timeout!r} is not a number of seconds")
    return float(timeout) or None


def texts_by_name(values: object, argument: str) -> dict[str, str]:
    """Returns a dictionary of texts."""
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in values.items()
    ):
        raise InvalidArgumentException(f"{argument}: a dictionary of texts is needed, not {values!r}")
    return dict(values)


def answer_of(name: str, run: Run) -> Any:
    """Returns the answer of an operation."""
    check_time(run)
    answer = next((bundle[ANSWER] for bundle in run.displays if ANSWER in bundle), None)
    if not run.ok or not isinstance(answer, dict):
        raise SandboxException(f"failed to perform {name}: {run.error or 'the interpreter has sent no answer'}")
    if (kind := answer.get("kind")) is not None:
        raise _ERRORS.get(str(kind), SandboxException)(str(answer.get("message")))
    return answer.get("value")


def check_time(run: Run) -> None:
    """Raises if a run has reached its time limit."""
    if run.limit == "time":
        raise TimeoutException(f"{run.error}; a longer `timeout` extends the limit")


def _execution(run: Run, number: int) -> Execution:
    check_time(run)
    if run.status == "cancelled":
        raise SandboxException("the code was stopped")
    main = None
    if run.text is not None and run.displays:
        # The value, unless a figure is displayed after it. A server shortens long texts of values.
        shown = [at for at, bundle in enumerate(run.displays) if bundle.get("text/plain") == run.text]
        main = shown[-1] if shown else len(run.displays) - 1
    results = [Result.from_bundle(bundle, at == main) for at, bundle in enumerate(run.displays)]
    logs = Logs(
        [text for is_stdout, text in run.pieces if is_stdout], [text for is_stdout, text in run.pieces if not is_stdout]
    )
    error = None
    if run.error is not None:
        hint = f"\nhint: {run.hint}" if run.hint else ""
        error = ExecutionError(run.error.name, run.error.message, f"{run.error.traceback}{hint}")
    return Execution(results, logs, error, number)

"""Sessions for the code of a model's API, sync and async. The modules of the APIs define the formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ._asyncio import AsyncSandbox, AsyncSession
from ._code_runner import MAX_CALLS, CodeRunner, Finished, PendingCall, Request, get, split_dump
from ._code_tool import TOOL_NAME, describe
from ._errors import ArgumentError, ArgumentTypeError, DumpError
from ._integration_sandbox import choose_session
from ._model_text import MAX_TEXT, run_text
from ._sandbox import Sandbox, Session
from ._steps import Steps, perform, perform_async

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from ._base import BaseSandbox
    from ._schema_tools import SchemaTool


@dataclass(frozen=True)
class Step:
    """The state after code has run: results for the model, and calls to answer."""

    results: list[dict[str, Any]]
    """The results of the pieces of code that have ended, for the model."""
    calls: list[dict[str, Any]]
    """The calls of tools for which code waits, all that have no result yet. Their results are for `resume`."""


class HostedCode(ABC):
    """The code of a model's API in a session."""

    _sandbox_type: type[BaseSandbox[Any]]
    _call_prefix: str

    def __init__(
        self,
        sandbox: Any = None,
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        tool_name: str = TOOL_NAME,
        timeout: float | None = None,
        max_calls: int = MAX_CALLS,
        max_text: int = MAX_TEXT,
        reads_files: bool = False,
        options: dict[str, Any],
    ) -> None:
        self._tools: dict[str, SchemaTool] = {}
        for each in tools:
            if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
                raise ArgumentTypeError(f"tools: {each!r} is not the description of a tool with a name")
            if each["name"] in self._tools:
                raise ArgumentError(f"tools: two tools have the name {each['name']!r}")
            if (tool := self._tool(each)) is not None:
                self._tools[each["name"]] = tool
        self.tool_name = tool_name
        """The name of the tool that runs code, as the model sees it."""
        self._max_text = max_text
        self._sandbox, session, self._closes_session = choose_session(self._sandbox_type, sandbox, options)
        self._session: Any = session
        self._new_runner = partial(
            CodeRunner,
            tools=self._tools,
            timeout=timeout,
            max_calls=max_calls,
            call_prefix=self._call_prefix,
            reads_files=reads_files,
        )
        self._runner = self._new_runner(session)

    def stubs(self) -> str:
        """Returns the functions that the code can call as Python stubs, for a model that writes the code."""
        functions = [*self._session._sandbox._options.tools.values(), *self._tools.values()]
        return "\n\n".join(tool.stub() for tool in functions)

    def _description(self) -> str:
        return describe(self.stubs())

    def _text(self, finished: Finished) -> str:
        """Returns the result of a piece of code as text, or the reason why it was not run."""
        if finished.run is None:
            return finished.invalid or finished.unavailable or ""
        return run_text(finished.run, self._max_text)

    @abstractmethod
    def _tool(self, description: Mapping[str, Any]) -> SchemaTool | None:
        """Returns a tool of the API as a function for the code, None if code may not call it."""

    @abstractmethod
    def _requests(self, items: Iterable[Any]) -> list[Request]:
        """Returns the pieces of code among what a model has written."""

    @abstractmethod
    def _result(self, finished: Finished) -> dict[str, Any]:
        """Returns the result of a piece of code in the format of the API."""

    @abstractmethod
    def _call(self, call: PendingCall) -> dict[str, Any]:
        """Returns a call in the format of the API."""

    @abstractmethod
    def _answers(self, items: Iterable[Any]) -> dict[str, Any]:
        """Returns the results of calls, by their identifiers."""

    def _restore(self, dump: bytes) -> Steps[None]:
        """Replaces the session, which is new, by that of a dump."""
        state, contents = split_dump(dump)
        if not self._closes_session:
            raise ArgumentError("sandbox: a dump is loaded as a new session of a sandbox")
        owner = self._session._sandbox
        self._session._remove()
        session = owner.load(contents)
        if not isinstance(session, owner._session_type):
            raise DumpError("the bytes are not those of a session")
        self._session, self._runner = session, self._new_runner(session)
        yield from self._runner.restore(state)

    def _step(self, steps: Steps[None]) -> Steps[Step]:
        yield from steps
        results = [self._result(each) for each in self._runner.take_finished()]
        return Step(results, self.calls)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls for which code waits, as in the last `Step`."""
        return [self._call(each) for each in self._runner.pending()]


class SyncHostedCode(HostedCode):
    """The code of a model's API in a session of a `Sandbox`."""

    _sandbox_type = Sandbox

    @property
    def session(self) -> Session:
        """The session, with the variables and files of the code."""
        session: Session = self._session
        return session

    def run(self, items: Iterable[Any]) -> Step:
        """Runs the code among what a model has written, one piece after the other. Other items are ignored."""
        return perform(self._step(self._runner.begin(self._requests(items))))

    def resume(self, results: Iterable[Any]) -> Step:
        """Continues the code with results of its calls, all of them or some."""
        return perform(self._step(self._runner.go_on(self._answers(results))))

    def dump(self) -> bytes:
        """Returns the session with the code that waits as bytes, with which `load` continues it in another process."""
        return perform(self._runner.dump())

    @classmethod
    def load(cls, dump: bytes, sandbox: Any = None, **options: Any) -> Self:
        """Continues code from the bytes of `dump`. The other arguments are those with which it was created.

        Load only what you have written: dumps are not signed.
        """
        code = cls(sandbox, **options)
        try:
            perform(code._restore(dump))
        except BaseException:
            code.close()
            raise
        return code

    def restart(self) -> None:
        """Gives up code that waits, and the variables. The files stay."""
        perform(self._runner.restart())

    def close(self) -> None:
        """Ends the session, unless the caller has passed it."""
        if self._closes_session:
            self.session.close()
        if isinstance(self._sandbox, Sandbox):
            self._sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncHostedCode(HostedCode):
    """The code of a model's API in a session of an `AsyncSandbox`."""

    _sandbox_type = AsyncSandbox

    @property
    def session(self) -> AsyncSession:
        """The session, with the variables and files of the code."""
        session: AsyncSession = self._session
        return session

    async def run(self, items: Iterable[Any]) -> Step:
        """Runs the code among what a model has written, one piece after the other. Other items are ignored."""
        return await perform_async(self._step(self._runner.begin(self._requests(items))))

    async def resume(self, results: Iterable[Any]) -> Step:
        """Continues the code with results of its calls, all of them or some."""
        return await perform_async(self._step(self._runner.go_on(self._answers(results))))

    async def dump(self) -> bytes:
        """Returns the session with the code that waits as bytes: see `SyncHostedCode.dump`."""
        return await perform_async(self._runner.dump())

    @classmethod
    async def load(cls, dump: bytes, sandbox: Any = None, **options: Any) -> Self:
        """Continues code from the bytes of `dump`: see `SyncHostedCode.load`."""
        code = cls(sandbox, **options)
        try:
            await perform_async(code._restore(dump))
        except BaseException:
            await code.close()
            raise
        return code

    async def restart(self) -> None:
        """Gives up code that waits, and the variables. The files stay."""
        await perform_async(self._runner.restart())

    async def close(self) -> None:
        """Ends the session, unless the caller has passed it."""
        if self._closes_session:
            await self.session.close()
        if isinstance(self._sandbox, AsyncSandbox):
            await self._sandbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def text_of(content: object, kind: str) -> str:
    """Returns the text of a tool's result: a text, or a list of parts of the type ``kind``. Code receives no others."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Iterable):
        raise ArgumentTypeError(f"results: the content is neither a text nor a list but {type(content).__name__}")
    texts = []
    for part in content:
        if get(part, "type") != kind:
            raise ArgumentError(f"results: code receives text only, not content of the type {get(part, 'type')!r}")
        texts.append(str(get(part, "text")))
    return "\n".join(texts)

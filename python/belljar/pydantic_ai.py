"""A toolset of pydantic-ai whose tool runs code in Belljar, and gives the code the tools of other toolsets.

>>> from pydantic_ai import Agent
>>> from belljar.pydantic_ai import BelljarToolset
>>> agent = Agent("openai:gpt-6.2-sol", toolsets=[BelljarToolset(limits={"timeout": 10})])
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

try:
    from pydantic import TypeAdapter
    from pydantic_ai import BinaryContent, RunContext, ToolDefinition, ToolReturn
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, UsageLimitExceeded, UserError
    from pydantic_ai.function_signature import FunctionSignature
    from pydantic_ai.messages import ToolCallPart, UserContent
    from pydantic_ai.tool_manager import ToolManager
    from pydantic_ai.tools import AgentDepsT, ToolDenied
    from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, ToolsetTool, WrapperToolset
except ImportError as error:
    raise ImportError(f"belljar.pydantic_ai needs pydantic-ai 2 ({error}): pip install pydantic-ai-slim") from error
from typing_extensions import TypedDict

from ._asyncio import AsyncSandbox, AsyncSession
from ._code_tool import describe, why_not_code
from ._integration_sandbox import choose, session_with_tools
from ._limits import Limits
from ._model_text import MAX_TEXT, images, run_text
from ._run import Run
from ._schema_tools import SchemaTool, function_name

DEFAULT_LIMITS: Limits = {"timeout": 30, "memory": "512MB", "calls": 100}
"""The limits of each piece of code if the caller sets none: seconds without the time that tools take, memory, calls."""


class RunCodeArguments(TypedDict):
    """The arguments of the tool."""

    code: str


_ARGUMENTS: TypeAdapter[RunCodeArguments] = TypeAdapter(RunCodeArguments)
_VALIDATOR: Any = _ARGUMENTS.validator


@dataclass(kw_only=True)
class _CodeTool(ToolsetTool[AgentDepsT]):
    """The tool that runs code, with the tools that the code can call by their names in the code."""

    callable_tools: dict[str, ToolsetTool[AgentDepsT]]


@dataclass
class _Interpreter:
    """The session of one run of an agent."""

    session: AsyncSession | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    running: set[asyncio.Task[Any]] = field(default_factory=set)
    """The code that runs."""

    async def run(self, session: AsyncSession, code: str) -> Run:
        task = asyncio.ensure_future(session.run(code))
        self.running.add(task)
        try:
            return await task
        finally:
            self.running.discard(task)

    async def stop(self) -> None:
        """Stops the code. A cancelled agent leaves its toolsets before it cancels their tools."""
        for task in self.running:
            task.cancel()
        if self.running:
            await asyncio.wait(self.running)


class _SharedSandbox:
    """The sandbox of a toolset, which is closed when the last run of an agent that uses it ends."""

    def __init__(self, sandbox: AsyncSandbox | None, options: dict[str, Any]) -> None:
        self._options = options
        self._sandbox = choose(AsyncSandbox, sandbox, options)
        self._is_owned = sandbox is None
        self._users = 0
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._is_owned and self._sandbox._is_closed:
                self._sandbox = AsyncSandbox(**self._options)

    async def exit(self) -> None:
        with self._lock:
            self._users -= 1
            closing = self._sandbox if self._is_owned and self._users == 0 else None
            if closing is not None:
                closing._is_closed = True
        if closing is not None:
            await closing.close()

    def session(self) -> AsyncSession:
        with self._lock:
            if self._users == 0:
                raise UserError("BelljarToolset is entered with `async with` before its tools are called")
            return self._sandbox.session()


class BelljarToolset(WrapperToolset[AgentDepsT]):
    """A toolset with one tool, which runs Python in a sandbox.

    Each run of an agent has a session of its own, so that its code can go on with earlier variables. Code that fails is
    a `ModelRetry` with its traceback. Images that the code displays are part of the result.

    The tools of other toolsets become functions of the code: ``await weather(city="Oslo")``. They run in this process,
    with the context of the agent, their own validation and the hooks of capabilities. Tools that need approval or are
    external stay tools of the model, since code cannot wait for these.
    """

    def __init__(
        self,
        sandbox: AsyncSandbox | AsyncSession | None = None,
        *,
        toolsets: Sequence[AbstractToolset[AgentDepsT]] = (),
        stateful: bool = True,
        files: Mapping[str, bytes] | None = None,
        tool_name: str = "run_code",
        description: str | None = None,
        max_retries: int = 3,
        max_text: int = MAX_TEXT,
        id: str | None = None,
        **options: Any,
    ) -> None:
        """Creates a toolset.

        Args:
            sandbox: A sandbox, here or on a server; it stays open. A session serves all runs of agents instead, and
                stays open as well.
            toolsets: Toolsets whose tools the code can call. Not for a sandbox on a server.
            stateful: If false, each call of the tool has an interpreter of its own.
            files: Files that each session begins with, by path.
            tool_name: The name of the tool.
            description: What the model reads about the tool, before the functions of the code.
            max_retries: How often the model may try again in succession after code has failed.
            max_text: The most characters of a result that the model reads.
            id: The identifier of the toolset among those of an agent.
            options: Those of `AsyncSandbox`, instead of a sandbox. The default of ``limits`` is `DEFAULT_LIMITS`.
        """
        super().__init__(CombinedToolset(list(toolsets)))
        if sandbox is None:
            options.setdefault("limits", DEFAULT_LIMITS)
        self._interpreter = _Interpreter()
        self._given_session: AsyncSession | None = None
        if isinstance(sandbox, AsyncSession):
            if not stateful:
                raise UserError("stateful: code of a session that is passed keeps its variables")
            self._given_session = sandbox
        owner: AsyncSandbox | None = sandbox._sandbox if isinstance(sandbox, AsyncSession) else sandbox
        self._sandbox = _SharedSandbox(owner, options)
        self._stateful = stateful
        self._files = dict(files or {})
        self._tool_name = tool_name
        self._description = description
        self._max_retries = max_retries
        self._max_text = max_text
        self._id = id

    @property
    def id(self) -> str | None:
        return self._id

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Returns a toolset with a session of its own, for a run of an agent."""
        new = self._with_wrapped(await self.wrapped.for_run(ctx))
        new._interpreter = _Interpreter()
        return new

    async def for_run_step(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        wrapped = await self.wrapped.for_run_step(ctx)
        return self if wrapped is self.wrapped else self._with_wrapped(wrapped)

    def visit_and_replace(
        self, visitor: Callable[[AbstractToolset[AgentDepsT]], AbstractToolset[AgentDepsT]]
    ) -> AbstractToolset[AgentDepsT]:
        return self._with_wrapped(self.wrapped.visit_and_replace(visitor))

    def _with_wrapped(self, wrapped: AbstractToolset[AgentDepsT]) -> BelljarToolset[AgentDepsT]:
        new = copy.copy(self)
        new.wrapped = wrapped
        return new

    async def __aenter__(self) -> BelljarToolset[AgentDepsT]:
        await self.wrapped.__aenter__()
        self._sandbox.enter()
        return self

    async def __aexit__(self, *args: Any) -> bool | None:
        session, self._interpreter.session = self._interpreter.session, None
        try:
            await asyncio.shield(self._interpreter.stop())
            if session is not None and session is not self._given_session:
                await asyncio.shield(session.close())
        finally:
            try:
                await asyncio.shield(self._sandbox.exit())
            finally:
                await self.wrapped.__aexit__(*args)
        return None

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        tools: dict[str, ToolsetTool[AgentDepsT]] = {}
        callable_tools: dict[str, ToolsetTool[AgentDepsT]] = {}
        for name, tool in (await self.wrapped.get_tools(ctx)).items():
            if tool.tool_def.kind != "function" or tool.tool_def.defer_loading:
                tools[name] = tool
            elif callable_tools.setdefault(function_name(name), tool) is not tool:
                raise UserError(f"two tools have the name {function_name(name)!r} in the code: one of them is {name!r}")
        if self._tool_name in tools:
            raise UserError(f"two tools have the name {self._tool_name!r}; pass another `tool_name`")
        tools[self._tool_name] = _CodeTool(
            toolset=self,
            tool_def=ToolDefinition(
                name=self._tool_name,
                description=describe(_stubs(callable_tools), self._description, is_stateful=self._stateful),
                parameters_json_schema=_ARGUMENTS.json_schema(),
                sequential=self._stateful,
                metadata={"code_arg_name": "code", "code_arg_language": "python"},
            ),
            max_retries=self._max_retries,
            args_validator=_VALIDATOR,
            callable_tools=callable_tools,
        )
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        if not isinstance(tool, _CodeTool):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        if (reason := why_not_code(tool_args["code"])) is not None:
            raise ModelRetry(reason)
        calls = _Calls(ctx, self.wrapped, tool.callable_tools)
        if self._stateful:
            async with self._interpreter.lock:
                if self._interpreter.session is None:
                    self._interpreter.session = self._given_session or await self._new_session()
                session = session_with_tools(self._interpreter.session, calls.tools)
                run = await self._interpreter.run(session, tool_args["code"])
        else:
            session = await self._new_session()
            try:
                run = await self._interpreter.run(session_with_tools(session, calls.tools), tool_args["code"])
            finally:
                await asyncio.shield(session.close())
        if calls.exceeded is not None:
            raise calls.exceeded
        return self._result(run, calls)

    async def _new_session(self) -> AsyncSession:
        session = self._sandbox.session()
        for path, contents in self._files.items():
            await session.files.write(path, contents)
        return session

    def _result(self, run: Run, calls: _Calls) -> Any:
        text = run_text(run, self._max_text)
        if not run.ok:
            raise ModelRetry(text)
        shown: list[Any] = [BinaryContent(each.data, media_type=each.mime_type) for each in images(run)]
        made = [
            {"tool": call.name, "seconds": call.seconds, "error": call.error and str(call.error)} for call in run.calls
        ]
        return ToolReturn(
            [text, *shown] if shown else text,
            content=calls.content or None,
            metadata={"status": run.status, "seconds": run.stats.run, "calls": made},
        )


class _Calls:
    """The tools of an agent as functions for one piece of code."""

    def __init__(
        self,
        ctx: RunContext[Any],
        toolset: AbstractToolset[Any],
        callable_tools: Mapping[str, ToolsetTool[Any]],
    ) -> None:
        self.content: list[UserContent] = []
        """The content of tools for the model, besides their results."""
        self.exceeded: UsageLimitExceeded | None = None
        """The limit of the agent that a call would have exceeded."""
        named = {tool.tool_def.name: tool for tool in callable_tools.values()}
        parent = ctx.tool_manager
        self._manager: ToolManager[Any] = ToolManager(
            toolset=toolset,
            root_capability=parent.root_capability if parent is not None else None,
            ctx=ctx,
            tools=named,
        )
        self._ctx = ctx
        self._number = 0
        self._pending = 0
        is_sequential = self._manager.get_parallel_execution_mode() == "sequential"
        is_sequential = is_sequential or any(tool.tool_def.sequential for tool in callable_tools.values())
        self._turn = asyncio.Semaphore(1) if is_sequential else None
        self.tools = [self._function(tool.tool_def) for tool in callable_tools.values()]

    def _function(self, definition: ToolDefinition) -> SchemaTool:
        async def call(passed: dict[str, Any]) -> Any:
            if self._turn is None:
                return await self._call(definition.name, passed)
            async with self._turn:
                return await self._call(definition.name, passed)

        return SchemaTool(definition.name, definition.description, definition.parameters_json_schema, call)

    async def _call(self, name: str, passed: dict[str, Any]) -> Any:
        self._number += 1
        identifier = f"{self._ctx.tool_call_id or 'code'}.{self._number}"
        self._check_limit()
        self._pending += 1
        try:
            part = ToolCallPart(name, passed, tool_call_id=identifier)
            result = await self._manager.handle_call(part, wrap_validation_errors=False)
        except (ApprovalRequired, CallDeferred):
            raise PermissionError(f"{name} needs an approval or an answer for which code cannot wait") from None
        except UsageLimitExceeded as error:
            self.exceeded = error
            raise
        finally:
            self._pending -= 1
        if isinstance(result, ToolDenied):
            raise PermissionError(result.message)
        if not isinstance(result, ToolReturn):
            return result
        if result.content is not None:
            self.content.extend([result.content] if isinstance(result.content, str) else result.content)
        return result.return_value

    def _check_limit(self) -> None:
        """Raises `UsageLimitExceeded` if one more call, and then that of the code itself, are too many."""
        limits, usage = self._ctx.usage_limits, self._ctx.usage
        if limits is None or limits.tool_calls_limit is None:
            return
        try:
            limits.check_before_tool_call(replace(usage, tool_calls=usage.tool_calls + self._pending + 2))
        except UsageLimitExceeded as error:
            self.exceeded = error
            raise


def _stubs(callable_tools: Mapping[str, ToolsetTool[Any]]) -> str:
    """Returns functions as Python stubs, with the types of their arguments and results."""
    if not callable_tools:
        return ""
    signatures = {name: tool.tool_def.function_signature for name, tool in callable_tools.items()}
    conflicts = FunctionSignature.get_conflicting_type_names(list(signatures.values()))
    stubs = FunctionSignature.render_type_definitions(list(signatures.values()), conflicts)
    for name, signature in signatures.items():
        description = callable_tools[name].tool_def.description
        stubs.append(
            signature.render("...", name=name, description=description, is_async=True, conflicting_type_names=conflicts)
        )
    return "```python\n" + "\n\n".join(stubs) + "\n```"

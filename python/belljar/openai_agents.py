"""A tool that runs Python, and a client for sandbox agents, for the OpenAI Agents SDK.

>>> from belljar.openai_agents import python_tool
>>> async with python_tool(packages=["pandas"], limits={"timeout": 30}) as run_python:
...     await Runner.run(Agent("Analyst", tools=[run_python]), "What do all orders cost?")

>>> from belljar.openai_agents import BelljarSandboxClient
>>> async with BelljarSandboxClient() as client:
...     await Runner.run(SandboxAgent("Coder"), "…", run_config=RunConfig(sandbox=SandboxRunConfig(client=client)))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Union

try:
    from agents import FunctionTool, ToolOutputImage, ToolOutputText
    from agents.tool_context import ToolContext
except ImportError as error:
    raise ImportError(
        f"belljar.openai_agents needs the OpenAI Agents SDK: pip install openai-agents ({error})"
    ) from error

from ._agent_sessions import AgentSession, AgentSessions
from ._code_tool import SCHEMA, TOOL_NAME, code_of, describe, why_not_code
from ._errors import ArgumentError
from ._model_text import MAX_TEXT, data_url, images as images_of, run_text
from ._openai_agents_functions import CodeCall, code_function, current, is_for_code
from ._openai_agents_sandbox import BelljarSandboxClient, BelljarSandboxSession, BelljarSandboxSessionState
from ._tools import Tool

if TYPE_CHECKING:
    from types import TracebackType

    from ._integration_sandbox import AnySandbox
    from ._run import Run

__all__ = [
    "BelljarSandboxClient",
    "BelljarSandboxSession",
    "BelljarSandboxSessionState",
    "PythonTool",
    "code_function",
    "python_tool",
]

State = Union[Literal["shared", "fresh"], Callable[[ToolContext[Any]], Hashable]]
"""The session of a call: the only one of the tool, none, or that of the key which a function returns."""


@dataclasses.dataclass
class PythonTool(FunctionTool):
    """The tool of `python_tool`, for ``Agent(tools=[…])``. ``async with`` closes its sessions at the end."""

    sessions: AgentSessions | None = dataclasses.field(default=None, kw_only=True, repr=False)

    def session(self, key: Hashable = None) -> AgentSession:
        """Returns the session with a key of ``state``; that of the tool if they share one. It has the files."""
        return self._sessions().session(("session", key))

    async def reset(self, key: Hashable = None) -> None:
        """Ends the session with a key of ``state``. The next call creates another one."""
        await self._sessions().areset(("session", key))

    async def aclose(self) -> None:
        """Ends all sessions. Further calls fail."""
        await self._sessions().aclose()

    async def __aenter__(self) -> PythonTool:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _sessions(self) -> AgentSessions:
        if self.sessions is None:
            raise ArgumentError("sessions: python_tool creates this object")
        return self.sessions


def python_tool(
    sandbox: AnySandbox | None = None,
    *,
    name: str = TOOL_NAME,
    description: str | None = None,
    state: State = "shared",
    tools: Iterable[FunctionTool | Tool | Callable[..., Any]] = (),
    images: bool = True,
    max_text: int = MAX_TEXT,
    max_sessions: int = 100,
    timeout: float | None = None,
    **options: Any,
) -> PythonTool:
    """Returns a tool that runs the code of a model in a sandbox.

    The model receives the output, the value or the traceback, followed by images.

    Args:
        sandbox: A `Sandbox` or `AsyncSandbox`, such as one of `belljar.connect_async`. By default a new one.
        name: The tool's name.
        description: The tool's description, to which the functions for the code are added.
        state: With ``"shared"``, all calls share variables and files. With ``"fresh"``, each call starts with nothing.
            A function receives the context of the call and returns a key: code with the same key shares a session.
        tools: Functions that the code can call: function tools of the SDK, functions and `belljar.Tool`. Function tools
            that are disabled, or whose ``allowed_callers`` do not contain ``"programmatic"``, are left out. Those that
            need approvals are refused.
        images: If false, the model gets no images.
        max_text: The characters of a result that the model reads; the middle of longer ones is left out.
        max_sessions: The number of sessions beyond which the one that was not used for the longest time is closed.
        timeout: The most seconds for a call.
        **options: The options of a new sandbox: those of `belljar.Sandbox`.
    """
    if state not in ("shared", "fresh") and not callable(state):
        raise ArgumentError(f"state: {state!r} is neither 'shared', 'fresh' nor a function")
    usable = [each for each in tools if not isinstance(each, FunctionTool) or is_for_code(each)]
    functions = [code_function(each) if isinstance(each, FunctionTool) else each for each in usable]
    sessions = AgentSessions(sandbox, functions, max_sessions, options)
    text = describe(sessions.stubs(), description, is_stateful=state != "fresh", shows_images=images)

    def key(context: ToolContext[Any]) -> Hashable:
        if state == "fresh":
            return None
        return ("session", state(context) if callable(state) else None)

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        code = code_of(arguments)
        if (reason := why_not_code(code)) is not None:
            return reason
        assert isinstance(code, str)
        made = CodeCall(context)
        token = current.set(made)
        try:
            run = await sessions.arun(key(context), code, timeout)
        finally:
            current.reset(token)
        if made.failure is not None:
            raise made.failure
        return _output(run, max_text, images)

    return PythonTool(name=name, description=text, params_json_schema=SCHEMA, on_invoke_tool=invoke, sessions=sessions)


def _output(run: Run, max_text: int, images: bool) -> Any:
    shown = images_of(run) if images else []
    text = run_text(run, max_text, shows_images=images)
    if not shown:
        return text
    outputs: list[ToolOutputText | ToolOutputImage] = [ToolOutputText(text=text)]
    for image in shown:
        outputs.append(ToolOutputImage(image_url=data_url(image)))
    return outputs

"""A tool for agents of LangChain and LangGraph that runs Python in a sandbox.

>>> from belljar.langchain import PythonTool
>>> agent = create_agent(model, [PythonTool(packages=["pandas"], limits={"timeout": 30})])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

try:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
    from pydantic import BaseModel, Field, PrivateAttr, field_validator
except ImportError as error:
    raise ImportError(f"belljar.langchain needs LangChain: pip install langchain ({error})") from error

from ._agent_sessions import AgentSession, AgentSessions
from ._code_tool import SCHEMA, TOOL_NAME, describe, why_not_code
from ._errors import ArgumentError
from ._model_text import MAX_TEXT, base64_of, images as images_of, run_text
from ._run import Run
from ._schema_tools import SchemaTool
from ._tools import Tool

if TYPE_CHECKING:
    from types import TracebackType

    from ._base import BaseSandbox

__all__ = ["PythonArtifact", "PythonTool", "code_function"]

State = Union[Literal["thread", "fresh"], Callable[[RunnableConfig], Hashable]]
"""The session of a call: that of the thread of the conversation, none, or that of the key which a function returns."""

Content = Union[str, "list[dict[str, Any]]"]


class PythonArtifact(TypedDict):
    """The result of code for programs, in types that LangGraph can store. The fields are those of `belljar.Run`."""

    status: str
    """``success``, ``error``, ``exit``, ``limit``, ``cancelled``, ``crash`` or ``install-error``."""
    stdout: str
    stderr: str
    text: str | None
    """The value of the last line, as IPython shows it."""
    error: dict[str, str] | None
    """The ``name``, ``message`` and ``traceback``."""
    images: list[dict[str, Any]]
    """The ``mime_type`` and the ``data``, bytes, of each image."""
    calls: list[dict[str, Any]]
    """The ``name``, ``seconds`` and ``error`` of each call of a function."""
    packages: list[str]
    limit: str | None
    hint: str | None


class _Arguments(BaseModel):
    code: str = Field(description=SCHEMA["properties"]["code"]["description"])

    @field_validator("code", mode="before")
    @classmethod
    def _check(cls, code: object) -> object:
        # Agents return what is wrong with arguments to the model.
        if (reason := why_not_code(code)) is not None:
            raise ValueError(reason)
        return code


class PythonTool(BaseTool):  # type: ignore[misc, unused-ignore]
    """A tool that runs the code of a model in a sandbox, for sync and async agents.

    The content is the output, the value and the traceback, followed by images. The artifact is a `PythonArtifact`.
    """

    name: str = TOOL_NAME
    description: str = ""
    args_schema: type[BaseModel] = _Arguments
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    _sessions: AgentSessions = PrivateAttr()
    _state: Any = PrivateAttr()
    _max_text: int = PrivateAttr()
    _images: bool = PrivateAttr()
    _timeout: float | None = PrivateAttr()

    def __init__(
        self,
        sandbox: BaseSandbox[Any] | None = None,
        *,
        name: str = TOOL_NAME,
        description: str | None = None,
        state: State = "thread",
        tools: Iterable[BaseTool | Tool | Callable[..., Any]] = (),
        images: bool = True,
        max_text: int = MAX_TEXT,
        max_sessions: int = 100,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        """Creates a tool.

        Args:
            sandbox: A `Sandbox` or `AsyncSandbox`, such as one of `belljar.connect`. By default a new one.
            name: The tool's name.
            description: The tool's description, to which the functions for the code are added.
            state: With ``"thread"``, code with the same ``thread_id`` in the configuration shares variables and files,
                and so does all code without one. With ``"fresh"``, each call starts with nothing. A function receives
                the configuration and returns a key: code with the same key shares a session.
            tools: Functions that the code can call: tools of LangChain, functions and `belljar.Tool`.
            images: If false, the model gets no images. They are in the artifact.
            max_text: The characters of a result that the model reads; the middle of longer ones is left out.
            max_sessions: The number of sessions beyond which the one that was not used for the longest time is closed.
            timeout: The most seconds for a call.
            **options: The options of a new sandbox: those of `belljar.Sandbox`.
        """
        if state not in ("thread", "fresh") and not callable(state):
            raise ArgumentError(f"state: {state!r} is neither 'thread', 'fresh' nor a function")
        sessions = AgentSessions(sandbox, [_function(each) for each in tools], max_sessions, options)
        is_stateful = state != "fresh"
        text = describe(sessions.stubs(), description, is_stateful=is_stateful, shows_images=images)
        super().__init__(name=name, description=text)
        self._sessions = sessions
        self._state = state
        self._max_text = max_text
        self._images = images
        self._timeout = timeout

    def _run(self, code: str, config: RunnableConfig) -> tuple[Content, PythonArtifact]:
        return self._result(self._sessions.run(self._key(config), code, self._timeout))

    async def _arun(self, code: str, config: RunnableConfig) -> tuple[Content, PythonArtifact]:
        return self._result(await self._sessions.arun(self._key(config), code, self._timeout))

    def session(self, thread_id: Hashable = None) -> AgentSession:
        """Returns the session of a thread: its ``sync`` and ``asynchronous`` have the files. It may not have run code.

        Args:
            thread_id: The thread, or the key of ``state``. None is the session of calls without a thread.
        """
        if self._state == "fresh":
            raise ArgumentError("session: code of this tool starts with nothing each time")
        return self._sessions.session(("thread", thread_id))

    def reset(self, thread_id: Hashable = None) -> None:
        """Ends the session of a thread. The next call creates another one."""
        self._sessions.reset(("thread", thread_id))

    async def areset(self, thread_id: Hashable = None) -> None:
        """Ends the session of a thread. The next call creates another one."""
        await self._sessions.areset(("thread", thread_id))

    def close(self) -> None:
        """Ends all sessions. Further calls fail."""
        self._sessions.close()

    async def aclose(self) -> None:
        """Ends all sessions. Further calls fail."""
        await self._sessions.aclose()

    def __enter__(self) -> PythonTool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> PythonTool:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _key(self, config: Mapping[str, Any]) -> Hashable:
        if self._state == "fresh":
            return None
        if callable(self._state):
            return ("thread", self._state(config))
        return ("thread", (config.get("configurable") or {}).get("thread_id"))

    def _result(self, run: Run) -> tuple[Content, PythonArtifact]:
        shown = images_of(run) if self._images else []
        text = run_text(run, self._max_text, shows_images=self._images)
        if not shown:
            return text, _artifact(run)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}]
        for image in shown:
            blocks.append({"type": "image", "base64": base64_of(image), "mime_type": image.mime_type})
        return blocks, _artifact(run)


def _artifact(run: Run) -> PythonArtifact:
    return {
        "status": run.status,
        "stdout": run.stdout,
        "stderr": run.stderr,
        "text": run.text,
        "error": dataclasses.asdict(run.error) if run.error is not None else None,
        "images": [{"mime_type": image.mime_type, "data": image.data} for image in run.images],
        "calls": [
            {"name": call.name, "seconds": call.seconds, "error": call.error and str(call.error)} for call in run.calls
        ],
        "packages": list(run.packages),
        "limit": run.limit,
        "hint": run.hint,
    }


def code_function(tool: BaseTool) -> Tool:
    """Returns a tool of LangChain as an async function for code. It raises what the tool raises.

    Arguments that only an agent can give a tool, such as its state, cannot be passed: `ArgumentError`.
    """
    schema: Any = tool.tool_call_schema
    full_schema: Any = tool.get_input_schema()
    described: Mapping[str, Any] = schema if isinstance(schema, Mapping) else schema.model_json_schema()
    known = set(described.get("properties") or ())
    full = known if isinstance(schema, Mapping) else set(full_schema.model_fields)
    if injected := (full | set(tool._injected_args_keys)) - known:
        raise ArgumentError(f"tools: {tool.name} needs {', '.join(sorted(injected))}, which only an agent can pass")

    async def call(arguments: dict[str, Any]) -> Any:
        return await tool.ainvoke(arguments)

    return SchemaTool(tool.name, tool.description, described, call)


def _function(each: BaseTool | Tool | Callable[..., Any]) -> Tool | Callable[..., Any]:
    return code_function(each) if isinstance(each, BaseTool) else each

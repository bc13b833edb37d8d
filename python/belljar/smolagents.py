"""The executor with which a `CodeAgent` of smolagents runs its code in a sandbox.

>>> from belljar.smolagents import BelljarExecutor
>>> executor = BelljarExecutor(limits={"timeout": 30})
>>> agent = CodeAgent(tools, model, executor=executor, additional_authorized_imports=["*"])
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

try:
    import PIL.Image
    from smolagents.agent_types import AgentType
    from smolagents.default_tools import FinalAnswerTool
    from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor
    from smolagents.utils import truncate_content
except ImportError as error:
    raise ImportError(f"belljar.smolagents needs smolagents: pip install smolagents ({error})") from error

from ._agent_sessions import AgentSession
from ._encoding import encode
from ._errors import BelljarError, SandboxError
from ._guest_sources import module_cell
from ._integration_sandbox import choose_any, options_with_tools
from ._model_text import IMAGE_TYPES, error_text
from ._tools import Tool

if TYPE_CHECKING:
    from types import TracebackType

    from ._base import BaseSandbox
    from ._run import Run

__all__ = ["BelljarExecutor"]

_IMAGE = "$belljar_image"
_OBJECT = "$belljar_object"
_MAX_DEPTH = 4
_MAX_PIXELS = 64_000_000
"""The size of an image of the code that this process decodes."""
_MAX_LOGS = 50_000
_SIMPLE = (type(None), bool, int, float, complex, str, bytes)
_PLAIN = (*_SIMPLE, list, tuple, set, frozenset, dict)
_MODULE = "__import__('_belljar_agent')"


class BelljarExecutor(PythonExecutor):  # type: ignore[misc, unused-ignore]
    """Runs the code of an agent in a session of a sandbox. The agent's tools run in this process.

    The session keeps its variables from one step to the next, and from one task to the next. It begins with the first
    step; `cleanup`, which the agent calls at the end of its ``with`` statement, ends it. An executor belongs to one
    agent.
    """

    def __init__(
        self,
        sandbox: BaseSandbox[Any] | None = None,
        *,
        max_print_outputs_length: int | None = None,
        **options: Any,
    ) -> None:
        """Creates an executor.

        Args:
            sandbox: A `Sandbox`, such as one of `belljar.connect`. By default a new one.
            max_print_outputs_length: The characters of the logs of a step that the model reads, 50,000 by default.
            **options: The options of a new sandbox: those of `belljar.Sandbox`, such as ``packages`` and ``limits``.
        """
        self.state: dict[str, Any] = {}
        """The logs of the last step, in ``_print_outputs``, where agents look for them after an error."""
        self.last_run: Run | None = None
        """The result of the last step: its images, its calls of tools, its time and memory."""
        self._sandbox = choose_any(sandbox, options)
        self._max_logs = _MAX_LOGS if max_print_outputs_length is None else max_print_outputs_length
        self._options = self._sandbox._options
        self._session: AgentSession | None = None
        self._tools: dict[str, Any] = {}
        self._variables: dict[str, Any] = {}
        self._objects: list[Any] = []
        self._is_prepared = False

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Passes variables to the code of the next step. Objects that cannot cross can be passed to tools by it."""
        self._variables.update(variables)

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Replaces the functions that the code can call. They may be tools and managed agents."""
        functions = [
            Tool(self._call(tool), name=_host_name(name), description="", blocking=True)
            for name, tool in tools.items()
            if type(tool) is not FinalAnswerTool
        ]
        self._options = options_with_tools(self._sandbox._options, functions)
        if self._session is not None:
            self._session.set_options(self._options)
        self._tools = dict(tools)
        self._is_prepared = False

    def __call__(self, code_action: str) -> CodeOutput:
        """Runs the code of a step. Raises `InterpreterError` if it does not succeed."""
        self.state["_print_outputs"] = ""
        self.last_run = None
        try:
            self._prepare()
            run = self.last_run = self._run(code_action)
            logs = truncate_content(run.output, self._max_logs)
            self.state["_print_outputs"] = logs
            if run.error is not None and run.error.name == "FinalAnswerException":
                taken = self._run(f"{_MODULE}.take_answer()")
                if taken.ok:
                    return CodeOutput(output=self._incoming(_value(taken)), logs=logs, is_final_answer=True)
            # An interpreter that has ended is replaced by a new one.
            self._is_prepared = run.status in ("success", "error")
            if run.ok:
                return CodeOutput(output=self._output(run), logs=logs, is_final_answer=False)
            raise InterpreterError(error_text(run))
        except BelljarError as error:
            raise InterpreterError(str(error)) from error

    def attach_images(self, memory_step: Any, agent: Any = None) -> None:
        """Shows the images of a step to the model: a callback for ``CodeAgent(step_callbacks=[…])``."""
        if self.last_run is not None and (images := _images(self.last_run)):
            memory_step.observations_images = [*(memory_step.observations_images or []), *images]

    def cleanup(self) -> None:
        """Ends the session. A further step begins another one."""
        session, self._session = self._session, None
        self._is_prepared = False
        self._objects.clear()
        if session is not None:
            session.close()

    def __enter__(self) -> BelljarExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cleanup()

    def _run(self, code: str, variables: Mapping[str, Any] | None = None) -> Run:
        if self._session is None:
            self._session = AgentSession(self._sandbox, self._options)
        return self._session.sync.run(code, globals=variables)

    def _prepare(self) -> None:
        """Defines the tools and the variables in the session."""
        if not self._is_prepared:
            if any(_has_images(tool) for tool in self._tools.values()):
                # Without Pillow, images are objects of the host.
                self._run("import PIL.Image as _")
            tools = [
                (name, None if type(tool) is FinalAnswerTool else _host_name(name), str(tool.description))
                for name, tool in self._tools.items()
            ]
            install = f"{_MODULE}.install(globals(), {tools!r}, {'final_answer' in self._tools})"
            self._checked(module_cell("_belljar_agent", "agent_tools", install))
            self._is_prepared = True
        if self._variables:
            variables, self._variables = self._outgoing(self._variables), {}
            self._checked(
                f"globals().update({_MODULE}.from_host(_belljar_variables))\ndel _belljar_variables",
                {"_belljar_variables": variables},
            )

    def _checked(self, code: str, variables: Mapping[str, Any] | None = None) -> None:
        run = self._run(code, variables)
        if not run.ok:
            raise SandboxError(f"failed to pass tools and variables to the session: {run.error or run.status}")

    def _call(self, tool: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(self._incoming(each) for each in args)
            return self._outgoing(tool(*args, **{name: self._incoming(each) for name, each in kwargs.items()}))

        return call

    def _outgoing(self, value: Any, depth: int = 0) -> Any:
        """Returns a value for the code. An object that cannot cross is replaced by its number."""
        if isinstance(value, AgentType):
            value = value.to_raw()
        kind = type(value)
        if kind in _SIMPLE:
            return value
        if isinstance(value, PIL.Image.Image):
            file = io.BytesIO()
            value.save(file, format="PNG")
            return {_IMAGE: file.getvalue(), **self._reference(value)}
        if depth < _MAX_DEPTH and kind in (list, tuple):
            return kind(self._outgoing(each, depth + 1) for each in value)
        if depth < _MAX_DEPTH and kind is dict:
            return {key: self._outgoing(each, depth + 1) for key, each in value.items()}
        try:
            encode(value)
        except (TypeError, ValueError, RecursionError):
            return self._reference(value)
        return value

    def _reference(self, value: Any) -> dict[str, Any]:
        self._objects.append(value)
        # Not the text of the object itself, which may contain its address in this process.
        return {_OBJECT: len(self._objects) - 1, "text": f"{type(value).__module__}.{type(value).__qualname__}"}

    def _incoming(self, value: Any, depth: int = 0) -> Any:
        """Returns a value of the code for a tool, with images and the objects that the code has received."""
        if depth > _MAX_DEPTH:
            return value
        if type(value) in (list, tuple):
            return type(value)(self._incoming(each, depth + 1) for each in value)
        if type(value) is not dict:
            return value
        number, contents = value.get(_OBJECT), value.get(_IMAGE)
        if type(number) is int and 0 <= number < len(self._objects):
            return self._objects[number]
        if isinstance(contents, bytes):
            return _decoded(contents)
        return {key: self._incoming(each, depth + 1) for key, each in value.items()}

    def _output(self, run: Run) -> Any:
        """Returns the value of a step: plain values themselves, images, and for others the text that IPython shows."""
        if run.text is None and (images := _images(run)):
            return images[-1]
        value = _value(run)
        return value if type(value) in _PLAIN else run.text


def _value(run: Run) -> Any:
    """Returns the value of a cell, or its text where values do not cross: in native kernels."""
    return run.value if run.encoded is not None else run.text


def _host_name(name: str) -> str:
    return f"_belljar_tool_{name}"


def _has_images(tool: Any) -> bool:
    inputs = getattr(tool, "inputs", None) or {}
    kinds = [getattr(tool, "output_type", None), *(each.get("type") for each in inputs.values())]
    return "image" in kinds


def _decoded(contents: bytes) -> PIL.Image.Image:
    """Returns the image of a file that code has made."""
    try:
        image = PIL.Image.open(io.BytesIO(contents), formats=["PNG", "JPEG"])
        if image.width * image.height > _MAX_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels are more than {_MAX_PIXELS:,}")
        image.load()
        return image
    except Exception as error:
        raise ValueError(f"failed to decode an image of the code: {error}") from None


def _images(run: Run) -> list[PIL.Image.Image]:
    """Returns the images of a step that can be decoded."""
    images = []
    for image in run.images:
        if image.mime_type in IMAGE_TYPES:
            try:
                images.append(_decoded(image.data))
            except ValueError:
                continue
    return images

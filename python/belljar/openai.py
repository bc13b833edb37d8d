"""OpenAI's code interpreter, and calls of tools by its code, for those who host the tool themselves.

The items are dictionaries in the shapes of OpenAI's Responses API, whose client is not needed.

>>> from belljar.openai import CodeInterpreter
>>> with CodeInterpreter() as code:
...     step = code.run([{"type": "code_interpreter_call", "id": "ci_1", "container_id": "c", "code": "6 * 7"}])
...     step.results[0]["outputs"]
[{'type': 'logs', 'logs': '42'}]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._code_runner import MAX_CALLS, Finished, PendingCall, Request, ToolError, get
from ._code_tool import SCHEMA, TOOL_NAME, code_of
from ._errors import ArgumentError
from ._hosted_code import AsyncHostedCode, HostedCode, Step, SyncHostedCode, text_of
from ._model_text import MAX_TEXT, data_url, images
from ._schema_tools import SchemaTool

if TYPE_CHECKING:
    from openai.types.responses import FunctionToolParam

__all__ = ["AsyncCodeInterpreter", "CodeInterpreter", "Step", "ToolError"]


class _Items(HostedCode):
    """The format of the Responses API."""

    _call_prefix = "call_"

    def __init__(
        self,
        sandbox: Any = None,
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        tool_name: str = TOOL_NAME,
        container_id: str = "belljar",
        timeout: float | None = None,
        max_calls: int = MAX_CALLS,
        max_text: int = MAX_TEXT,
        decode: Callable[[str], Any] | None = None,
        **options: Any,
    ) -> None:
        """Creates a session for code.

        Args:
            sandbox: A sandbox or a session of the caller, which stays open. Sandboxes on a server do not support
                ``tools``.
            tools: Function tools of the Responses API that code can call. Those with ``allowed_callers`` that do not
                contain ``"programmatic"`` are left out. Functions that this process is to call itself belong to the
                sandbox instead.
            tool_name: The name of the tool in ``function_call`` items.
            container_id: The container of ``code_interpreter_call`` items that name none.
            timeout: The most seconds for each piece of code, without the time that tools take.
            max_calls: The most calls of tools by each piece of code.
            max_text: The most characters of each text that the model reads.
            decode: Converts the text of a tool's output to the value that the code receives, as `json.loads` does.
                Without it the code receives the text.
            options: Those of `Sandbox` or `AsyncSandbox`, instead of a sandbox.
        """
        self._container_id = container_id
        self._decode = decode
        super().__init__(
            sandbox,
            tools=tools,
            tool_name=tool_name,
            timeout=timeout,
            max_calls=max_calls,
            max_text=max_text,
            options=options,
        )

    @property
    def tool(self) -> FunctionToolParam:
        """The tool that runs code, for ``tools`` of a request. Its description contains the functions of the code."""
        return {
            "type": "function",
            "name": self.tool_name,
            "description": self._description(),
            "parameters": SCHEMA,
            "strict": True,
        }

    def _tool(self, description: Mapping[str, Any]) -> SchemaTool | None:
        callers = description.get("allowed_callers")
        if callers and "programmatic" not in callers:
            return None
        if description.get("type") != "function":
            raise ArgumentError(f"tools: {description['name']!r} is not a tool of the type 'function'")
        return SchemaTool(description["name"], description.get("description"), description.get("parameters") or {})

    def _requests(self, items: Iterable[Any]) -> list[Request]:
        requests = []
        for item in items:
            kind = get(item, "type")
            if kind == "code_interpreter_call" and get(item, "outputs") is None:
                requests.append(Request(str(get(item, "id")), get(item, "code"), item))
            elif kind == "function_call" and get(item, "name") == self.tool_name:
                requests.append(Request(str(get(item, "call_id")), code_of(get(item, "arguments")), item))
        return requests

    def _result(self, finished: Finished) -> dict[str, Any]:
        item, run = finished.request.item, finished.run
        text = self._text(finished)
        shown = images(run) if run is not None else []
        if get(item, "type") == "function_call":
            output: list[dict[str, Any]] = [{"type": "input_text", "text": text}]
            output += [{"type": "input_image", "image_url": data_url(image), "detail": "auto"} for image in shown]
            return {
                "type": "function_call_output",
                "call_id": finished.request.id,
                "output": output if shown else text,
            }
        outputs: list[dict[str, Any]] = [{"type": "logs", "logs": text}]
        outputs += [{"type": "image", "url": data_url(image)} for image in shown]
        is_stopped = run is not None and run.status not in ("success", "error", "exit")
        return {
            "type": "code_interpreter_call",
            "id": finished.request.id,
            "code": finished.request.code if isinstance(finished.request.code, str) else None,
            "container_id": get(item, "container_id") or self._container_id,
            "status": "failed" if run is None else "incomplete" if is_stopped else "completed",
            "outputs": outputs,
        }

    def _call(self, call: PendingCall) -> dict[str, Any]:
        return {
            "type": "function_call",
            "id": f"fc_{call.id.removeprefix(self._call_prefix)}",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
            "caller": {"type": "program", "caller_id": call.request.id},
        }

    def _answers(self, items: Iterable[Any]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for item in items:
            if get(item, "type") != "function_call_output":
                kind = get(item, "type")
                raise ArgumentError(f"results: an item of the type 'function_call_output' is needed, not {kind!r}")
            output = get(item, "output")
            if isinstance(output, BaseException):
                answers[str(get(item, "call_id"))] = output
                continue
            text = text_of(output, "input_text")
            answers[str(get(item, "call_id"))] = self._decode(text) if self._decode else text
        return answers


class CodeInterpreter(_Items, SyncHostedCode):
    """Runs the code of ``code_interpreter_call`` and ``function_call`` items in a session.

    `run` receives the items of a response. Its `Step` has the items with the results; and ``function_call`` items for
    the calls of tools for which the code waits, until `resume` receives their ``function_call_output`` items. An
    exception as the output is raised in the code.
    """


class AsyncCodeInterpreter(_Items, AsyncHostedCode):
    """The same as `CodeInterpreter`, for asyncio."""

"""Anthropic's code execution and programmatic tool calling, for those who host the tool themselves.

The blocks are dictionaries in the shapes of Anthropic's Messages API, whose client is not needed.

>>> from belljar.anthropic import CodeExecution
>>> with CodeExecution() as code:
...     step = code.run([{"type": "tool_use", "id": "toolu_1", "name": "run_python", "input": {"code": "6 * 7"}}])
...     step.results[0]["content"]
'42'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ._code_runner import MAX_CALLS, Finished, PendingCall, Request, ToolError, get
from ._code_tool import SCHEMA, TOOL_NAME
from ._errors import ArgumentError
from ._hosted_code import AsyncHostedCode, HostedCode, Step, SyncHostedCode, text_of
from ._model_text import MAX_TEXT, base64_of, error_text, images, shorten
from ._run import Run
from ._schema_tools import SchemaTool

if TYPE_CHECKING:
    from anthropic.types import ToolParam

__all__ = ["AsyncCodeExecution", "CodeExecution", "Step", "ToolError"]

Version = Literal["code_execution_20250825", "code_execution_20260120"]

_SERVER_TOOL = "code_execution"


class _Blocks(HostedCode):
    """The format of the Messages API."""

    _call_prefix = "toolu_"

    def __init__(
        self,
        sandbox: Any = None,
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        tool_name: str = TOOL_NAME,
        version: Version = "code_execution_20260120",
        timeout: float | None = None,
        max_calls: int = MAX_CALLS,
        max_text: int = MAX_TEXT,
        on_file: Callable[[str, bytes], str | None] | None = None,
        decode: Callable[[str], Any] | None = None,
        **options: Any,
    ) -> None:
        """Creates a session for code.

        Args:
            sandbox: A sandbox or a session of the caller, which stays open. Sandboxes on a server do not support
                ``tools``.
            tools: Custom tools of the Messages API that code can call, such as those with ``allowed_callers``. Tools
                that only the model may call, ``["direct"]``, are left out. Functions that this process is to call
                itself belong to the sandbox instead.
            tool_name: The name of the tool in ``tool_use`` blocks.
            version: The type of the ``caller`` in blocks for calls of tools.
            timeout: The most seconds for each piece of code, without the time that tools take.
            max_calls: The most calls of tools by each piece of code.
            max_text: The most characters of each text that the model reads.
            on_file: Receives the path and the contents of files that code has written, and of its images; returns the
                ``file_id`` that the model sees, or None. Files are compared by their size; at most 100 of up to 32 MB
                are passed for each piece of code.
            decode: Converts the text of a tool's result to the value that the code receives, as `json.loads` does.
                Without it the code receives the text, as with Anthropic.
            options: Those of `Sandbox` or `AsyncSandbox`, instead of a sandbox.
        """
        self._version = version
        self._on_file = on_file
        self._decode = decode
        super().__init__(
            sandbox,
            tools=tools,
            tool_name=tool_name,
            timeout=timeout,
            max_calls=max_calls,
            max_text=max_text,
            reads_files=on_file is not None,
            options=options,
        )

    @property
    def tool(self) -> ToolParam:
        """The tool that runs code, for ``tools`` of a request. Its description contains the functions of the code."""
        return {"name": self.tool_name, "description": self._description(), "input_schema": SCHEMA}

    def _tool(self, description: Mapping[str, Any]) -> SchemaTool | None:
        callers = description.get("allowed_callers")
        if callers and all(caller == "direct" for caller in callers):
            return None
        schema = description.get("input_schema")
        if not isinstance(schema, Mapping):
            raise ArgumentError(f"tools: {description['name']!r} has no input_schema; only custom tools can be called")
        return SchemaTool(description["name"], description.get("description"), schema)

    def _requests(self, items: Iterable[Any]) -> list[Request]:
        requests = []
        for block in items:
            kind, name = get(block, "type"), get(block, "name")
            is_code = kind == "server_tool_use" and name == _SERVER_TOOL
            if is_code or (kind == "tool_use" and name in (self.tool_name, _SERVER_TOOL)):
                given = get(block, "input")
                code = given.get("code") if isinstance(given, Mapping) else None
                requests.append(Request(str(get(block, "id")), code, block))
        return requests

    def _result(self, finished: Finished) -> dict[str, Any]:
        if get(finished.request.item, "type") == "tool_use":
            return self._tool_result(finished)
        content: dict[str, Any]
        if finished.run is None or finished.run.limit in ("time", "cpu", "wait"):
            code = "execution_time_exceeded" if finished.run is not None else "invalid_tool_input"
            content = {
                "type": "code_execution_tool_result_error",
                "error_code": code if finished.unavailable is None else "unavailable",
            }
        else:
            content = self._execution_result(finished.run, self._files(finished))
        return {"type": "code_execution_tool_result", "tool_use_id": finished.request.id, "content": content}

    def _execution_result(self, run: Run, files: list[tuple[str, str]]) -> dict[str, Any]:
        value = f"{run.text}\n" if run.ok and run.text else ""
        failure = error_text(run)
        return {
            "type": "code_execution_result",
            "stdout": shorten(run.stdout + value, self._max_text),
            "stderr": shorten(run.stderr + (f"{failure}\n" if failure else ""), self._max_text),
            "return_code": _return_code(run),
            "content": [{"type": "code_execution_output", "file_id": identifier} for _, identifier in files],
        }

    def _tool_result(self, finished: Finished) -> dict[str, Any]:
        run = finished.run
        text = self._text(finished)
        if saved := self._files(finished):
            text += "\nFiles:\n" + "\n".join(f"{path}: {identifier}" for path, identifier in saved)
        content: list[dict[str, Any]] = [{"type": "text", "text": text}]
        for image in images(run) if run is not None else ():
            source = {"type": "base64", "media_type": image.mime_type, "data": base64_of(image)}
            content.append({"type": "image", "source": source})
        return {
            "type": "tool_result",
            "tool_use_id": finished.request.id,
            "content": content if len(content) > 1 else text,
            "is_error": run is None or not run.ok,
        }

    def _files(self, finished: Finished) -> list[tuple[str, str]]:
        """Returns the paths of new files and the identifiers that the caller gives them."""
        if self._on_file is None or finished.run is None:
            return []
        files = list(finished.files)
        for number, image in enumerate(finished.run.images, 1):
            ending = image.mime_type.partition("/")[2].partition("+")[0]
            files.append((f"figure_{number}.{ending}", image.data))
        saved = [(path, self._on_file(path, contents)) for path, contents in files]
        return [(path, identifier) for path, identifier in saved if identifier is not None]

    def _call(self, call: PendingCall) -> dict[str, Any]:
        caller = {"type": self._version, "tool_id": call.request.id}
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments, "caller": caller}

    def _answers(self, items: Iterable[Any]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for block in items:
            if get(block, "type") != "tool_result":
                raise ArgumentError(f"results: a block of the type 'tool_result' is needed, not {get(block, 'type')!r}")
            text = text_of(get(block, "content") or "", "text")
            value = ToolError(text) if get(block, "is_error") else self._decode(text) if self._decode else text
            answers[str(get(block, "tool_use_id"))] = value
        return answers


def _return_code(run: Run) -> int:
    if run.ok:
        return 0
    if run.status == "error" and run.error is not None and run.error.name == "SystemExit":
        # IPython goes on after it.
        code = run.error.message
        return int(code) if code.isascii() and code.isdigit() and len(code) < 4 else 1
    return run.exit_code or 1


class CodeExecution(_Blocks, SyncHostedCode):
    """Runs the code of ``tool_use`` and ``server_tool_use`` blocks in a session.

    `run` receives the blocks of a message. Its `Step` has the blocks with the results, ``tool_result`` or
    ``code_execution_tool_result``; and ``tool_use`` blocks for the calls of tools for which the code waits, until
    `resume` receives their ``tool_result`` blocks.
    """


class AsyncCodeExecution(_Blocks, AsyncHostedCode):
    """The same as `CodeExecution`, for asyncio."""

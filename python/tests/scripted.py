"""Servers with the APIs of OpenAI and Anthropic that answer from a script, for the tests of the examples."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Turn = Callable[[str], tuple[str, str]]
"""Receives the text of the last result of the tool, and returns `("code", …)` to run or the `("answer", …)`."""


class Script:
    """The turns of a model. Each runs the next piece of code; the last one answers with the last result."""

    def __init__(self, *codes: str, tool: str = "run_python", argument: str = "code") -> None:
        self.codes = list(codes)
        self.tool, self.argument = tool, argument
        self.results: list[str] = []
        """The results of the tool that the model has seen."""
        self.requests: list[dict[str, Any]] = []

    def next(self, result: str | None) -> tuple[str, str]:
        """Returns `code` and the next piece, or `answer` and the text, given the last result of the tool."""
        if result is not None:
            self.results.append(result)
        if len(self.results) < len(self.codes):
            return "code", self.codes[len(self.results)]
        return "answer", f"It is {self.results[-1]}."


def openai_answer(script: Script, request: dict[str, Any]) -> dict[str, Any]:
    """Answers a request to OpenAI's `POST /responses`."""
    outputs = [item["output"] for item in request["input"] if item.get("type") == "function_call_output"]
    kind, text = script.next(outputs[-1] if outputs else None)
    number = len(script.requests)
    if kind == "code":
        item: dict[str, Any] = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {"name": script.tool, "arguments": json.dumps({script.argument: text}), "status": "completed"}
    else:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        item |= {"content": content}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": request["model"],
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": request["tools"],
        "usage": usage,
    }


def anthropic_answer(script: Script, request: dict[str, Any]) -> dict[str, Any]:
    """Answers a request to Anthropic's `POST /v1/messages`."""
    last = request["messages"][-1]["content"]
    results = [block["content"] for block in last if isinstance(block, dict) and block["type"] == "tool_result"]
    kind, text = script.next(results[-1] if results else None)
    number = len(script.requests)
    block: dict[str, Any] = {"type": "text", "text": text}
    if kind == "code":
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": "run_python", "input": {"code": text}}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [block],
        "stop_reason": "tool_use" if kind == "code" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


@contextlib.contextmanager
def server(script: Script) -> Iterator[str]:
    """Serves both APIs on the loopback interface, and yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.requests.append(request)
            answers = {"/v1/responses": openai_answer, "/v1/messages": anthropic_answer}
            body = json.dumps(answers[self.path](script, request)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            http.shutdown()
            thread.join()

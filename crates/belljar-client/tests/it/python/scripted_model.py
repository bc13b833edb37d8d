"""The APIs of OpenAI, Anthropic and Gemini with a scripted model, and with the checks of requests that the APIs make.

`SCRIPT` is a list of turns, each a list of calls, `[name, arguments]`. After the last turn, the model answers with the
results of the last calls.
"""

import json
import os
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CODE = "sum(n for n in range(7919 + 1) if all(n % d for d in range(2, int(n**0.5) + 1)) and n > 1)"
DEFAULT = [[["run_python_code", {"python_code": CODE}]]]
SCRIPT: list[list[tuple[str, dict[str, Any]]]] = json.loads(os.environ.get("SCRIPT") or json.dumps(DEFAULT))

JsonSchema = dict[str, Any]
GEMINI = {
    "anyOf", "description", "enum", "format", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minProperties", "minimum", "nullable", "pattern", "properties", "required", "title", "type",
}  # fmt: skip


def check_name(name: str, first: str = "") -> None:
    assert re.fullmatch(first + r"[A-Za-z0-9_-]{1,64}", name) and len(name) <= 64, f"invalid name: {name}"


def check_schema(schema: JsonSchema) -> None:
    assert schema["type"] == "object" and isinstance(schema["properties"], dict), f"not an object: {schema}"
    assert not {"anyOf", "oneOf", "allOf", "enum", "not"} & schema.keys(), f"combinator at the top level: {schema}"
    assert not re.search(r'"\$(ref|defs|schema)"', json.dumps(schema)), f"unsupported keyword: {schema}"


def check_gemini(schema: JsonSchema) -> None:
    assert schema.keys() <= GEMINI, f"Unknown name: {schema.keys() - GEMINI}"
    assert schema.keys() == {"anyOf"} or "type" in schema, f"no type: {schema}"
    if schema.get("type") == "array":
        assert "items" in schema, f"items: missing field: {schema}"
    assert set(schema.get("required", [])) <= schema.get("properties", {}).keys(), f"property is not defined: {schema}"
    for part in [*schema.get("properties", {}).values(), *schema.get("anyOf", []), *filter(None, [schema.get("items")])]:
        check_gemini(part)


def turn(results: list[list[str]]) -> list[tuple[str, dict[str, Any]]] | str:
    """Returns the calls of the next turn, or the answer: the results of the last calls."""
    return SCRIPT[len(results)] if len(results) < len(SCRIPT) else "\n".join(results[-1] if results else ["no script"])


def openai_chat(body: dict[str, Any]) -> dict[str, Any]:
    for tool in body.get("tools", []):
        check_name(tool["function"]["name"])
        check_schema(tool["function"]["parameters"])
    results: list[list[str]] = []
    expected: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == expected.pop(0), "a result without a call"
            content = message["content"]
            text = content if isinstance(content, str) else "".join(part["text"] for part in content)
            results[-1].append(text)
            continue
        assert not expected, f"calls without results: {expected}"
        if calls := message.get("tool_calls"):
            expected = [call["id"] for call in calls]
            results.append([])
        elif message["role"] == "user" and isinstance(message["content"], list) and results:
            results[-1] += [part["type"] for part in message["content"]]
    assert not expected, f"calls without results: {expected}"
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    match turn(results):
        case str() as answer:
            message["content"] = answer
        case calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{len(results)}_{position}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for position, (name, arguments) in enumerate(calls)
            ]
    reason = "stop" if message["content"] else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
    return answer | {"choices": [choice], "usage": usage}


def openai_responses(body: dict[str, Any]) -> dict[str, Any]:
    for tool in body.get("tools", []):
        check_name(tool["name"])
        check_schema(tool["parameters"])
    results: list[list[str]] = []
    expected: set[str] = set()
    for item in body["input"]:
        match item.get("type"):
            case "function_call":
                if not expected:
                    results.append([])
                expected.add(item["call_id"])
            case "function_call_output":
                expected.remove(item["call_id"])
                output = item["output"]
                results[-1] += [output] if isinstance(output, str) else [part["type"] for part in output]
    assert not expected, f"calls without results: {expected}"
    match turn(results):
        case str() as answer:
            content = [{"type": "output_text", "text": answer, "annotations": []}]
            output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}]
        case calls:
            output = [{"type": "reasoning", "id": "r", "summary": []}] + [
                {
                    "type": "function_call",
                    "id": f"fc_{position}",
                    "call_id": f"call_{len(results)}_{position}",
                    "name": name,
                    "arguments": json.dumps(arguments),
                    "status": "completed",
                }
                for position, (name, arguments) in enumerate(calls)
            ]
    return {"id": "1", "object": "response", "model": body["model"], "status": "completed", "error": None, "output": output}


def anthropic(body: dict[str, Any]) -> dict[str, Any]:
    assert body["max_tokens"] > 0
    for tool in body.get("tools", []):
        check_name(tool["name"])
        check_schema(tool["input_schema"])
    results: list[list[str]] = []
    expected: list[str] = []
    for message in body["messages"]:
        assert message["content"], "messages must have non-empty content"
        blocks = message["content"] if isinstance(message["content"], list) else []
        if message["role"] == "user":
            found = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            assert found == expected, f"results {found} for calls {expected}"
            if found:
                results.append([])
            for block in blocks:
                content = block.get("content", "")
                parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
                assert not block.get("is_error") or all(part["type"] == "text" for part in parts), "all must be text"
                results[-1] += [part["text"] if part["type"] == "text" else part["type"] for part in parts]
        expected = [block["id"] for block in blocks if block["type"] == "tool_use"]
    match turn(results):
        case str() as answer:
            content = [{"type": "text", "text": answer}]
        case calls:
            content = [{"type": "thinking", "thinking": "…", "signature": "s"}] + [
                {"type": "tool_use", "id": f"toolu_{len(results)}_{position}", "name": name, "input": arguments}
                for position, (name, arguments) in enumerate(calls)
            ]
    reason = "end_turn" if content[0]["type"] == "text" else "tool_use"
    usage = {"input_tokens": 1, "output_tokens": 1}
    answer = {"id": "1", "type": "message", "role": "assistant", "model": body["model"], "content": content}
    return answer | {"stop_reason": reason, "stop_sequence": None, "usage": usage}


def gemini(body: dict[str, Any]) -> dict[str, Any]:
    for tools in body.get("tools", []):
        for tool in tools["functionDeclarations"]:
            check_name(tool["name"], first="(?=[A-Za-z_])")
            if "parameters" in tool:
                assert tool["parameters"]["properties"], "properties: should be non-empty for OBJECT type"
                check_gemini(tool["parameters"])
    results: list[list[str]] = []
    expected: list[str] = []
    for content in body["contents"]:
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        assert [answer["name"] for answer in answers] == expected, "the number of function responses is not equal"
        if answers:
            results.append([answer["response"].get("output", answer["response"].get("error")) for answer in answers])
            results[-1] = [value if isinstance(value, str) else json.dumps(value) for value in results[-1]]
            results[-1] += ["inlineData" for part in content["parts"] if "inlineData" in part]
        expected = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
    match turn(results):
        case str() as answer:
            parts = [{"text": answer}]
        case calls:
            parts = [{"functionCall": {"name": name, "args": arguments}, "thoughtSignature": "s"} for name, arguments in calls]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}]}


ROUTES = {
    r"/v1/chat/completions": openai_chat,
    r"/v1/responses": openai_responses,
    r"/v1/messages": anthropic,
    r"/v1beta/models/[^/]+:generateContent": gemini,
}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.split("?")[0]
        route = next(route for pattern, route in ROUTES.items() if re.fullmatch(pattern, path))
        try:
            status, answer = 200, route(body)
        except Exception as error:
            status, answer = 400, {"error": {"message": f"{type(error).__name__}: {error}", "type": "invalid_request_error"}}
        encoded = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()

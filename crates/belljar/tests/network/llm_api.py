"""The parts of two language models' HTTP APIs that their Python libraries use: messages, whole and streamed."""

import json
from typing import Any

TEXT = "Hello from the model"


def answer(request: Any) -> None:
    """Answers a request to ``/v1/chat/completions`` or ``/v1/messages``."""
    question = json.loads(request.body())
    key = request.headers.get("x-api-key") or request.authorization()
    if not key.startswith("sk-"):
        request.answer_json({"error": {"message": "invalid key", "type": "authentication_error"}}, 401)
    elif request.rest == "chat/completions":
        _complete(request, question)
    elif request.rest == "messages":
        _message(request, question)
    else:
        request.get_missing()


def _events(request: Any, events: list[tuple[str | None, object]]) -> None:
    request.start_chunked("text/event-stream")
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data)
        head = f"event: {name}\n" if name else ""
        request.chunk(f"{head}data: {text}\n\n".encode())
    request.chunk(b"")


def _complete(request: Any, question: dict[str, Any]) -> None:
    common = {"id": "chatcmpl-1", "created": 1, "model": question["model"]}
    if not question.get("stream"):
        message = {"role": "assistant", "content": TEXT}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}
        request.answer_json({**common, "object": "chat.completion", "choices": choices, "usage": usage})
        return
    events: list[tuple[str | None, object]] = []
    for word in TEXT.split():
        choice = {"index": 0, "delta": {"content": word + " "}, "finish_reason": None}
        events.append((None, {**common, "object": "chat.completion.chunk", "choices": [choice]}))
    _events(request, [*events, (None, "[DONE]")])


def _message(request: Any, question: dict[str, Any]) -> None:
    usage = {"input_tokens": 1, "output_tokens": 4}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": question["model"], "usage": usage}
    if not question.get("stream"):
        content = [{"type": "text", "text": TEXT}]
        request.answer_json({**message, "content": content, "stop_reason": "end_turn", "stop_sequence": None})
        return
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    block = {"type": "text", "text": ""}
    events: list[tuple[str | None, dict[str, Any]]] = [
        ("message_start", {"message": start}),
        ("content_block_start", {"index": 0, "content_block": block}),
    ]
    for word in TEXT.split():
        events.append(("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": word + " "}}))
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    events.append(("content_block_stop", {"index": 0}))
    events.append(("message_delta", {"delta": delta, "usage": {"output_tokens": 4}}))
    events.append(("message_stop", {}))
    _events(request, [(name, {"type": name, **data}) for name, data in events])

"""A loop with Anthropic's client: the model's code runs in a session, and calls a tool of this program."""

import json
from typing import Any

from anthropic import Anthropic
from anthropic.types import ToolParam

from belljar.anthropic import CodeExecution

ORDERS: ToolParam = {
    "name": "orders",
    "description": "Returns the orders of a day, a list of {item, price}.",
    "input_schema": {
        "type": "object",
        "properties": {"day": {"type": "string", "description": "Such as 2026-11-23."}},
        "required": ["day"],
    },
}


def call_tool(call: dict[str, Any]) -> dict[str, Any]:
    """Answers a call by the code. Its arguments are not to be trusted."""
    orders = [{"item": "apple", "price": 1.5}, {"item": "pear", "price": 2.25}]
    return {"type": "tool_result", "tool_use_id": call["id"], "content": json.dumps(orders)}


def answer(question: str, client: Anthropic, model: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    with CodeExecution(tools=[ORDERS], decode=json.loads, limits={"timeout": 10, "memory": "512MB"}) as code:
        for _ in range(10):
            message = client.messages.create(model=model, max_tokens=4096, messages=messages, tools=[code.tool])
            messages.append({"role": "assistant", "content": message.content})
            step = code.run(message.content)
            while step.calls:
                step = code.resume([call_tool(call) for call in step.calls])
            if not step.results:
                return "".join(block.text for block in message.content if block.type == "text")
            messages.append({"role": "user", "content": step.results})
    raise RuntimeError("the model has not answered after ten rounds")


if __name__ == "__main__":
    print(answer("What do all orders of 2026-11-23 cost?", Anthropic(), "claude-sonnet-5-5"))

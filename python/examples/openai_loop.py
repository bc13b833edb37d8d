"""A loop with OpenAI's client: the model's code runs in a session, and calls a function of this program."""

import json
from typing import Any

from openai import OpenAI
from openai.types.responses import FunctionToolParam

from belljar.openai import CodeInterpreter

ORDERS: FunctionToolParam = {
    "type": "function",
    "name": "orders",
    "description": "Returns the orders of a day, a list of {item, price}.",
    "parameters": {
        "type": "object",
        "properties": {"day": {"type": "string", "description": "Such as 2026-11-23."}},
        "required": ["day"],
    },
    "strict": False,
}


def call_function(call: dict[str, Any]) -> dict[str, Any]:
    """Answers a call by the code. Its arguments are not to be trusted."""
    orders = [{"item": "apple", "price": 1.5}, {"item": "pear", "price": 2.25}]
    return {"type": "function_call_output", "call_id": call["call_id"], "output": json.dumps(orders)}


def answer(question: str, client: OpenAI, model: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    with CodeInterpreter(tools=[ORDERS], decode=json.loads, limits={"timeout": 10, "memory": "512MB"}) as code:
        for _ in range(10):
            response = client.responses.create(model=model, input=messages, tools=[code.tool])
            messages += response.output
            step = code.run(response.output)
            while step.calls:
                step = code.resume([call_function(call) for call in step.calls])
            if not step.results:
                return response.output_text
            messages += step.results
    raise RuntimeError("the model has not answered after ten rounds")


if __name__ == "__main__":
    print(answer("What do all orders of 2026-11-23 cost?", OpenAI(), "gpt-6.2-sol"))

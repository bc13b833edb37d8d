"""A tool loop with OpenAI's client and no framework."""

import json
from typing import Any

from openai import OpenAI
from openai.types.responses import FunctionToolParam

from belljar import Run, Sandbox

RUN_PYTHON: FunctionToolParam = {
    "type": "function",
    "name": "run_python",
    "description": "Runs Python in a session that keeps its variables and files. Returns output and the last value.",
    "parameters": {
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
        "additionalProperties": False,
    },
    "strict": True,
}


def report(run: Run) -> str:
    """Returns the text that the model reads."""
    error = run.error and (run.error.traceback or str(run.error))
    text = "\n".join(part.rstrip() for part in (run.output, run.text, error, run.hint) if part)
    return text[:20_000] or "(no output)"


def answer(question: str, client: OpenAI, model: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    with Sandbox(limits={"timeout": 10, "memory": "512MB"}) as box, box.session() as session:
        for _ in range(10):
            response = client.responses.create(model=model, input=messages, tools=[RUN_PYTHON])
            messages += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            for call in calls:
                text = report(session.run(json.loads(call.arguments)["code"]))
                messages.append({"type": "function_call_output", "call_id": call.call_id, "output": text})
    raise RuntimeError("the model has not answered after ten rounds")


if __name__ == "__main__":
    print(answer("What is the 100th prime number?", OpenAI(), "gpt-6.2-sol"))

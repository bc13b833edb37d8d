"""A tool loop with Anthropic's client and no framework."""

from anthropic import Anthropic
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam

from belljar import Run, Sandbox

RUN_PYTHON: ToolParam = {
    "name": "run_python",
    "description": "Runs Python in a session that keeps its variables and files. Returns output and the last value.",
    "input_schema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
}


def result_of(identifier: str, run: Run) -> ToolResultBlockParam:
    """Returns the block that the model reads."""
    error = run.error and (run.error.traceback or str(run.error))
    text = "\n".join(part.rstrip() for part in (run.output, run.text, error, run.hint) if part)
    return {
        "type": "tool_result",
        "tool_use_id": identifier,
        "content": text[:20_000] or "(no output)",
        "is_error": not run.ok,
    }


def answer(question: str, client: Anthropic, model: str) -> str:
    messages: list[MessageParam] = [{"role": "user", "content": question}]
    with Sandbox(limits={"timeout": 10, "memory": "512MB"}) as box, box.session() as session:
        for _ in range(10):
            message = client.messages.create(model=model, max_tokens=4096, messages=messages, tools=[RUN_PYTHON])
            messages.append({"role": "assistant", "content": message.content})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in message.content if block.type == "text")
            results = [result_of(call.id, session.run(str(call.input["code"]))) for call in calls]
            messages.append({"role": "user", "content": results})
    raise RuntimeError("the model has not answered after ten rounds")


if __name__ == "__main__":
    print(answer("What is the 100th prime number?", Anthropic(), "claude-sonnet-5-5"))

"""An agent of pydantic-ai that computes in a session of its own."""

import asyncio

from pydantic_ai import Agent, RunContext
from pydantic_ai.models import Model

from belljar import AsyncSandbox, AsyncSession, Run


async def weather(city: str) -> dict[str, float]:
    """Returns today's temperatures in a city, in degrees Celsius."""
    return {"Oslo": {"low": -2.0, "high": 4.5}, "Rome": {"low": 11.0, "high": 21.0}}[city]


agent = Agent(deps_type=AsyncSession, instructions="Answer by running Python.")


@agent.tool
async def run_python(context: RunContext[AsyncSession], code: str) -> str:
    """Runs Python in a session that keeps its variables. The value of the last line is part of the result.

    Code can call `await weather(city=...)`, which returns {"low": ..., "high": ...} in degrees Celsius.

    Args:
        code: The code of one cell.
    """
    return report(await context.deps.run(code))


def report(run: Run) -> str:
    """Returns the text that the model reads."""
    error = run.error and (run.error.traceback or str(run.error))
    text = "\n".join(part.rstrip() for part in (run.output, run.text, error, run.hint) if part)
    return text[:20_000] or "(no output)"


async def answer(question: str, model: Model | str) -> str:
    async with AsyncSandbox(tools=[weather], limits={"timeout": 10, "memory": "512MB"}) as box:
        result = await agent.run(question, model=model, deps=box.session())
        return result.output


if __name__ == "__main__":
    print(asyncio.run(answer("How much warmer is Rome than Oslo today?", "openai:gpt-6.2-sol")))

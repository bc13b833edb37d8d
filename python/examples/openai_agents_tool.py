"""An agent of the OpenAI Agents SDK that computes in a session of its own."""

import asyncio

from agents import Agent, Model, Runner, RunContextWrapper, function_tool

from belljar import AsyncSandbox, AsyncSession, Run


@function_tool
async def run_python(context: RunContextWrapper[AsyncSession], code: str) -> str:
    """Runs Python in a session that keeps its variables and files. The value of the last line is part of the result.

    Args:
        code: The code of one cell.
    """
    return report(await context.context.run(code))


def report(run: Run) -> str:
    """Returns the text that the model reads."""
    error = run.error and (run.error.traceback or str(run.error))
    text = "\n".join(part.rstrip() for part in (run.output, run.text, error, run.hint) if part)
    return text[:20_000] or "(no output)"


async def answer(question: str, model: Model | str) -> str:
    agent = Agent[AsyncSession](
        name="Analyst", instructions="Answer by running Python.", model=model, tools=[run_python]
    )
    async with AsyncSandbox(limits={"timeout": 10, "memory": "512MB"}) as box, box.session() as session:
        result = await Runner.run(agent, question, context=session)
        return result.final_output_as(str)


if __name__ == "__main__":
    print(asyncio.run(answer("Which weekday was 29 February 2000?", "gpt-6.2-sol")))

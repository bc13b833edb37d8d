"""An agent of pydantic-ai that computes in a session of its own, with a tool that its code calls."""

import asyncio

from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models import Model

from belljar.pydantic_ai import BelljarToolset


async def weather(city: str) -> dict[str, float]:
    """Returns today's temperatures in a city, in degrees Celsius."""
    return {"Oslo": {"low": -2.0, "high": 4.5}, "Rome": {"low": 11.0, "high": 21.0}}[city]


tools = FunctionToolset([weather])
python = BelljarToolset(toolsets=[tools], limits={"timeout": 10, "memory": "512MB"})
agent = Agent(toolsets=[python], instructions="Answer by running Python.")


async def answer(question: str, model: Model | str) -> str:
    result = await agent.run(question, model=model)
    return result.output


if __name__ == "__main__":
    print(asyncio.run(answer("How much warmer is Rome than Oslo today?", "openai:gpt-6.2-sol")))

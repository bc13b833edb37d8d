"""An agent of the OpenAI Agents SDK that computes in a session of its own."""

import asyncio

from agents import Agent, Model, Runner

from belljar.openai_agents import python_tool


async def weather(city: str) -> dict[str, float]:
    """Returns today's temperatures in a city, in degrees Celsius."""
    return {"Oslo": {"low": -2.0, "high": 4.5}, "Rome": {"low": 11.0, "high": 21.0}}[city]


async def answer(question: str, model: Model | str) -> str:
    async with python_tool(tools=[weather], limits={"timeout": 10, "memory": "512MB"}) as run_python:
        agent = Agent(name="Analyst", instructions="Answer by running Python.", model=model, tools=[run_python])
        result = await Runner.run(agent, question)
        return result.final_output_as(str)


if __name__ == "__main__":
    print(asyncio.run(answer("How much warmer is Rome than Oslo today?", "gpt-6.2-sol")))

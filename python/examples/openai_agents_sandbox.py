"""A sandbox agent of the OpenAI Agents SDK in a native kernel."""

import asyncio
from typing import Any

from agents import Model, RunConfig, Runner
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.capabilities import Shell
from agents.sandbox.entries import File

from belljar.openai_agents import BelljarSandboxClient


async def answer(question: str, model: Model | str, **options: Any) -> str:
    files = Manifest(entries={"orders.csv": File(content=b"item,price\napple,1.5\npear,2.25\n")})
    agent = SandboxAgent(
        name="Analyst",
        instructions="Answer by running commands.",
        model=model,
        default_manifest=files,
        capabilities=[Shell()],
    )
    async with BelljarSandboxClient(**options) as client:
        config = RunConfig(sandbox=SandboxRunConfig(client=client))
        result = await Runner.run(agent, question, run_config=config)
        return result.final_output_as(str)


if __name__ == "__main__":
    print(asyncio.run(answer("What do all orders cost?", "gpt-6.2-sol")))

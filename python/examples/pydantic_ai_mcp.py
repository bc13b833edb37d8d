"""An agent of pydantic-ai with Belljar's MCP server, in a process of its own."""

import asyncio

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models import Model


async def answer(question: str, model: Model | str) -> str:
    python = MCPToolset(StdioTransport("belljar", ["stdio"]))
    agent = Agent(model, toolsets=[python], instructions="Answer by running Python.")
    async with agent:
        result = await agent.run(question)
        return result.output


if __name__ == "__main__":
    print(asyncio.run(answer("What is the 100th prime number?", "openai:gpt-6.2-sol")))

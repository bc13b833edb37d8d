"""An agent of pydantic-ai whose model is a function: it calls the tool and reads the answer.

`pydantic_ai_client.py stdio COMMAND ARGS…`, or `http URL`, or `sse URL`.
"""

import asyncio
import sys
import warnings

warnings.simplefilter("ignore")

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPServerSSE, MCPServerStdio, MCPServerStreamableHTTP
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

TOOL = "run_python_code"


def model(messages, info):
    answers = [part for message in messages for part in message.parts if part.part_kind in ("tool-return", "retry-prompt")]
    if not answers:
        assert TOOL in [tool.name for tool in info.function_tools]
        return ModelResponse(parts=[ToolCallPart(TOOL, {"python_code": "print('hi')\n6 * 7"})])
    return ModelResponse(parts=[TextPart(f"{answers[-1].part_kind}: {answers[-1].content}")])


async def main(kind, target, *args):
    logs = []

    async def on_log(message):
        logs.append((message.level, message.data))

    options = {"log_level": "info", "log_handler": on_log, "timeout": 180}
    if kind == "stdio":
        server = MCPServerStdio(target, list(args), **options)
    else:
        server = {"http": MCPServerStreamableHTTP, "sse": MCPServerSSE}[kind](target, **options)
    agent = Agent(FunctionModel(model), toolsets=[server])
    async with agent:
        assert server.server_info.name == "belljar", server.server_info
        answer = (await agent.run("go")).output
        assert answer.startswith("tool-return: ") and "success" in answer and "42" in answer and "hi" in answer, answer
        for _ in range(2000):
            if logs:
                break
            await asyncio.sleep(0.05)
        assert logs == [("info", "hi")], logs


asyncio.run(main(*sys.argv[1:]))

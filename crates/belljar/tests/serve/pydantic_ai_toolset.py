"""An agent of pydantic-ai 2.x whose model is a function: it calls the tool and reads the answer.

`pydantic_ai_toolset.py stdio COMMAND ARGS…`, or `http URL`, or `sse URL`.
"""

import asyncio
import sys
import warnings

warnings.simplefilter("ignore")

from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

TOOL = "run_python_code"
CALLS = [
    {"python_code": "print('hi')\n6 * 7"},
    {"python_code": "raise ValueError('no')"},
    {"python_code": "1", "timeout": -1},
]


def model(messages, info):
    """Makes one call after the other, regardless of the answers, and lists the answers."""
    parts = [part for message in messages for part in message.parts]
    answers = [part for part in parts if part.part_kind in ("tool-return", "retry-prompt")]
    assert TOOL in [tool.name for tool in info.function_tools], info.function_tools
    if len(answers) < len(CALLS):
        return ModelResponse(parts=[ToolCallPart(TOOL, CALLS[len(answers)])])
    return ModelResponse(parts=[TextPart("\n---\n".join(f"{part.part_kind}: {part.content}" for part in answers))])


async def main(kind, target, *args):
    logs = []

    async def on_log(message):
        logs.append((message.level, message.data))

    if kind == "stdio":
        transport = StdioTransport(target, list(args))
    else:
        transport = {"http": StreamableHttpTransport, "sse": SSETransport}[kind](target)
    server = MCPToolset(transport, log_level="info", log_handler=on_log, init_timeout=180, max_retries=3)
    async with Agent(FunctionModel(model), toolsets=[server]) as agent:
        good, failed, wrong = (await agent.run("go")).output.split("\n---\n")
        assert good.startswith("tool-return: ") and "success" in good and "42" in good and "hi" in good, good
        assert failed.startswith("tool-return: ") and "run-error" in failed and "ValueError: no" in failed, failed
        assert "timeout: expected a number of seconds above 0" in wrong, wrong
        for _ in range(100):
            if logs:
                break
            await asyncio.sleep(0.05)
        assert logs[0] == ("info", "hi"), logs


asyncio.run(main(*sys.argv[1:]))

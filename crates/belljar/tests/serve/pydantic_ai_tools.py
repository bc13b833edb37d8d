"""An agent of pydantic-ai 2.x that solves a task over three MCP servers with one call of `run_python_code`.

Its model is a function: it writes the code from the functions that the tool's description has, and reads the answer.
Arguments: the path of a file of time zones, and `stdio COMMAND ARGS…`.
"""

import asyncio
import json
import sys
import warnings

warnings.simplefilter("ignore")

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

TOOL = "run_python_code"
FUNCTIONS = ["async def read_text_file(", "async def convert_time(", "async def write_query("]
CODE = """
import asyncio
from tools import files, sqlite, time

text = await files.read_text_file(path={path!r})
zones = (text if isinstance(text, str) else text["content"]).split()
noons = await asyncio.gather(
    *(time.convert_time(source_timezone="UTC", time="12:00", target_timezone=zone) for zone in zones)
)
await sqlite.create_table(query="create table noon (zone text, hour integer)")
for zone, noon in zip(zones, noons):
    hour = noon["target"]["datetime"][11:13]
    await sqlite.write_query(query=f"insert into noon values ('{{zone}}', {{int(hour)}})")
await sqlite.read_query(query="select zone, hour from noon order by hour desc limit 1")
"""


async def main(path, _, command, *args):
    calls = []

    def model(messages, info):
        (tool,) = [tool for tool in info.function_tools if tool.name == TOOL]
        assert all(function in tool.description for function in FUNCTIONS), tool.description
        answers = [part for message in messages for part in message.parts if part.part_kind == "tool-return"]
        if not answers:
            calls.append(CODE.format(path=path))
            return ModelResponse(parts=[ToolCallPart(TOOL, {"python_code": calls[0]})])
        return ModelResponse(parts=[TextPart(json.dumps(answers[0].content, default=str))])

    server = MCPToolset(StdioTransport(command, list(args)), init_timeout=180)
    async with Agent(FunctionModel(model), toolsets=[server]) as agent:
        output = (await agent.run("Where is it latest when it is noon in UTC?")).output
        assert "Asia/Tokyo" in output and "run-error" not in output, output
        assert len(calls) == 1, calls


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 200))

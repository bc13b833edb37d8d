"""Lets code call tools through a Belljar server, and answers its questions, with the Python MCP SDK, 1.x or 2.x.

Arguments: `stdio COMMAND ARGS…`, `http URL` or `sse URL`.
"""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client

try:
    from mcp.client.streamable_http import streamable_http_client
except ImportError:
    from mcp.client.streamable_http import streamablehttp_client as streamable_http_client
try:
    from mcp_types import ElicitResult
except ImportError:
    from mcp.types import ElicitResult

CODE = """
from tools import t, ToolDenied
done = [await t.add(a=1)]
for text in "abcd":
    try:
        done.append(await t.note(text=text))
    except ToolDenied as error:
        done.append(str(error))
done
"""
ANSWERS = ["yes", "no", None, "run"]


def connect(kind, target):
    if kind == "stdio":
        return stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    return sse_client(target[0]) if kind == "sse" else streamable_http_client(target[0])


async def main(kind, *target):
    asked = []

    async def answer(context, params):
        answer = ANSWERS[len(asked)]
        asked.append(params.message)
        if answer is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"value": answer})

    async with connect(kind, list(target)) as streams:
        async with ClientSession(streams[0], streams[1], elicitation_callback=answer) as session:
            await session.initialize()
            (run, *_) = [tool for tool in (await session.list_tools()).tools if tool.name == "run_python_code"]
            assert "async def add(*, a: int, b: int = 1) -> int:" in run.description, run.description
            for tool, argument in [("run_python_code", "python_code"), ("execute_code", "code")]:
                asked.clear()
                text = (await session.call_tool(tool, {argument: CODE})).content[0].text
                denied = "the user denied the call of `t.note`"
                assert text.count("noted ") == 2 and text.count(denied) >= 2, text
                assert "noted a" in text and "noted d" in text, text
                assert len(asked) == 4 and "note of the MCP server t" in asked[0], asked


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 200))

"""Drives a Belljar server with the Python MCP SDK, 1.x or 2.x.

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


def connect(kind, target):
    if kind == "stdio":
        return stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    return sse_client(target[0]) if kind == "sse" else streamable_http_client(target[0])


async def main(kind, *target):
    logs = asyncio.Queue()

    async def on_log(message):
        await logs.put((message.level, message.logger, message.data))

    async with connect(kind, list(target)) as streams:
        async with ClientSession(streams[0], streams[1], logging_callback=on_log) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            assert [tool.name for tool in tools] == ["run_python_code"], tools
            if kind != "stateless":
                await session.set_logging_level("info")
            progress = []

            async def on_progress(done, total, message):
                progress.append((done, total, message))

            result = await session.call_tool(
                "run_python_code",
                {"python_code": "print('hi')\nx + 1", "global_variables": {"x": 41}},
                progress_callback=on_progress,
            )
            wanted = "<status>success</status>\n<output>\nhi\n</output>\n<return_value>\n42\n</return_value>"
            assert result.content[0].text == wanted, result
            assert any(message == "running" for _, _, message in progress), progress
            if kind != "stateless":
                assert await asyncio.wait_for(logs.get(), 180) == ("info", "python", "hi")
            failed = await session.call_tool("run_python_code", {"python_code": "1 / 0"})
            assert "ZeroDivisionError: division by zero" in failed.content[0].text, failed
            wrong = await session.call_tool("run_python_code", {"python_code": "1", "timeout": -1})
            assert getattr(wrong, "is_error", None) or getattr(wrong, "isError", None), wrong
            several = [session.call_tool("run_python_code", {"python_code": f"{n} * 2"}) for n in range(8)]
            for n, result in enumerate(await asyncio.gather(*several)):
                assert f"<return_value>\n{n * 2}\n" in result.content[0].text, result


asyncio.run(main(*sys.argv[1:]))

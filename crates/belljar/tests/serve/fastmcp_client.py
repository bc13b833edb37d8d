"""Drives a Belljar server with fastmcp's client.

Arguments: `stdio COMMAND ARGS…`, `http URL` or `sse URL`.
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ToolError


async def main(kind, target, *args):
    progress = []

    async def on_progress(done, total, message):
        progress.append(message)

    if kind == "stdio":
        transport = StdioTransport(target, list(args))
    else:
        transport = {"http": StreamableHttpTransport, "sse": SSETransport}[kind](target)
    async with Client(transport, progress_handler=on_progress, init_timeout=180) as client:
        assert [tool.name for tool in await client.list_tools()] == ["run_python_code"]
        result = await client.call_tool(
            "run_python_code", {"python_code": "print('hi')\nx + 1", "global_variables": {"x": 41}}
        )
        assert result.structured_content == {"status": "success", "output": ["hi"], "return_value": 42}, result
        assert "<return_value>\n42\n" in result.content[0].text, result
        assert "running" in progress, progress
        try:
            await client.call_tool("run_python_code", {})
        except ToolError as error:
            assert "python_code" in str(error), error
        else:
            raise AssertionError("a call without code is no error")
        several = [client.call_tool("run_python_code", {"python_code": f"{n} * 2"}) for n in range(8)]
        values = [result.structured_content["return_value"] for result in await asyncio.gather(*several)]
        assert values == [0, 2, 4, 6, 8, 10, 12, 14], values


asyncio.run(main(*sys.argv[1:]))

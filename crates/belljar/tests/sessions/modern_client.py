"""Drives Belljar's sessions with the Python MCP SDK 2.x in the protocol's modern era.

Arguments: `stdio COMMAND ARGS…` or `http URL`.
"""

import asyncio
import json
import sys

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.subscriptions import ResourceUpdated
from mcp_types import ElicitResult


async def answer(context, params):
    return ElicitResult(action="accept", content={"value": params.message.split()[-1]})


async def main(kind, *target):
    where = target[0] if kind == "http" else stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with Client(where, mode="2026-07-28", elicitation_callback=answer) as client:

        async def run(code, session=""):
            result = await client.call_tool("execute_code", {"code": code, "session_id": session})
            return json.loads(result.content[0].text)

        first = await run("input('Say one') + input('Say two')")
        assert first["result"] == "'onetwo'", first
        session = first["session_info"]["session_id"]
        uri = (await run("open('a.txt', 'w').write('1')", session))["files"][0]["uri"]
        async with client.listen(resources_list_changed=True, resource_subscriptions=[uri]) as news:
            assert news.honored.resource_subscriptions == [uri], news.honored
            await run("open('a.txt', 'w').write('22')", session)
            async for event in news:
                assert isinstance(event, ResourceUpdated) and event.uri == uri, event
                break


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 200))

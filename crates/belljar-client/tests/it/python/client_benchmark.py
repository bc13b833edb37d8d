"""Calls a server's `echo` with the Python SDK's client and prints the median time of a round, in seconds."""

import asyncio
import sys
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

CALLS, ROUNDS, TARGET = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


async def measure() -> float:
    if TARGET.startswith("http"):
        streams = streamable_http_client(TARGET)
    else:
        streams = stdio_client(StdioServerParameters(command=TARGET, args=["--serve", "stdio"]))
    async with streams as (reading, writing, *_), ClientSession(reading, writing) as session:
        await session.initialize()
        await session.call_tool("echo", {"number": 0})
        started = time.perf_counter()
        for number in range(CALLS):
            result = await session.call_tool("echo", {"number": number})
            assert str(number) in result.content[0].text
        return time.perf_counter() - started


async def main() -> None:
    times = [await measure() for _ in range(ROUNDS)]
    print(sorted(times)[ROUNDS // 2])


asyncio.run(main())

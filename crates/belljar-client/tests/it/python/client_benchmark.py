"""Calls a server's `echo` with the Python SDK's client and prints medians in seconds.

The numbers are the time of sequential calls, their processor time, and the time of concurrent calls.
"""

import asyncio
import sys
import time

import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

CALLS, CONCURRENT, ROUNDS = (int(argument) for argument in sys.argv[1:4])
TARGET, *ARGUMENTS = sys.argv[4:]


async def call(session: ClientSession, number: int) -> None:
    result = await session.call_tool("echo", {"number": number})
    assert str(number) in result.content[0].text


async def measure() -> tuple[float, float, float]:
    if TARGET.startswith("http"):
        # One connection per call and no pool timeout: with the defaults a thousand concurrent calls fail.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        streams = streamable_http_client(TARGET, http_client=httpx.AsyncClient(timeout=None, limits=limits))
    else:
        streams = stdio_client(StdioServerParameters(command=TARGET, args=ARGUMENTS))
    async with streams as (reading, writing, *_), ClientSession(reading, writing) as session:
        await session.initialize()
        await call(session, 0)
        started, before = time.perf_counter(), time.process_time()
        for number in range(CALLS):
            await call(session, number)
        one_by_one, cpu = time.perf_counter() - started, time.process_time() - before
        started = time.perf_counter()
        await asyncio.gather(*(call(session, number) for number in range(CONCURRENT)))
        return one_by_one, cpu, time.perf_counter() - started


async def main() -> None:
    rounds = [await measure() for _ in range(ROUNDS)]
    for times in zip(*rounds, strict=True):
        print(sorted(times)[ROUNDS // 2])


asyncio.run(main())

"""Connects to a server: `connect.py URL TOKEN`. Prints the value of a feed, or exits with 3 and prints the refusal."""

import asyncio
import os
import sys

from pydantic_monty import AsyncMontyWebsocket


async def main(url: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    pool = AsyncMontyWebsocket(url, connect_headers=lambda: headers, request_timeout=60)
    try:
        async with pool, pool.checkout() as session:
            print(await session.feed_run("6 * 7"), flush=True)
    except Exception as error:  # noqa: BLE001
        print(f"{type(error).__name__}: {error}", flush=True)
        return 3
    return 0


# The client's threads sometimes abort a Python that ends by itself, with Monty's own worker, too.
os._exit(asyncio.run(main(*sys.argv[1:])))

"""Uses up a quota of processor time: `refused.py URL TOKEN`. The next feed is refused, and the connection ends."""

import asyncio
import os
import sys

from pydantic_monty import AsyncMontyWebsocket

BURN = "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass"


async def main(url: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    pool = AsyncMontyWebsocket(url, connect_headers=lambda: headers, request_timeout=180, auto_resume=False)
    async with pool, pool.checkout() as session:
        for _ in range(100):
            try:
                await session.feed_run(BURN)
            except Exception as error:  # noqa: BLE001
                print(f"{type(error).__name__}: {error}", flush=True)
                return
    raise AssertionError("no feed is refused")


asyncio.run(main(*sys.argv[1:]))
# The client's threads sometimes abort a Python that ends by itself, with Monty's own worker, too.
os._exit(0)

"""Cancels a feed that runs: `cancelled.py WORKER`, or `cancelled.py URL TOKEN` of a server that runs one feed at a
time. The next session can run code.
"""

import asyncio
import os
import sys
from typing import Any

from pydantic_monty import AsyncMonty, AsyncMontyWebsocket

ENDLESS = "print('begun')\nwhile True: pass"
WAITING = "await never()"


def pool(target: list[str]) -> Any:
    if target[0].startswith("ws"):
        headers = {"Authorization": f"Bearer {target[1]}"}
        return AsyncMontyWebsocket(target[0], connect_headers=lambda: headers, request_timeout=120)
    return AsyncMonty(binary_path=target[0], max_processes=1)


async def cancel(workers: Any, code: str) -> None:
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    async def never() -> None:
        begun.set()
        await asyncio.Event().wait()

    def on_print(*_: str) -> None:
        if code == ENDLESS:
            loop.call_soon_threadsafe(begun.set)

    async with workers.checkout() as session:
        lookup = {"never": never}
        running = asyncio.ensure_future(session.feed_run(code, print_callback=on_print, external_lookup=lookup))
        await begun.wait()
        running.cancel()
        await running


async def main(target: list[str]) -> None:
    async with pool(target) as workers:
        for code in (ENDLESS, WAITING):
            try:
                await cancel(workers, code)
            except asyncio.CancelledError:
                pass
            else:
                raise AssertionError("the feed was not cancelled")
            async with workers.checkout() as session:
                assert await session.feed_run("6 * 7") == 42


asyncio.run(main(sys.argv[1:]))
# The client's threads sometimes abort a Python that ends by itself, with Monty's own worker, too.
os._exit(0)

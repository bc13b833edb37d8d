"""Ends a server while a feed runs: `draining.py URL PID`. The feed ends, and the next request returns the session."""

import asyncio
import os
import signal
import sys

from pydantic_monty import AsyncMontyWebsocket, MontyShutdown

CODE = "import time\nprint('begun')\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nx + 1"


async def main(url: str, server: int) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with AsyncMontyWebsocket(url, auto_resume=False, request_timeout=180) as pool, pool.checkout() as session:
        await session.feed_run("x = 41")
        on_print = lambda *_: loop.call_soon_threadsafe(begun.set)  # noqa: E731
        running = asyncio.ensure_future(session.feed_run(CODE, print_callback=on_print))
        await begun.wait()
        os.kill(server, signal.SIGTERM)
        assert await running == 42
        try:
            await session.feed_run("x")
        except MontyShutdown as shutdown:
            assert shutdown.dump, shutdown
        else:
            raise AssertionError("the server goes on")


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
# The client's threads sometimes abort a Python that ends by itself, with Monty's own worker, too.
os._exit(0)

"""Runs feeds that an operator watches and interrupts: `shown_feeds.py URL`. Goes on at each line of its input."""

import asyncio
import sys

from pydantic_monty import AsyncFunctionSnapshot, AsyncMontyWebsocket, MontyComplete, MontyRuntimeError


async def main(url: str) -> None:
    client = AsyncMontyWebsocket(url, connect_headers=lambda: {}, request_timeout=120)
    async with client as pool, pool.checkout() as session:
        step = await session.feed_start("print('before')\nawait approve()")
        assert isinstance(step, AsyncFunctionSnapshot), step
        await asyncio.to_thread(sys.stdin.readline)
        done = await step.resume({"return_value": 1})
        assert isinstance(done, MontyComplete) and done.output == 1, done
        try:
            await session.feed_run("1 / 0")
        except MontyRuntimeError as error:
            assert isinstance(error.exception(), ZeroDivisionError), error
        else:
            raise AssertionError("no error")
        try:
            await session.feed_run("while True: pass")
        except MontyRuntimeError as error:
            assert isinstance(error.exception(), KeyboardInterrupt), error
        else:
            raise AssertionError("the feed was not interrupted")
        assert await session.feed_run("sum(range(1_000_000))") == 499999500000


asyncio.run(main(sys.argv[1]))
print("done", flush=True)

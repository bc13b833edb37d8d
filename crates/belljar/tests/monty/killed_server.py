"""Kills a server while a feed waits: `killed_server.py URL TOKEN DUMP PID`. With another server, and without PID, the
feed goes on from the file DUMP.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_monty import AsyncFunctionSnapshot, AsyncMontyWebsocket, MontyComplete, MontyError

CODE = "data = list(range(1000))\nx = await approve()\nsum(data) + x"


async def kill(session: Any, dump: Path, server: int) -> None:
    step = await session.feed_start(CODE)
    assert isinstance(step, AsyncFunctionSnapshot), step
    dump.write_bytes(step.dump())
    os.kill(server, signal.SIGKILL)
    try:
        await step.resume({"return_value": 1})
    except (MontyError, OSError):
        return
    raise AssertionError("the killed server went on")


async def go_on(session: Any, dump: Path) -> None:
    step = await session.load_snapshot(dump.read_bytes())
    assert isinstance(step, AsyncFunctionSnapshot) and step.function_name == "approve", step
    done = await step.resume({"return_value": 7})
    assert isinstance(done, MontyComplete) and done.output == 499500 + 7, done
    assert await session.feed_run("len(data)") == 1000


async def main(url: str, token: str, dump: str, *server: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    pool = AsyncMontyWebsocket(url, connect_headers=lambda: headers, request_timeout=180, auto_resume=False)
    async with pool, pool.checkout() as session:
        if server:
            await kill(session, Path(dump), int(server[0]))
        else:
            await go_on(session, Path(dump))


asyncio.run(main(*sys.argv[1:]))
# The client's threads sometimes abort a Python that ends by itself, with Monty's own worker, too.
os._exit(0)

"""asyncio with top-level await: `belljar run examples/concurrent.py`."""

import asyncio


async def brew(drink: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"{drink} is ready after {seconds} s"


for line in await asyncio.gather(brew("tea", 0.2), brew("coffee", 0.1)):  # noqa: F704 (cells may await)
    print(line)

"""Measures requests of 1 KB over TLS at the same time, by `aiohttp`. Prints the seconds of each round."""

import asyncio
import json
import sys
import time

import aiohttp

url, count, rounds = sys.argv[1] + "/bytes?count=1024", int(sys.argv[2]), int(sys.argv[3])


async def main():
    times = []
    for _ in range(rounds):
        async with aiohttp.ClientSession() as session:

            async def get():
                async with session.get(url) as answer:
                    return len(await answer.read())

            begin = time.perf_counter()
            sizes = await asyncio.gather(*(get() for _ in range(count)))
            times.append(time.perf_counter() - begin)
            assert sizes == [1024] * count
    print(json.dumps(times))


asyncio.run(main())

"""Compares workers of Monty's protocol: `monty.py NAME=PATH NAME=PATH…`, each the path of a worker's program.

Requires pydantic-monty. All workers take turns in each round; the medians of the rounds are printed in microseconds.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from pydantic_monty import AsyncMonty, Monty

ROUNDS = 7
FEEDS = 300
TOOL_CALLS = """
import asyncio
first = [await tool(x=i) for i in range(10)]
rest = await asyncio.gather(*(tool(x=i) for i in range(10)))
sum(first) + sum(rest)
"""


def feeds(path: str) -> Callable[[], float]:
    """Returns the measurement of a feed of ``1 + 1`` with the synchronous client."""
    pool = Monty(binary_path=path, max_processes=1)
    pool.__enter__()
    session = pool.checkout()
    active = session.__enter__()
    active.feed_run("1 + 1")

    def measure() -> float:
        begin = time.perf_counter()
        for _ in range(FEEDS):
            active.feed_run("1 + 1")
        return (time.perf_counter() - begin) / FEEDS

    return measure


def checkouts(path: str) -> Callable[[], float]:
    """Returns the measurement of a new session with its first feed, in a worker that runs."""
    pool = Monty(binary_path=path, max_processes=1)
    pool.__enter__()

    def measure() -> float:
        begin = time.perf_counter()
        for _ in range(5):
            with pool.checkout() as session:
                session.feed_run("1 + 1")
        return (time.perf_counter() - begin) / 5

    measure()
    return measure


async def tool_calls(path: str) -> Callable[[], Awaitable[float]]:
    """Returns the measurement of code that calls a function of the host 20 times, half of them at once."""

    async def tool(x: int) -> int:
        return x

    pool = AsyncMonty(binary_path=path, max_processes=1)
    await pool.__aenter__()
    session = await pool.checkout().__aenter__()

    async def measure() -> float:
        begin = time.perf_counter()
        for _ in range(10):
            assert await session.feed_run(TOOL_CALLS, external_lookup={"tool": tool}) == 90
        return (time.perf_counter() - begin) / 10

    await measure()
    return measure


def show(what: str, results: dict[str, list[float]]) -> None:
    for name, seconds in results.items():
        print(f"{what:<28} {name:<12} {statistics.median(seconds) * 1e6:>10.0f} µs  (best {min(seconds) * 1e6:.0f})")


async def main(workers: dict[str, str]) -> None:
    for what, prepare in (("1 + 1", feeds), ("new session with 1 + 1", checkouts)):
        measures = {name: prepare(path) for name, path in workers.items()}
        results: dict[str, list[float]] = {name: [] for name in workers}
        for _ in range(ROUNDS):
            for name, measure in measures.items():
                results[name].append(measure())
        show(what, results)
    asynchronous = {name: await tool_calls(path) for name, path in workers.items()}
    results = {name: [] for name in workers}
    for _ in range(ROUNDS):
        for name, measure_calls in asynchronous.items():
            results[name].append(await measure_calls())
    show("20 calls of tools", results)


asyncio.run(main(dict(argument.split("=", 1) for argument in sys.argv[1:])))

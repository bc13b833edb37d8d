"""Compares workers of Monty's protocol: `monty.py NAME=PATH NAME=PATH…`, each the path of a worker's program.

Requires pydantic-monty and `pydantic-ai-harness[code-mode]`. All workers take turns in each round; the medians of the
rounds are printed in microseconds.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness import CodeMode
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
    session = pool.checkout(limits={"max_suspensions": 10**9})
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
    session = await pool.checkout(limits={"max_suspensions": 10**9}).__aenter__()

    async def measure() -> float:
        begin = time.perf_counter()
        for _ in range(10):
            assert await session.feed_run(TOOL_CALLS, external_lookup={"tool": tool}) == 90
        return (time.perf_counter() - begin) / 10

    await measure()
    return measure


CODE_MODE = """
import asyncio
cities = [await city_of(order=number) for number in range(10)]
prices = await asyncio.gather(*[price_of(order=number, city=city) for number, city in enumerate(cities)])
{'orders': len(cities), 'total': sum(prices)}
"""


async def code_mode(path: str) -> Callable[[], Awaitable[float]]:
    """Returns the measurement of a run of an agent with CodeMode, whose model writes code with 20 calls of tools."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        answers = [part for part in parts if part.part_kind == "tool-return"]
        if not answers:
            return ModelResponse(parts=[ToolCallPart("run_code", {"code": CODE_MODE})])
        return ModelResponse(parts=[TextPart(str(answers[0].content))])

    agent = Agent(FunctionModel(model), capabilities=[CodeMode()])
    calls = 0

    @agent.tool_plain
    async def city_of(order: int) -> str:
        """Returns the city of an order."""
        nonlocal calls
        calls += 1
        return f"city {order}"

    @agent.tool_plain
    async def price_of(order: int, city: str) -> int:
        """Returns the price of an order in a city."""
        nonlocal calls
        calls += 1
        return order * len(city)

    async def measure() -> float:
        nonlocal calls
        # The client reads it when a run starts its worker.
        os.environ["MONTY_BIN"], calls = path, 0
        begin = time.perf_counter()
        result = await agent.run("What do the orders cost?")
        spent = time.perf_counter() - begin
        assert calls == 20 and "270" in result.output, result.output
        return spent

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
    for what, prepare_calls in (("20 calls of tools", tool_calls), ("CodeMode with 20 calls", code_mode)):
        asynchronous = {name: await prepare_calls(path) for name, path in workers.items()}
        results = {name: [] for name in workers}
        for _ in range(ROUNDS):
            for name, measure_calls in asynchronous.items():
                results[name].append(await measure_calls())
        show(what, results)


asyncio.run(main(dict(argument.split("=", 1) for argument in sys.argv[1:])))

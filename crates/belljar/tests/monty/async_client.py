"""Runs feeds with pydantic-monty's asynchronous client: `async_client.py WORKER`, or `async_client.py URL TOKEN`."""

import asyncio
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic_monty import (
    AsyncFunctionSnapshot,
    AsyncFutureSnapshot,
    AsyncMonty,
    AsyncMontySession,
    AsyncMontyWebsocket,
    MontyComplete,
    MontyError,
    MontyRuntimeError,
)


def pool(target: list[str]) -> Any:
    if target[0].startswith("ws"):
        headers = {"Authorization": f"Bearer {target[1]}"}
        return AsyncMontyWebsocket(target[0], connect_headers=lambda: headers, request_timeout=180, max_processes=64)
    return AsyncMonty(binary_path=target[0], max_processes=20)


async def check_calls(session: AsyncMontySession) -> None:
    active, most = 0, 0

    async def double(x: int) -> int:
        nonlocal active, most
        active, most = active + 1, max(most, active + 1)
        await asyncio.sleep(0.05)
        active -= 1
        return x * 2

    async def fail(x: int) -> int:
        await asyncio.sleep(0)
        raise ValueError(f"no {x}")

    lookup = {"double": double, "fail": fail, "add": lambda x, y: x + y}
    run = lambda code: session.feed_run(code, external_lookup=lookup)  # noqa: E731
    assert await run("await double(4)") == 8
    assert await run("import asyncio\nawait asyncio.gather(double(1), double(2), double(3))") == [2, 4, 6]
    assert await run("calls = [double(i) for i in range(4)]\nawait asyncio.gather(*calls)") == [0, 2, 4, 6]
    assert await run("async def f(i):\n    return add(await double(i), 1)\nawait asyncio.gather(f(1), f(2))") == [3, 5]
    assert await run("def g(i):\n    return double(i)\nawait g(5)") == 10
    assert await run("task = asyncio.create_task(double(6))\nawait asyncio.sleep(0.01)\nawait task") == 12
    assert await run("[await double(i) for i in range(3)]") == [0, 2, 4]
    assert await run("add(1, 2) + await double(1)") == 5
    assert most >= 3, most
    caught = "try:\n    await fail(1)\nexcept ValueError as error:\n    text = str(error)\ntext"
    assert await run(caught) == "no 1"
    results = "[str(x) for x in await asyncio.gather(fail(1), double(1), return_exceptions=True)]"
    assert await run(results) == ["no 1", "2"]
    try:
        await run("await fail(2)")
    except MontyRuntimeError as error:
        assert isinstance(error.exception(), ValueError), error
    else:
        raise AssertionError("no error")
    assert await run("async with asyncio.timeout(60):\n    r = await double(1)\nr") == 2
    begin = time.monotonic()
    assert await run("await asyncio.gather(asyncio.sleep(0.3), asyncio.sleep(0.3), double(1))") == [None, None, 2]
    assert time.monotonic() - begin < 60


async def check_libraries(session: AsyncMontySession) -> None:
    code = "import dataclasses, re\n@dataclasses.dataclass\nclass A:\n    x: int\nre.sub('a', 'b', repr(A(1)))"
    assert await session.feed_run(code) == "A(x=1)"


async def suspended(session: AsyncMontySession, code: str) -> Any:
    step = await session.feed_start(code)
    assert isinstance(step, AsyncFunctionSnapshot), step
    return step


async def check_dumps(target: list[str]) -> None:
    async with pool(target) as first, first.checkout(script_name="job.py") as session:
        await session.feed_run("before = [1]\nclass Seen: pass\nseen = Seen()")
        idle = await session.dump()
        step = await suspended(session, "value = await approve('now')\n[before, value, seen is not None]")
        during = step.dump()
        # The session goes on after a dump.
        done = await step.resume({"return_value": "yes"})
        assert isinstance(done, MontyComplete) and done.output == [[1], "yes", True]
        step = await suspended(session, "import asyncio\nawait asyncio.gather(approve(1), approve(2))")
        step = await step.resume({"future": ...})
        assert isinstance(step, AsyncFunctionSnapshot)
        step = await step.resume({"future": ...})
        assert isinstance(step, AsyncFutureSnapshot), step
        both = step.dump()
        done = await step.resume({number: {"return_value": number} for number in step.pending_call_ids})
        assert isinstance(done, MontyComplete)
        step = await suspended(session, "def sync():\n    return approve(3)\nsync()")
        try:
            step.dump()
        except MontyError as error:
            assert "await" in str(error), error
        else:
            raise AssertionError("a frame on the stack was saved")
        done = await step.resume({"return_value": 1})
        assert isinstance(done, MontyComplete) and done.output == 1
    # Other workers go on, twice from the same bytes.
    for answer in ("later", "again"):
        async with pool(target) as second, second.checkout() as session:
            step = await session.load_snapshot(during)
            assert isinstance(step, AsyncFunctionSnapshot) and (step.function_name, step.args) == ("approve", ("now",))
            assert step.script_name == "job.py"
            done = await step.resume({"return_value": answer})
            assert isinstance(done, MontyComplete) and done.output == [[1], answer, True], done
            assert await session.feed_run("before") == [1]
    async with pool(target) as third, third.checkout() as session:
        step = await session.load_snapshot(both)
        assert isinstance(step, AsyncFutureSnapshot) and len(step.pending_call_ids) == 2
        first_id, second_id = step.pending_call_ids
        step = await step.resume({second_id: {"return_value": "b"}})
        assert isinstance(step, AsyncFutureSnapshot) and step.pending_call_ids == [first_id]
        done = await step.resume({first_id: {"return_value": "a"}})
        assert isinstance(done, MontyComplete) and done.output == ["a", "b"]
    async with pool(target) as fourth, fourth.checkout() as session:
        await session.load_session(idle)
        assert await session.feed_run("before + [2]") == [1, 2]
    for damaged in (b"", b"bj-monty1", idle[:-1], during[:50] + b"\0" + during[51:]):
        async with pool(target) as fifth, fifth.checkout() as session:
            try:
                await session.load_session(damaged)
            except MontyError:
                assert await session.feed_run("1") == 1
            else:
                raise AssertionError("damaged bytes were loaded")


async def check_many(target: list[str]) -> None:
    async def work(session: AsyncMontySession, number: int) -> int:
        async def tool(x: int) -> int:
            await asyncio.sleep(0.02)
            return x + number

        return await session.feed_run("sum([await tool(i) for i in range(5)])", external_lookup={"tool": tool})

    async with pool(target) as many, AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(many.checkout()) for _ in range(20)]
        found = await asyncio.gather(*(work(session, number) for number, session in enumerate(sessions)))
        assert found == [10 + 5 * number for number in range(20)], found


async def check_kill(target: list[str]) -> None:
    """A worker is killed while it waits. Another one goes on from the dump."""
    async with pool(target) as first:
        async with first.checkout() as session:
            step = await suspended(session, "data = list(range(1000))\nx = await approve()\nsum(data) + x")
            state = step.dump()
            # Each thread of this process has children of its own.
            for children in Path("/proc/self/task").glob("*/children"):
                for child in map(int, children.read_text().split()):
                    os.kill(child, signal.SIGKILL)
            try:
                await step.resume({"return_value": 1})
            except MontyError:
                pass
            else:
                raise AssertionError("the killed worker went on")
    async with pool(target) as second, second.checkout() as session:
        step = await session.load_snapshot(state)
        assert isinstance(step, AsyncFunctionSnapshot)
        done = await step.resume({"return_value": 7})
        assert isinstance(done, MontyComplete) and done.output == 499500 + 7


async def main(target: list[str]) -> None:
    async with pool(target) as only, only.checkout() as session:
        await check_calls(session)
        await check_libraries(session)
    await check_dumps(target)
    await check_many(target)
    if not target[0].startswith("ws"):
        await check_kill(target)


asyncio.run(main(sys.argv[1:]))
# The client's threads sometimes abort a Python that ends by itself, with Monty's own worker, too.
os._exit(0)

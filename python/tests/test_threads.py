"""Threads and event loops: sandboxes, sessions and tools that several of them use."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest
from conftest import need

from belljar import AsyncSandbox, Sandbox


def test_one_sandbox_runs_hundreds_of_pieces_from_threads() -> None:
    barrier = threading.Barrier(50)

    def work(number: int) -> int:
        barrier.wait(60)
        return sum(int(box.run(f"{number} + {step}").check().value) for step in range(6))

    with Sandbox(install=False) as box, concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert list(pool.map(work, range(50))) == [6 * number + 15 for number in range(50)]


def test_cells_of_one_session_from_many_threads_do_not_mix() -> None:
    with Sandbox(install=False) as box, box.session() as session, concurrent.futures.ThreadPoolExecutor(16) as pool:
        session.run("total = 0").check()
        list(pool.map(lambda number: session.run(f"total += {number}").check(), range(60)))
        assert session.run("total").value == sum(range(60))


def test_tools_run_on_the_thread_of_their_code_and_do_not_mix() -> None:
    def own(number: int) -> int:
        return number

    def work(number: int) -> bool:
        run = box.run("[await own(n) for _ in range(10)]", globals={"n": number}).check()
        return bool(run.value == [number] * 10) and {call.args for call in run.calls} == {(number,)}

    with Sandbox(tools=[own], install=False) as box, concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(64)))


def test_event_loops_in_several_threads() -> None:
    async def twice(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def main(number: int) -> list[int]:
        async with AsyncSandbox(tools=[twice], install=False) as box:
            runs = await asyncio.gather(*(box.run(f"await twice({number})") for _ in range(10)))
            return [run.check().value for run in runs]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: asyncio.run(main(number)), range(8)))
    assert results == [[2 * number] * 10 for number in range(8)]


def test_long_code_does_not_delay_short_code(box: Sandbox) -> None:
    started, enough = threading.Event(), threading.Event()

    def receive(text: str) -> None:
        started.set()
        if enough.is_set():
            raise InterruptedError

    def spin() -> None:
        with pytest.raises(InterruptedError):
            box.run("while True: print('on')", on_stdout=receive, timeout=60)

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        assert started.wait(60)
        for number in range(20):
            assert box.run(f"{number}").value == number
        assert thread.is_alive()
    finally:
        enough.set()
        thread.join()


def test_uvloop_runs_and_cancels_code() -> None:
    uvloop = need("uvloop")

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    async def main() -> list[int]:
        async with AsyncSandbox(tools=[double], install=False) as box:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(box.run("while True: pass"), 0.3)
            runs = await asyncio.gather(*(box.run(f"await double({number})") for number in range(50)))
            return [run.check().value for run in runs]

    assert uvloop.run(main()) == [number * 2 for number in range(50)]

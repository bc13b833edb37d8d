"""Memory, threads, descriptors, mappings and objects after many uses."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import belljar
from belljar import AsyncSandbox, Sandbox


def resident() -> int:
    """Returns the memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resources() -> dict[str, int]:
    """Counts what this process holds."""
    gc.collect()
    kinds = Counter(type(each) for each in gc.get_objects())
    counts = {kind.__name__: count for kind, count in kinds.items() if str(kind.__module__).startswith("belljar")}
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        **counts,
    }


def wait_until(holds: Callable[[], bool]) -> bool:
    """Returns whether a condition holds within a minute: threads that end are gone a little later."""
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_memory_after_10_000_runs(box: Sandbox) -> None:
    def work(count: int) -> None:
        for number in range(count):
            assert box.run("x", globals={"x": number}).value == number

    work(300)
    before = resident()
    work(10_000)
    assert resident() - before < 16 << 20


def test_memory_after_large_values(box: Sandbox) -> None:
    data = bytes(8 << 20)

    def work(count: int) -> None:
        for _ in range(count):
            assert len(box.run("x", globals={"x": data}).check().value) == len(data)

    work(10)
    before = resident()
    work(60)
    # The allocator keeps some of them; a leak keeps all.
    assert resident() - before < 30 * len(data)


def use_everything(box: Sandbox) -> None:
    """Uses the library in all ways in which a run or a session can end."""
    for code in (
        "1",
        "1 / 0",
        "import sys; sys.exit(3)",
        "await double(4)",
        "await fail()",
        "print('x' * 9999)",
        "def",
    ):
        run = box.run(code, globals={"data": b"x" * 5000}, on_stdout=lambda text: None)
        _ = run.value
    assert box.run("while True: pass", timeout=0.05).limit == "time"
    with pytest.raises(belljar.CodeError):
        box.run("1 / 0").check()
    with box.session() as session:
        session.run("x = await double(2)").check()
        session.files.write("a.txt", b"1")
        loaded = box.load(session.dump())
        assert isinstance(loaded, belljar.Session)
        with session.fork() as other, loaded:
            assert other.run("x").value == loaded.run("x").value == 4
        session.restart()
        assert session.run("import os; os._exit(1)").status == "exit"

    async def main() -> None:
        async with AsyncSandbox(tools=[double, fail], install=False) as sandbox:
            await asyncio.gather(*(sandbox.run("await double(1)") for _ in range(4)))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sandbox.run("while True: pass"), 0.05)
            session = sandbox.session()
            await session.run("x = 1")

    asyncio.run(main())


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


def fail() -> None:
    raise KeyError("fail")


def test_nothing_is_left_after_many_uses() -> None:
    def work(count: int) -> None:
        for _ in range(count):
            with Sandbox(tools=[double, fail], install=False) as box:
                use_everything(box)

    work(10)
    before = resources()
    memory = resident()
    work(20)
    # Threads of the pool and the mappings that it keeps for reuse vary; what grows with each use does not stay below.
    slack = {"threads": 4, "descriptors": 4, "mappings": 60}

    def grown() -> dict[str, tuple[int, int]]:
        return {
            name: (before.get(name, 0), count)
            for name, count in resources().items()
            if count > before.get(name, 0) + slack.get(name, 0)
        }

    assert wait_until(lambda: not grown()), grown()
    assert resident() - memory < 24 << 20


def test_closed_sessions_free_their_memory(box: Sandbox) -> None:
    def work(count: int) -> None:
        sessions = [box.session() for _ in range(count)]
        for session in sessions:
            session.run("x = bytearray(1 << 20)").check()
        for session in sessions:
            session.close()

    work(50)
    before = resident()
    for _ in range(5):
        work(50)
    assert wait_until(lambda: resident() - before < 24 << 20), resident() - before

"""Sandboxes for asyncio."""

from __future__ import annotations

import asyncio
import time

import pytest

import belljar
from belljar import AsyncSandbox, code_sandbox


def test_runs_and_sessions_can_be_awaited() -> None:
    async def main() -> None:
        async with AsyncSandbox(install=False) as box:
            pieces: list[str] = []
            run = await box.run("print('a'); x + 1", globals={"x": 1}, on_stdout=pieces.append)
            assert (run.value, "".join(pieces)) == (2, "a\n")
            async with box.session() as session:
                await session.run("y = 1")
                await session.files.write("f.txt", b"1")
                other = await session.fork()
                assert (await other.run("y")).value == 1
                assert [file.path for file in await session.files.list()] == ["f.txt"]
                assert await session.files.read("f.txt") == b"1"
                loaded = box.load(await session.dump())
                assert isinstance(loaded, belljar.AsyncSession)
                assert (await loaded.run("y")).value == 1
                await session.restart()
                assert (await session.run("y")).status == "error"

    asyncio.run(main())


def test_hundreds_of_runs_at_once() -> None:
    async def main() -> list[int]:
        async with AsyncSandbox(install=False) as box:
            runs = await asyncio.gather(*(box.run(f"{number} + 1") for number in range(300)))
            return [run.value for run in runs]

    assert asyncio.run(main()) == [number + 1 for number in range(300)]


def test_the_loop_is_free_while_code_runs() -> None:
    async def main() -> int:
        async with AsyncSandbox(install=False) as box:
            task = asyncio.create_task(box.run("while True: pass", timeout=4))
            ticks = 0
            while not task.done():
                await asyncio.sleep(0.01)
                ticks += 1
            assert (await task).limit == "time"
            return ticks

    assert asyncio.run(main()) > 20


def test_cancellation_stops_the_code() -> None:
    async def main() -> None:
        async with AsyncSandbox(install=False) as box:
            started = asyncio.Event()
            loop = asyncio.get_running_loop()

            def on_stdout(text: str) -> None:
                loop.call_soon_threadsafe(started.set)

            task = asyncio.create_task(box.run("print(1)\nwhile True: pass", on_stdout=on_stdout))
            await started.wait()
            begin = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - begin < 60
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(box.run("while True: pass"), 0.3)
            assert (await box.run("1")).value == 1

    asyncio.run(main())


def test_cancelled_cell_keeps_the_variables() -> None:
    async def main() -> None:
        async with AsyncSandbox(install=False) as box:
            session = box.session()
            await session.run("x = 1")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.run("while True: pass"), 0.3)
            assert (await session.run("x")).value == 1

    asyncio.run(main())


def test_calls_of_a_session_keep_their_order() -> None:
    async def main() -> None:
        async with AsyncSandbox(install=False) as box:
            session = box.session()
            await asyncio.gather(session.run("x = []"), *(session.run(f"x.append({n})") for n in range(20)))
            assert (await session.run("x")).value == list(range(20))

    asyncio.run(main())


def test_errors_are_those_of_the_package() -> None:
    async def main() -> None:
        async with AsyncSandbox(install=False) as box:
            with pytest.raises(belljar.CodeError):
                (await box.run("1/0")).check()
            with pytest.raises(FileNotFoundError):
                await box.session().files.read("x")

    asyncio.run(main())


def test_uvloop_works() -> None:
    import uvloop

    async def main() -> int:
        async with AsyncSandbox(install=False) as box:
            return int((await box.run("6 * 7")).value)

    assert uvloop.run(main()) == 42


def test_code_sandbox_has_the_api_of_mcp_run_python() -> None:
    async def main() -> None:
        lines: list[tuple[str, str]] = []
        async with code_sandbox(log_handler=lambda level, line: lines.append((level, line))) as sandbox:
            result = await sandbox.eval("print('a')\n{'x': (x, 2.0)}", {"x": 1})
            assert result == {"status": "success", "output": ["a"], "return_value": {"x": [1, 2.0]}}
            assert lines == [("info", "a")]
            failed = await sandbox.eval("1 / 0")
            assert failed["status"] == "run-error" and "ZeroDivisionError" in failed["error"]

    asyncio.run(main())

"""E2B's interface for asyncio: `belljar.code_interpreter.AsyncSandbox`."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import belljar
from belljar import code_interpreter as e2b
from belljar.code_interpreter import AsyncSandbox


@asynccontextmanager
async def plain_sandbox(**arguments: Any) -> AsyncIterator[AsyncSandbox]:
    async with belljar.AsyncSandbox(install=False) as box, await AsyncSandbox.create(box=box, **arguments) as sandbox:
        yield sandbox


def test_cells_contexts_and_files() -> None:
    async def main() -> None:
        async with plain_sandbox(envs={"A": "1"}) as sandbox:
            await sandbox.run_code("x = 1")
            execution = await sandbox.run_code("import os; x, os.environ['A']")
            assert (execution.text, execution.execution_count) == ("(1, '1')", 2)
            context = await sandbox.create_code_context(cwd="/tmp")
            assert (await sandbox.run_code("import os; os.getcwd()", context=context)).text == "/tmp"
            assert len(await sandbox.list_code_contexts()) == 2
            await sandbox.restart_code_context(context)
            await sandbox.remove_code_context(context)
            files = sandbox.files

            async def pieces() -> AsyncIterator[bytes]:
                for _ in range(3):
                    yield b"piece"

            assert (await files.write("f", pieces())).path == "/home/user/f"
            await files.write_files([{"path": "g", "data": io.BytesIO(b"1")}, {"path": "h/i", "data": "2"}])
            assert (await files.read("f"), await files.read("g", format="bytes")) == ("piece" * 3, bytearray(b"1"))
            async with await files.read("h/i", format="stream") as stream:
                assert [piece async for piece in stream] == [b"2"]
            assert [entry.name for entry in await files.list(".")] == ["f", "g", "h"]
            assert await files.make_dir("d") and (await files.rename("d", "e")).path == "/home/user/e"
            assert (await files.get_info("e")).type is e2b.FileType.DIR
            await files.remove("e")
            assert not await files.exists("e")
            with pytest.raises(e2b.FileNotFoundException):
                await files.read("e")
            out: list[str] = []
            assert (await sandbox.commands.run("echo 1; echo 2", on_stdout=out.append)).stdout == "1\n2\n"
            assert "".join(out) == "1\n2\n"
            with pytest.raises(e2b.UnsupportedException, match="stdin"):
                await sandbox.commands.run("cat", stdin=True)
            with pytest.raises(e2b.UnsupportedException, match="connect.*native kernels"):
                await sandbox.commands.connect(1)
            with pytest.raises(e2b.TimeoutException):
                await sandbox.run_code("while True: pass", timeout=0.2)
        assert not await sandbox.is_running() and not await sandbox.kill()

    asyncio.run(main())


def test_callbacks_run_on_the_event_loop_in_order() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[str] = []

        async def slow(message: e2b.OutputMessage) -> None:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0.001)
            seen.append(message.line)

        def plain(message: e2b.OutputMessage) -> None:
            assert asyncio.get_running_loop() is loop
            seen.append(message.line)

        async def on_result(result: e2b.Result) -> None:
            seen.append(f"result {result.text}")

        async def on_error(error: e2b.ExecutionError) -> None:
            seen.append(error.name)

        async with plain_sandbox() as sandbox:
            code = "import sys\nfor n in range(20):\n    print(n, file=sys.stderr if n % 2 else sys.stdout)\n'value'"
            await sandbox.run_code(code, on_stdout=slow, on_stderr=plain, on_result=on_result)
            assert seen == [*(f"{n}\n" for n in range(20)), "result value"]
            await sandbox.run_code("1 / 0", on_error=on_error)
            assert seen[-1] == "ZeroDivisionError"

            async def fail(message: e2b.OutputMessage) -> None:
                raise KeyError(message.line)

            with pytest.raises(KeyError, match="begun"):
                await sandbox.run_code("print('begun')\nwhile True: pass", on_stdout=fail)
            assert (await sandbox.run_code("6 * 7")).text == "42"

            async def write(message: e2b.OutputMessage) -> None:
                # It waits for the end of the code.
                await sandbox.files.write("f", message.line)

            await sandbox.run_code("print('x')", on_stdout=write)
            assert await sandbox.files.read("f") == "x\n"

            async def kill(message: e2b.OutputMessage) -> None:
                assert await sandbox.kill()

            with pytest.raises(e2b.SandboxNotRunningException):
                await sandbox.run_code("print('x')\nwhile True: pass", on_stdout=kill)

    asyncio.run(main())


def test_cancelling_a_call_stops_its_code() -> None:
    async def main() -> None:
        async with plain_sandbox() as sandbox:
            await sandbox.run_code("x = 1")
            for handler in (None, lambda message: None):
                begun = asyncio.Event()

                def on_stdout(_: e2b.OutputMessage) -> None:
                    begun.set()

                code = "print('begun')\nwhile True: pass"
                call = asyncio.create_task(sandbox.run_code(code, on_stdout=on_stdout, on_stderr=handler))
                await asyncio.wait_for(begun.wait(), 60)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert (await sandbox.run_code("x")).text == "1"
            waiting = [asyncio.create_task(sandbox.run_code("import time; time.sleep(1)")) for _ in range(3)]
            await asyncio.sleep(0.05)
            waiting[1].cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [isinstance(each, e2b.Execution) for each in results] == [True, False, True]

    asyncio.run(main())


def test_many_sandboxes_at_once() -> None:
    async def use(number: int, box: belljar.AsyncSandbox) -> str | None:
        async with await AsyncSandbox.create(box=box) as sandbox:
            await asyncio.gather(*(sandbox.run_code(f"v{each} = {number}") for each in range(5)))
            await sandbox.files.write("n", str(number))
            return (await sandbox.run_code("v0 + v4, open('n').read()")).text

    async def main() -> None:
        async with belljar.AsyncSandbox(install=False) as box:
            found = await asyncio.gather(*(use(number, box) for number in range(20)))
        assert found == [f"({2 * number}, '{number}')" for number in range(20)]
        assert not AsyncSandbox.list().has_next or not await AsyncSandbox.list().next_items()

    asyncio.run(main())


def test_lifecycle() -> None:
    async def main() -> None:
        async with belljar.AsyncSandbox(install=False) as box:
            # The constructor starts nothing, and the first call does.
            sandbox = AsyncSandbox(metadata={"n": "1"}, box=box)
            assert await sandbox.is_running()
            await sandbox.run_code("x = 1")
            assert await sandbox.pause() and not await AsyncSandbox.pause(sandbox.sandbox_id)
            same = await AsyncSandbox.connect(sandbox.sandbox_id, timeout=100)
            assert (await same.run_code("x")).text == "1"
            (info,) = await AsyncSandbox.list(e2b.SandboxQuery(metadata={"n": "1"})).next_items()
            assert info == await AsyncSandbox.get_info(sandbox.sandbox_id) or info.sandbox_id == sandbox.sandbox_id
            (fork,) = await sandbox.fork()
            assert isinstance(fork, AsyncSandbox) and (await fork.run_code("x")).text == "1"
            snapshot = await fork.create_snapshot("async")
            copy = await AsyncSandbox.create("async")
            lazy = AsyncSandbox(snapshot.snapshot_id, envs={"A": "1"})
            assert (await copy.run_code("x")).text == "1"
            assert (await lazy.run_code("import os; x, os.environ['A']")).text == "(1, '1')"
            assert await AsyncSandbox.list_snapshots().next_items() == [snapshot]
            assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id)
            loaded = await AsyncSandbox.load(await sandbox.dump(), box=box)
            assert (await loaded.run_code("x")).text == "1"
            await loaded.set_timeout(2)
            with pytest.raises(e2b.SandboxNotRunningException):
                await loaded.run_code("while True: pass")
            begun = asyncio.Event()

            def on_stdout(_: e2b.OutputMessage) -> None:
                begun.set()

            call = asyncio.create_task(fork.run_code("print('begun')\nwhile True: pass", on_stdout=on_stdout))
            await asyncio.wait_for(begun.wait(), 60)
            assert await fork.kill()
            with pytest.raises(e2b.SandboxNotRunningException):
                await call
            for each in (sandbox, copy, lazy):
                assert await AsyncSandbox.kill(each.sandbox_id)
            assert not await AsyncSandbox.kill(sandbox.sandbox_id)
            with pytest.raises(e2b.SandboxNotFoundException):
                await AsyncSandbox.connect(sandbox.sandbox_id)
            with pytest.raises(e2b.InvalidArgumentException, match="connect_async"):
                await AsyncSandbox.create(box=belljar.Sandbox())  # type: ignore[arg-type]
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: copy.get_metrics(),
                lambda: copy.files.watch_dir(".", print),
                lambda: copy.get_mcp_token(),
            ]
            for refused in calls:
                with pytest.raises(e2b.UnsupportedException):
                    await refused()

    asyncio.run(main())
    assert not AsyncSandbox._registry.sandboxes and not AsyncSandbox._registry.snapshots


def test_sandbox_can_be_used_on_one_event_loop_after_the_other() -> None:
    sandbox = asyncio.run(AsyncSandbox.create())

    async def use(number: int) -> None:
        await asyncio.gather(*(sandbox.run_code(f"x{each} = {number}") for each in range(3)))

    asyncio.run(use(1))
    asyncio.run(use(2))
    assert asyncio.run(sandbox.run_code("x0 + x2")).text == "4"
    assert asyncio.run(sandbox.kill())


def test_pause_at_the_timeout_and_resume() -> None:
    async def main() -> None:
        lifecycle = {"on_timeout": "pause", "auto_resume": True}
        async with plain_sandbox(lifecycle=lifecycle, timeout=60) as sandbox:
            await sandbox.run_code("x = 1")
            await sandbox.set_timeout(2)
            with pytest.raises(e2b.SandboxNotRunningException):
                await sandbox.run_code("while True: pass")
            assert (await sandbox.run_code("x")).text == "1"

    asyncio.run(main())

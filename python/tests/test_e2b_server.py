"""E2B's interface on a server, with WebAssembly and with native kernels."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from conftest import missing
from server import TOKEN, Server

import belljar
from belljar import code_interpreter as e2b
from belljar.code_interpreter import AsyncSandbox, Sandbox
from belljar.native import NativeServer


def test_cells_files_contexts_and_forks(server: Server) -> None:
    with belljar.connect(server.url, token=TOKEN) as box, Sandbox.create(envs={"A": "1"}, box=box) as sandbox:
        out: list[str] = []
        execution = sandbox.run_code(
            "import os\nprint('one'); display(2)\n(os.environ['A'], os.getcwd())",
            on_stdout=lambda m: out.append(m.line),
        )
        assert (execution.text, out) == ("('1', '/home/user')", ["one\n"])
        assert [(each.text, each.is_main_result) for each in execution.results][0] == ("2", False)
        # A server shortens the text of values.
        execution = sandbox.run_code("'y' * 100_000")
        assert execution.text is not None and 20_000 < len(execution.text) < 30_000
        data = os.urandom(20_000_000)
        sandbox.files.write("deep/data", data)
        assert sandbox.files.read("deep/data", format="bytes") == data
        context = sandbox.create_code_context(cwd="deep")
        assert sandbox.run_code("import os; x = 2; os.listdir()", context=context).text == "['data']"
        assert sandbox.run_code("x").error is not None
        (fork,) = sandbox.fork()
        assert isinstance(fork, Sandbox) and fork.run_code("x", context=context).text == "2"
        assert fork.kill()
        with pytest.raises(e2b.TimeoutException):
            sandbox.run_code("while True: pass", timeout=0.3)
        for call in (sandbox.pause, sandbox.dump, sandbox.create_snapshot):
            with pytest.raises(e2b.UnsupportedException, match="server"):
                call()
        with pytest.raises(e2b.UnsupportedException, match="lifecycle"):
            Sandbox.create(lifecycle={"on_timeout": "pause"}, box=box)
        sandbox.set_timeout(2)
        with pytest.raises(e2b.SandboxNotRunningException):
            sandbox.run_code("while True: pass")
        assert box.run("1").value == 1


def test_asyncio(server: Server) -> None:
    async def use(number: int, box: belljar.AsyncSandbox) -> str | None:
        async with await AsyncSandbox.create(box=box) as sandbox:
            await sandbox.files.write("n", str(number))
            return (await sandbox.run_code("open('n').read()")).text

    async def main() -> None:
        async with belljar.connect_async(server.url, token=TOKEN) as box:
            assert await asyncio.gather(*(use(number, box) for number in range(8))) == [str(n) for n in range(8)]

    asyncio.run(main())


def test_server_that_is_lost_is_an_error() -> None:
    server = Server("--toolset", "all")
    with belljar.connect(server.url) as box:
        sandbox = Sandbox.create(box=box)
        server.stop()
        with pytest.raises(e2b.SandboxException):
            sandbox.run_code("1")
        with pytest.raises(e2b.SandboxException):
            sandbox.kill()
        assert not sandbox.is_running() and not sandbox.kill()


def test_native_kernels_run_all_commands(native: NativeServer) -> None:
    with native.connect() as box, Sandbox.create(envs={"A": "1"}, box=box) as sandbox:
        assert sandbox.run_code("x = 6\nx * 7").text == "42"
        sandbox.files.write("/home/user/table.csv", "b\na\n")
        assert sandbox.files.read("/home/user/table.csv") == sandbox.files.read("table.csv") == "b\na\n"
        out: list[str] = []
        err: list[str] = []
        command = "sort table.csv | tr a-z A-Z; echo $A $B; printf 'ä' >&2"
        result = sandbox.commands.run(command, envs={"B": "2"}, on_stdout=out.append, on_stderr=err.append)
        assert (result.stdout, result.stderr) == ("A\nB\n1 2\n", "ä")
        # A server sends whole lines.
        assert ("".join(out), "".join(err)) == (result.stdout, f"{result.stderr}\n")
        with pytest.raises(e2b.CommandExitException) as caught:
            sandbox.commands.run("echo no >&2; exit 7")
        assert (caught.value.exit_code, caught.value.stderr) == (7, "no\n")
        with pytest.raises(e2b.TimeoutException):
            sandbox.commands.run("sleep 60; echo late > late", timeout=0.5)
        assert sandbox.commands.run("pgrep sleep || echo none").stdout == "none\n"
        context = sandbox.create_code_context(cwd="/tmp")
        assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
        assert sandbox.run_code("x").text == "6"
        (fork,) = sandbox.fork()
        assert isinstance(fork, e2b.SandboxException)
        sandbox.restart_code_context(context)
        assert sandbox.run_code("os", context=context).error is not None
        assert Path(sandbox.files.get_info(".").path).name == "session"


def test_data_frames_have_their_columns(native: NativeServer) -> None:
    with native.connect() as box, Sandbox.create(box=box) as sandbox:
        code = "import pandas\npandas.DataFrame({'n': [1, 2], 'day': pandas.to_datetime(['2024-01-02', None])})"
        execution = sandbox.run_code(code)
        if execution.error is not None and execution.error.name == "ModuleNotFoundError":
            missing("python-packages", "pandas is not installed")
        (result,) = execution.results
        assert result.data == {"n": [1, 2], "day": ["2024-01-02T00:00:00.000", None]}
        assert set(result.formats()) == {"text", "html", "data"}
        large = sandbox.run_code("pandas.DataFrame({'n': range(200_000)})")
        assert large.error is None and large.results[0].data is None

"""Tools of MCP servers that sandboxed code calls, and the approval of calls."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import CRATES, missing
from server import COMMAND

import belljar
from belljar import ApprovalRequest, AsyncSandbox, McpServer, Sandbox, tool

SCRIPT = CRATES / "belljar-tools/tests/it/python/tool_server.py"
NOTE = "from tools import t\nawait t.note(text='x')"


def server(mode: str = "plain", name: str = "t", **options: Any) -> McpServer:
    """Returns the test server with the tools of a mode."""
    return McpServer([sys.executable, "-u", str(SCRIPT), mode], name=name, **options)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(tools=[server()], approval="none", install=False) as sandbox:
        yield sandbox


def test_code_calls_tools_of_servers(box: Sandbox) -> None:
    run = box.run(
        "from tools import t\n[await t.add(a=2, b=3), await t.echo(value={'x': [1, None]}), t.add(a=1).result()]"
    )
    assert run.check().value == [5, {"value": {"x": [1, None]}}, 2]


def test_tools_work_in_sessions_forks_and_dumps(box: Sandbox) -> None:
    with box.session() as session:
        assert session.run("from tools import t\nawait t.add(a=1, b=1)").check().value == 2
        with session.fork() as other:
            assert other.run("await t.add(a=2, b=2)").check().value == 4
        loaded = box.load(session.dump())
        assert isinstance(loaded, belljar.Session)
        with loaded:
            assert loaded.run("await t.add(a=3, b=3)").check().value == 6


def test_functions_and_servers_work_together() -> None:
    def double(number: int) -> int:
        time.sleep(0.01)
        return number * 2

    async def triple(number: int) -> int:
        await asyncio.sleep(0.01)
        return number * 3

    with Sandbox(tools=[double, server(), tool(triple)], approval="none", install=False) as box:
        code = "from tools import t\nx = await double(await t.add(a=2, b=3))\nawait t.add(a=await triple(x), b=1)"
        run = box.run(code)
        assert run.check().value == 31
        assert [(call.server, call.name) for call in run.calls] == [
            ("t", "add"),
            (None, "double"),
            (None, "triple"),
            ("t", "add"),
        ]


def test_calls_are_recorded(box: Sandbox) -> None:
    code = """
import tools
from tools import t
await t.add(a=1)
try:
    await t.fail(message='broken')
except tools.ToolError:
    pass
await t.resources.read('test://note')
await t.echo(value='é' * 5000)
"""
    run = box.run(code)
    add, fail, read, echo = run.check().calls
    assert (add.server, add.name, add.args, add.kwargs, add.status) == ("t", "add", (), {"a": 1}, "ok")
    assert add.error is None and add.result_bytes and add.seconds is not None and 0 < add.seconds < 60
    assert fail.status == "error" and fail.error is not None
    assert fail.error.name == "ToolError" and "broken" in fail.error.message
    assert (read.name, read.kwargs) == ("resources", {"uri": "test://note"})
    assert echo.kwargs == {"value": "é" * 5000} and echo.status == "ok"


def test_errors_of_tools_have_classes(box: Sandbox) -> None:
    code = """
import tools
from tools import t
names = []
for call in (lambda: t.fail(message='x'), lambda: t.add(a='one'), lambda: tools.call('t', 'no-such', {})):
    try:
        await call()
    except tools.ToolException as error:
        names.append(type(error).__name__)
names
"""
    assert box.run(code).check().value == ["ToolError", "ToolError", "ToolError"]
    run = box.run("from tools import t\nawait t.fail(message='no luck')")
    with pytest.raises(belljar.CodeError, match="no luck") as failure:
        run.check()
    assert failure.value.name == "tools.ToolError"


def test_a_server_that_is_down_affects_nothing_else() -> None:
    down = McpServer(["/no/such/program"], name="down")
    with Sandbox(tools=[down, server()], approval="none", install=False) as box:
        code = """
import tools
from tools import t, down
try:
    await tools.call('down', 'x', {})
except tools.ToolUnavailable as error:
    reason = str(error)
[reason, await t.add(a=1)]
"""
        reason, value = box.run(code).check().value
        assert value == 2 and reason
        assert box.run("1 + 1").value == 2


def test_calls_that_write_need_approval() -> None:
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> str:
        asked.append(request)
        return "once"

    with Sandbox(tools=[server()], approve=approve, install=False) as box:  # type: ignore[arg-type]
        run = box.run("from tools import t\nawait t.add(a=1)\nawait t.note(text='a' * 5000)\nawait t.note(text='b')")
        run.check()
    first, second = asked
    assert (first.server, first.tool, first.has_changed) == ("t", "note", False)
    # All of the arguments: a question for a person would be cut.
    assert first.arguments == {"text": "a" * 5000} and second.arguments == {"text": "b"}
    assert "await t.note(text='a' * 5000)" in first.line


def test_without_a_function_calls_that_need_approval_are_denied() -> None:
    with Sandbox(tools=[server()], install=False) as box:
        run = box.run(NOTE)
        assert run.error is not None and run.error.name == "tools.ToolDenied" and "approve=" in run.error.message
        assert [(call.status, call.error and call.error.name) for call in run.calls] == [("denied", "ToolDenied")]


@pytest.mark.parametrize("answer, asked", [("once", 4), ("run", 2), ("session", 1), (True, 4)])
def test_answers_hold_for_a_call_a_run_or_a_session(answer: Any, asked: int) -> None:
    requests: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> Any:
        requests.append(request)
        return answer

    twice = f"{NOTE}\n{NOTE}"
    with Sandbox(tools=[server()], approve=approve, install=False) as box:
        box.run(twice).check()
        box.run(twice).check()
        assert len(requests) == asked
        # The approvals of a session are its own.
        requests.clear()
        with box.session() as session:
            session.run(twice).check()
            session.run(twice).check()
            assert len(requests) == asked
            with session.fork() as other:
                requests.clear()
                other.run(NOTE).check()
                assert len(requests) == 1


@pytest.mark.parametrize("answer", ["no", False])
def test_denied_calls_are_not_made(answer: Any) -> None:
    with Sandbox(tools=[server()], approve=lambda request: answer, install=False) as box:
        run = box.run(NOTE)
        assert run.error is not None and run.error.name == "tools.ToolDenied" and "denied" in run.error.message
        assert run.calls[0].status == "denied"


def test_approval_may_be_async_and_run_on_the_callers_loop() -> None:
    loops = []

    async def approve(request: ApprovalRequest) -> str:
        await asyncio.sleep(0.01)
        loops.append(asyncio.get_running_loop())
        return "once"

    async def main() -> None:
        async with AsyncSandbox(tools=[server()], approve=approve, install=False) as box:  # type: ignore[arg-type]
            (await box.run(NOTE)).check()
            assert loops == [asyncio.get_running_loop()]
            session = box.session()
            (await session.run(NOTE)).check()

    asyncio.run(main())
    # Without a loop of the caller, on one of its own.
    with Sandbox(tools=[server()], approve=approve, install=False) as box:  # type: ignore[arg-type]
        box.run(NOTE).check()
    assert len(loops) == 3 and loops[2] is not loops[0]


def test_wrong_answers_and_exceptions_stop_the_code_and_are_raised() -> None:
    with Sandbox(tools=[server()], approve=lambda request: "maybe", install=False) as box:  # type: ignore
        with pytest.raises(belljar.ArgumentError, match="'maybe'"):
            box.run(NOTE)

    def fail(request: ApprovalRequest) -> bool:
        raise RuntimeError("no terminal")

    async def fail_later(request: ApprovalRequest) -> bool:
        raise RuntimeError("no terminal")

    with Sandbox(tools=[server()], approve=fail, install=False) as box:
        with pytest.raises(RuntimeError, match="no terminal"):
            box.run(
                f"try:\n    {NOTE.splitlines()[0]}\n    {NOTE.splitlines()[1]}\nexcept Exception: pass\nwhile True: pass"
            )

    async def main() -> None:
        async with AsyncSandbox(tools=[server()], approve=fail_later, install=False) as box:
            with pytest.raises(RuntimeError, match="no terminal"):
                await box.run(NOTE)

    asyncio.run(main())


def test_code_that_ends_does_not_wait_for_an_answer() -> None:
    asked, cancelled = threading.Event(), threading.Event()

    def was_asked() -> bool:
        return asked.is_set()

    async def approve(request: ApprovalRequest) -> bool:
        asked.set()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return True

    code = (
        "import asyncio\nasync def call():\n    from tools import t\n    await t.note(text='x')\n"
        "task = asyncio.create_task(call())\nwhile not await was_asked(): await asyncio.sleep(0.05)\n1"
    )

    async def main() -> None:
        async with AsyncSandbox(tools=[server(), was_asked], approve=approve, install=False) as box:
            run = await box.run(code)
            assert run.check().value == 1 and asked.is_set()
            assert [call.status for call in run.calls if call.server] == ["cancelled"]
            for _ in range(1200):
                if cancelled.is_set():
                    break
                await asyncio.sleep(0.05)
            assert cancelled.is_set()
            # A run that waits for an answer can be cancelled.
            asked.clear()
            task = asyncio.create_task(box.run(NOTE))
            while not asked.is_set():
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_changed_tool_is_asked_about_again() -> None:
    requests: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool | str:
        requests.append(request)
        return "session"

    with Sandbox(tools=[server("changing")], approve=approve, install=False) as box:  # type: ignore[arg-type]
        box.run(f"{NOTE}\n{NOTE}\nawait t.change()").check()
        deadline = time.monotonic() + 60
        while len(requests) < 2 and time.monotonic() < deadline:
            box.run(NOTE).check()
            time.sleep(0.1)
    assert [request.has_changed for request in requests] == [False, True]


def test_policy_selects_tools() -> None:
    with Sandbox(tools=[server()], approval="none", deny_tools=["t.note"], install=False) as box:
        error = box.run(NOTE).error
        assert error is not None and error.name == "tools.ToolDenied" and "t.note" in error.message
        assert "def note" not in box.tool_stubs()
    with Sandbox(tools=[server()], approval="none", allow_tools=["t.a*"], install=False) as box:
        assert box.run("from tools import t\nawait t.add(a=1)").check().value == 2
        assert box.run(NOTE).status == "error"


def test_limits_of_tools() -> None:
    with Sandbox(tools=[server()], approval="none", limits={"tool_calls": 2}, install=False) as box:
        run = box.run("from tools import t\nfor n in range(5): await t.add(a=n)")
        assert run.error is not None and run.error.name == "tools.ToolLimitExceeded"
        assert [call.status for call in run.calls] == ["ok", "ok", "limit"]
    with Sandbox(tools=[server()], approval="none", limits={"tool_timeout": 0.2}, install=False) as box:
        run = box.run("from tools import t\nawait t.hang()")
        assert run.error is not None and run.error.name == "tools.ToolTimeout" and run.calls[0].status == "timeout"
    with Sandbox(tools=[server()], approval="none", limits={"tool_result": 100}, install=False) as box:
        assert box.run("from tools import t\nawait t.echo(value='x' * 1000)").status == "error"
    # The time for which code waits for tools is not the code's.
    with Sandbox(tools=[server()], approve=slowly, limits={"timeout": 5}, install=False) as box:
        box.run(NOTE).check()


def slowly(request: ApprovalRequest) -> bool:
    time.sleep(5.5)
    return True


def test_stubs_describe_functions_and_tools() -> None:
    async def weather(city: str, *, days: int = 1) -> dict[str, Any]:
        """Returns the weather of a city."""
        return {}

    with Sandbox(tools=[weather, server()], install=False) as box:
        stubs = box.tool_stubs()
    assert "async def weather(city: 'str', *, days: 'int' = 1) -> 'dict[str, Any]':" in stubs
    assert '"""Returns the weather of a city."""' in stubs
    assert "# from tools import t" in stubs and "async def add(" in stubs
    # They are Python.
    compile(stubs, "stubs", "exec")

    async def main() -> None:
        async with AsyncSandbox(tools=[server()], install=False) as box:
            assert "async def add(" in await box.tool_stubs()

    asyncio.run(main())
    assert Sandbox(install=False).tool_stubs() == ""


def test_servers_of_a_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": ["-u", str(SCRIPT), "plain"]}
    file.write_text(json.dumps({"mcpServers": {"files": entry}}))
    with Sandbox(servers=file, approval="none", install=False) as box:
        assert box.run("from tools import files\nawait files.add(a=1)").check().value == 2
    with Sandbox(servers=[str(file)], tools=[server()], approval="none", install=False) as box:
        assert box.run("from tools import files, t\nawait files.add(a=await t.add(a=1))").check().value == 3
    with pytest.raises(belljar.ArgumentError, match="two servers have the name files"):
        Sandbox(servers=[file], tools=[server(name="files")])
    with pytest.raises(belljar.ArgumentError, match="servers: .*missing.json"):
        Sandbox(servers=tmp_path / "missing.json")


def test_environment_of_servers_does_not_reach_the_code() -> None:
    with Sandbox(tools=[server(env={"SECRET": "hunter2"})], approval="none", install=False) as box:
        code = "import os, tools\nfrom tools import t\nawait t.add(a=1)\nstr([dict(os.environ), vars(tools), vars(t)])"
        text = box.run(code).check().value
        assert "hunter2" not in text and str(SCRIPT) not in text
    assert "hunter2" not in repr(server(env={"SECRET": "hunter2"}))


def test_wrong_arguments_are_named() -> None:
    wrong: list[tuple[str, Any]] = [
        ("target", lambda: McpServer("", name="x")),
        ("target", lambda: McpServer("a 'b", name="x")),
        ("target", lambda: McpServer(3, name="x")),  # type: ignore[arg-type]
        ("name", lambda: McpServer("a", name=" ")),
        ("headers", lambda: McpServer("a", name="x", headers={"a": "b"})),
        ("token", lambda: McpServer("a", name="x", token="b")),
        ("env", lambda: McpServer("http://127.0.0.1/", name="x", env={"a": "b"})),
        ("env", lambda: McpServer("a", name="x", env={"a": 1})),  # type: ignore[dict-item]
        ("timeout", lambda: McpServer("a", name="x", timeout=0)),
        ("tools", lambda: Sandbox(tools=server())),  # type: ignore[arg-type]
        ("tools", lambda: Sandbox(tools=[McpServer("http://:x/", name="x")])),
        ("two servers", lambda: Sandbox(tools=[server(), server()])),
        ("approve", lambda: Sandbox(tools=[server()], approve="all")),  # type: ignore[arg-type]
        ("approval", lambda: Sandbox(tools=[server()], approval="some")),  # type: ignore[arg-type]
        ("allow_tools", lambda: Sandbox(tools=[server()], allow_tools="t.*")),
        ("deny_tools", lambda: Sandbox(tools=[server()], deny_tools=["a["])),
        ("servers", lambda: Sandbox(servers=[3])),  # type: ignore[list-item]
        ("tool_calls", lambda: Sandbox(tools=[server()], limits={"tool_calls": 0})),
        ("tool_wait", lambda: Sandbox(tools=[server()], limits={"tool_wait": 0})),
        ("tool_concurrency", lambda: Sandbox(tools=[server()], limits={"tool_concurrency": -1})),
    ]
    for name, create in wrong:
        with pytest.raises((belljar.ArgumentError, belljar.ArgumentTypeError), match=name):
            create()


def test_remote_sandboxes_refuse_servers_and_functions() -> None:
    for tools, text in ([[server()], "--servers"], [[lambda: 1], "MCP has no request"]):
        with pytest.raises(belljar.UnsupportedError, match=text):
            belljar.connect("http://127.0.0.1:9/mcp", tools=tools)  # type: ignore[arg-type]


def test_servers_end_with_the_sandbox_and_with_the_process() -> None:
    def children() -> set[str]:
        # Other tests of the machine run the script with another Python.
        command = f"{sys.executable} -u {SCRIPT} plain"
        listed = subprocess.run(["pgrep", "-f", command], capture_output=True, text=True, check=False).stdout
        return set(listed.split())

    before = children()
    box = Sandbox(tools=[server()], approval="none", install=False)
    box.run("from tools import t\nawait t.add(a=1)").check()
    assert len(children() - before) == 1
    box.close()
    wait_until(lambda: not children() - before)
    # Without an end, when it is collected; and in a process that ends.
    box = Sandbox(tools=[server()], approval="none", install=False)
    box.run("from tools import t\nawait t.add(a=1)").check()
    del box
    wait_until(lambda: not children() - before)
    program = f"""
import sys
from belljar import McpServer, Sandbox
box = Sandbox(tools=[McpServer([sys.executable, "-u", {str(SCRIPT)!r}, "plain"], name="t")], approval="none", install=False)
print(box.run("from tools import t\\nawait t.add(a=1)").value)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr
    wait_until(lambda: not children() - before)


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_concurrent_calls_and_runs(box: Sandbox) -> None:
    code = "import asyncio\nfrom tools import t\nawait asyncio.gather(*(t.meet(count=5) for _ in range(5)))"
    assert box.run(code).check().value == ["met"] * 5
    results: list[Any] = []

    def work(number: int) -> None:
        results.append(box.run(f"from tools import t\nawait t.add(a={number}, b=0)").check().value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(8))


def test_belljar_itself_is_a_server() -> None:
    downstream = McpServer([str(COMMAND), "stdio"], name="python", inherit_env=True)
    with Sandbox(tools=[downstream], approve=lambda request: "run", install=False) as box:
        code = "from tools import python\n(await python.run_python_code(python_code='6 * 7'))['return_value']"
        assert box.run(code).check().value == 42


def test_belljar_over_http_with_its_own_tools() -> None:
    # The server has an MCP server: its calls are in the record of a run by `connect`.
    command = [str(COMMAND), "streamable-http", "--port", "0", "--toolset", "all", "--approve", "none"]
    command += ["--server", f"t={sys.executable} -u '{SCRIPT}' plain"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = next(line for line in process.stderr if line.startswith("listening on ")).split()[-1]
        threading.Thread(target=process.stderr.read, daemon=True).start()
        with belljar.connect(url) as box:
            run = box.run("from tools import t\nawait t.add(a=20, b=22)")
            assert run.check().value == 42
            assert [(call.server, call.name, call.kwargs) for call in run.calls] == [("t", "add", {"a": 20, "b": 22})]
            with box.session() as session:
                run = session.run("from tools import t\nawait t.add(a=1)")
                assert run.check().value == 2 and [call.status for call in run.calls] == ["ok"]
            with Sandbox(tools=[server()], install=False) as local:
                assert box.tool_stubs() == local.tool_stubs()
        # And as a server for the code of this process.
        with Sandbox(tools=[McpServer(url, name="remote")], approve=lambda request: "run", install=False) as local:
            code = "from tools import remote\n(await remote.run_python_code(python_code='40 + 2'))['return_value']"
            assert local.run(code).check().value == 42
    finally:
        process.kill()
        process.wait()


def test_reference_server() -> None:
    program = Path(os.environ.get("BELLJAR_TEST_NPM", ""), "@modelcontextprotocol/server-everything/dist/index.js")
    if not program.is_file():
        missing("npm", f"{program} does not exist: `cargo xtask wheel` installs it")
    everything = McpServer(["node", str(program), "stdio"], name="everything", timeout=60)
    with Sandbox(tools=[everything], approval="none", install=False) as box:
        run = box.run("from tools import everything\nawait everything.echo(message='hello')")
        assert "hello" in run.check().value and [call.name for call in run.calls] == ["echo"]
        assert "def echo(" in box.tool_stubs()


def test_code_with_calls_is_not_run_a_second_time() -> None:
    # The import that is missing at run time would let other code be run again with the package.
    calls = []

    def count() -> int:
        calls.append(1)
        return len(calls)

    with Sandbox(tools=[count, server()], approval="none") as box:
        run = box.run("await count()\nimport importlib\nimportlib.import_module('no_such_module_of_belljar')")
        assert run.status == "error" and len(calls) == 1

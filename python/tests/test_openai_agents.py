"""The tool and the sandbox client for the OpenAI Agents SDK, with scripted models."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from conftest import need
from scripted import Script, server
from test_smolagents import PNG

import belljar
from belljar import AsyncSandbox, Sandbox


@pytest.fixture(autouse=True)
def agents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return need("agents")


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


async def call(tool: Any, code: Any, context: Any = None, arguments: str | None = None) -> Any:
    """Returns the output of a call, as the SDK makes it."""
    text = json.dumps({"code": code}) if arguments is None else arguments
    made = need("agents.tool_context").ToolContext(context, tool_name=tool.name, tool_call_id="1", tool_arguments=text)
    return await tool.on_invoke_tool(made, text)


def model(address: str) -> Any:
    client = need("openai").AsyncOpenAI(base_url=f"{address}/v1", api_key="none")
    return need("agents").OpenAIResponsesModel("gpt-6.2-sol", client)


def test_results_are_text_with_output_value_and_error(box: Sandbox) -> None:
    from belljar.openai_agents import python_tool

    async def main() -> None:
        async with python_tool(box, max_text=1000) as tool:
            assert await call(tool, "print('a')\nx = 6\nx * 7") == "a\n42"
            assert (await call(tool, "print(x)\n1 / 0")).endswith("ZeroDivisionError: division by zero")
            long = await call(tool, "print('x' * 100_000)")
            assert len(long) < 1100 and "left out" in long
            for arguments in ("no json", "[]", '{"code": 1}', '{"code": "\\ud800"}', "[" * 100_000):
                assert (await call(tool, None, arguments=arguments)).startswith("the code ")
            await tool.reset()
            assert "NameError" in await call(tool, "x")
            tool.session().sync.files.write("f", b"1")
            assert await call(tool, "open('f').read()") == "'1'"
        assert box._sessions == []
        with pytest.raises(belljar.SandboxError, match="closed"):
            await call(tool, "1")

    run(main())


def test_images_are_outputs(box: Sandbox) -> None:
    from belljar.openai_agents import python_tool

    async def main() -> None:
        async with python_tool(box) as tool:
            text, image = await call(tool, PNG + "display(Image(data=png(2, 2)))\n'shown'")
            assert (text.type, text.text, image.type) == ("text", "'shown'", "image")
            assert image.image_url.startswith("data:image/png;base64,iVBOR")

    run(main())


def test_sessions_are_shared_fresh_or_chosen(box: Sandbox) -> None:
    from belljar.openai_agents import python_tool

    async def main() -> None:
        async with python_tool(box, state="fresh") as fresh:
            await call(fresh, "x = 1")
            assert "NameError" in await call(fresh, "x") and box._sessions == []
        async with python_tool(box, state=lambda context: context.context["user"]) as chosen:
            await call(chosen, "x = 1", {"user": "a"})
            assert await call(chosen, "x", {"user": "a"}) == "1"
            assert "NameError" in await call(chosen, "x", {"user": "b"})
        async with AsyncSandbox(install=False) as other, python_tool(other) as tool:
            assert await call(tool, "1 + 1") == "2"

    run(main())


def test_code_calls_functions_and_function_tools(agents: Any, box: Sandbox) -> None:
    from belljar.openai_agents import python_tool

    async def double(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return number * 2

    async def greet(context: Any, name: str, times: int = 1) -> str:
        """Greets somebody.

        Args:
            name: The name.
            times: The number of times.
        """
        return f"{context.context}: {name}" * times

    greet.__annotations__["context"] = agents.RunContextWrapper[str]
    greet.__annotations__ |= {"name": str, "times": int, "return": str}

    async def main() -> None:
        async with python_tool(box, tools=[double, agents.function_tool(greet)]) as tool:
            assert "async def greet(name: str, times: int" in tool.description
            code = "import asyncio\nawait asyncio.gather(double(4), greet(name='Ada', times=2))"
            assert await call(tool, code, "ctx") == "[8, 'ctx: Adactx: Ada']"
            assert "ValueError: negative" in await call(tool, "await double(-1)")

    run(main())


def test_cancelled_calls_stop_the_code(box: Sandbox) -> None:
    from belljar.openai_agents import python_tool

    began = threading.Event()

    def begin() -> None:
        began.set()

    async def main() -> None:
        async with python_tool(box, tools=[begin], timeout=120) as tool:
            endless = asyncio.create_task(call(tool, "x = 1\nawait begin()\nwhile True: pass"))
            assert await asyncio.to_thread(began.wait, 60)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            assert await call(tool, "x") == "1"
        async with python_tool(box, timeout=0.5) as tool:
            assert "ran longer than 0.5 s" in await call(tool, "while True: pass")

    run(main())


def test_the_runner_shows_images_to_the_model(agents: Any, box: Sandbox) -> None:
    from belljar.openai_agents import python_tool

    script = Script(PNG, "display(Image(data=png(2, 2)))", "6 * 7")

    async def main(address: str) -> None:
        async with python_tool(box) as tool:
            agent = agents.Agent(name="Analyst", model=model(address), tools=[tool])
            result = await agents.Runner.run(agent, "What is it?")
            assert result.final_output == "It is 42."

    with server(script) as address:
        run(main(address))
    assert script.results[0] == "(no output)" and script.results[1][-1]["type"] == "input_image"
    assert script.requests[0]["tools"][0]["strict"] is True


def test_sandbox_sessions_run_commands_and_have_files(native_options: dict[str, Any]) -> None:
    from belljar.openai_agents import BelljarSandboxClient

    errors, manifests = need("agents.sandbox.errors"), need("agents.sandbox.manifest")
    entries = need("agents.sandbox.entries")
    files = {"a.txt": entries.File(content=b"hello"), "d": entries.Dir(children={"x": entries.File(content=b"x")})}

    async def main() -> None:
        async with BelljarSandboxClient(**native_options) as client:
            manifest = manifests.Manifest(entries=files, environment={"value": {"KEY": "a b"}})
            async with await client.create(manifest=manifest) as session:
                result = await session.exec("pwd; cat a.txt d/x; echo $KEY >&2; exit 3")
                assert result.stdout == b"/session/workspace\nhellox"
                assert (result.stderr, result.exit_code) == (b"a b\n", 3)
                assert (await session.exec("no-such-program", shell=False)).exit_code == 127
                contents = bytes(range(256)) * 1000
                await session.write(Path("n/b"), io.BytesIO(contents))
                assert (await session.read(Path("n/b"))).read() == contents
                assert await session.read_bounded(Path("n/b"), max_bytes=3) == b"\0\1\2"
                await session.mv("n/b", "n/c")
                assert [Path(entry.path).name for entry in await session.ls("n")] == ["c"]
                await session.rm("n", recursive=True)
                with pytest.raises(errors.WorkspaceReadNotFoundError):
                    await session.read(Path("n/c"))
                await session.exec("ln -s /etc/passwd link")
                for path in ("/etc/passwd", "../x", "link"):
                    with pytest.raises(errors.InvalidManifestPathError):
                        await session.read(Path(path))
                with pytest.raises(errors.WorkspaceWriteTypeError):
                    await session.write(Path("t"), io.StringIO("text"))
                with pytest.raises(errors.ExecTimeoutError):
                    await session.exec("sleep 981", timeout=0.5)
                with pytest.raises(errors.ExecTransportError, match="one user"):
                    await session.exec("true", user="bob")
                results = await asyncio.gather(*(session.exec(f"echo {n}") for n in range(5)))
                assert [result.stdout for result in results] == [b"%d\n" % n for n in range(5)]
                assert await session.running()
            assert not await session.running()
            broken = await client.create(manifest=manifests.Manifest(root="/workspace2"))
            with pytest.raises(errors.WorkspaceStartError) as raised:
                await broken.start()
            assert "below /session or /tmp" in str(raised.value.context)
            await client.delete(broken)

    run(main())


def test_sandbox_sessions_continue_from_their_snapshot(tmp_path: Path, native_options: dict[str, Any]) -> None:
    from belljar.openai_agents import BelljarSandboxClient

    snapshots, errors = need("agents.sandbox.snapshot"), need("agents.sandbox.errors")

    async def main() -> None:
        async with BelljarSandboxClient(**native_options) as client:
            snapshot = snapshots.LocalSnapshotSpec(base_path=tmp_path)
            async with await client.create(snapshot=snapshot) as session:
                await session.exec("mkdir d; echo 1 > d/f; printf '#!/bin/sh\\necho ran\\n' > run; chmod 755 run")
            state = client.serialize_session_state(session.state)
            assert (state["type"], [file.suffix for file in tmp_path.iterdir()]) == ("belljar", [".tar"])
            async with await client.resume(client.deserialize_session_state(state)) as resumed:
                assert (await resumed.exec("cat d/f; ./run; ls")).stdout == b"1\nran\nd\nrun\n"
                with pytest.raises(errors.WorkspaceArchiveWriteError):
                    await resumed.hydrate_workspace(io.BytesIO(b"not an archive"))

    run(main())


def test_sandbox_agents_run_commands(agents: Any, native_options: dict[str, Any]) -> None:
    from belljar.native import NativeServer
    from belljar.openai_agents import BelljarSandboxClient

    sandbox, config = need("agents.sandbox"), need("agents.run_config")
    script = Script("echo 1 > f; pwd", "cat f; exit 3", tool="exec_command", argument="cmd")

    async def main(address: str, native: NativeServer) -> None:
        async with native.connect_async() as box, BelljarSandboxClient(box) as client:
            capabilities = [need("agents.sandbox.capabilities").Shell()]
            agent = sandbox.SandboxAgent(name="Coder", model=model(address), capabilities=capabilities)
            run_config = agents.RunConfig(sandbox=config.SandboxRunConfig(client=client))
            result = await agents.Runner.run(agent, "What is in the file?", run_config=run_config)
            assert "code 3" in result.final_output
            # The runner deletes the session that it has created.
            assert box._sessions == []

    with server(script) as address, NativeServer(**native_options) as native:
        run(main(address, native))
    assert "/session/workspace" in script.results[0]


def test_arguments_are_checked(box: Sandbox) -> None:
    from belljar.openai_agents import BelljarSandboxClient, code_function, python_tool

    with pytest.raises(belljar.ArgumentError, match="state"):
        python_tool(box, state="thread")  # type: ignore[arg-type]
    with pytest.raises(belljar.ArgumentError, match="packages"):
        python_tool(box, packages=["numpy"])
    with pytest.raises(belljar.ArgumentError, match="'pause' is not supported"):
        python_tool(Sandbox(tools=[belljar.McpServer("none", name="none")], approve="pause"))
    with pytest.raises(belljar.ArgumentTypeError, match="FunctionTool"):
        code_function(len)  # type: ignore[arg-type]
    with pytest.raises(belljar.ArgumentError, match="venv"):
        BelljarSandboxClient(box, venv="x")


def test_processes_go_on_between_calls_and_have_terminals(native_options: dict[str, Any]) -> None:
    from belljar.openai_agents import BelljarSandboxClient

    errors = need("agents.sandbox.errors")

    async def main() -> None:
        async with BelljarSandboxClient(**native_options) as client, await client.create() as session:
            short = await session.pty_exec_start("echo out; echo error >&2; exit 3")
            assert (short.process_id, short.output, short.exit_code) == (None, b"out\nerror\n", 3)
            long = await session.pty_exec_start("echo begun; sleep 1; echo late; exit 4", yield_time_s=0.25)
            assert long.exit_code is None and b"late" not in long.output
            # Other commands run meanwhile.
            assert (await session.exec("echo on")).stdout == b"on\n"
            ended = await session.pty_write_stdin(session_id=long.process_id, chars="", yield_time_s=30)
            assert (ended.exit_code, (long.output + ended.output)) == (4, b"begun\nlate\n")
            with pytest.raises(errors.PtySessionNotFoundError):
                await session.pty_write_stdin(session_id=long.process_id, chars="")
            python = await session.pty_exec_start("exec python -q", tty=True, yield_time_s=0.25)
            assert python.exit_code is None

            async def write(line: str, shown: bytes) -> None:
                """Writes to the interpreter until it has shown a text."""
                output = b""
                for _ in range(400):
                    update = await session.pty_write_stdin(session_id=python.process_id, chars=line, yield_time_s=0.25)
                    output += update.output
                    if shown in output:
                        return
                    line = "\n"
                pytest.fail(f"the interpreter has not shown {shown!r} but {output!r}")

            await write("import os; print(os.isatty(0), 6 * 7)\n", b"True 42")
            await write("print('asleep'); import time; time.sleep(979)\n", b"\r\nasleep")
            await write("\x03", b"KeyboardInterrupt")
            ended = await session.pty_write_stdin(session_id=python.process_id, chars="exit(5)\n", yield_time_s=30)
            assert ended.exit_code == 5
            many = await session.pty_exec_start("seq 1 1000000", max_output_tokens=50)
            assert len(many.output) < 1000 and many.original_token_count > 1000
            await session.pty_exec_start("sleep 978", yield_time_s=0.25)
            await session.pty_terminate_all()
            assert (await session.exec("pgrep -c sleep")).stdout == b"0\n"

    run(main())


def test_rules_of_function_tools_hold_for_code(box: Sandbox) -> None:
    from belljar.openai_agents import code_function, python_tool

    agents: Any = need("agents")
    called: list[int] = []

    @agents.tool_input_guardrail
    def small(data: Any) -> Any:
        number = json.loads(data.context.tool_arguments)["number"]
        if number > 100:
            return agents.ToolGuardrailFunctionOutput.raise_exception()
        if number > 10:
            return agents.ToolGuardrailFunctionOutput.reject_content(f"{number} is too large")
        return agents.ToolGuardrailFunctionOutput.allow()

    @agents.tool_output_guardrail
    def public(data: Any) -> Any:
        if data.output == 7:
            return agents.ToolGuardrailFunctionOutput.reject_content("seven is private")
        return agents.ToolGuardrailFunctionOutput.allow()

    async def odd(context: Any, arguments: dict[str, Any], identifier: str) -> bool:
        assert context.context == "user" and identifier
        return bool(arguments["number"] % 2)

    @agents.function_tool(tool_input_guardrails=[small], tool_output_guardrails=[public])
    def guarded(number: int) -> int:
        called.append(number)
        return number + 1

    @agents.function_tool(needs_approval=odd)
    def approved(number: int) -> int:
        called.append(number)
        return number

    @agents.function_tool(is_enabled=lambda context, agent: context.context != "user")
    def hidden() -> int:
        raise AssertionError

    @agents.function_tool(timeout=0.05)
    async def slow() -> str:
        await asyncio.sleep(60)
        return "late"

    @agents.function_tool
    def plain() -> int:
        return 1

    other = dataclasses.replace(plain, name="other", is_enabled=False)
    direct = dataclasses.replace(plain, name="direct", allowed_callers=["direct"])
    with pytest.raises(belljar.ArgumentError, match="plain needs approvals"):
        code_function(dataclasses.replace(plain, needs_approval=True))

    async def main() -> None:
        tools = [guarded, approved, hidden, slow, other, direct]
        async with python_tool(box, tools=tools) as tool:
            assert "def other" not in tool.description and "def direct" not in tool.description
            code = """
async def attempt(call):
    try:
        return await call
    except PermissionError as error:
        return str(error)
[await attempt(call) for call in (guarded(number=1), guarded(number=11), guarded(number=6))]
"""
            assert await call(tool, code, "user") == "[2, '11 is too large', 'seven is private']"
            code = "[await attempt(call) for call in (approved(number=2), approved(number=3), hidden())]"
            found = await call(tool, code, "user")
            assert "[2,\n 'this call of approved needs an approval" in found and "hidden is not enabled" in found
            assert called == [1, 6, 2]
            assert "timed out" in await call(tool, "await slow()", "user")
            # A tripwire ends the run of the agent, also if the code catches its exception. Later calls have no effect.
            code = """
for number in (101, 4):
    try:
        await guarded(number=number)
    except BaseException as error:
        print(type(error).__name__)
await approved(number=8)
"""
            with pytest.raises(agents.ToolInputGuardrailTripwireTriggered):
                await call(tool, code, "user")
            assert called == [1, 6, 2]
            assert await call(tool, "await guarded(number=2)", "user") == "3"

    run(main())

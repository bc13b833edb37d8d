"""The sandbox of agents of deepagents: its protocol, and an agent with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import need
from scripted import Script
from test_examples import langchain_model

import belljar
from belljar import Sandbox
from belljar.native import NativeServer


@pytest.fixture
def sandbox(native: NativeServer) -> Iterator[Any]:
    need("deepagents")
    from belljar.deepagents import BelljarSandbox

    with native.connect() as box, BelljarSandbox(box) as created:
        yield created


def test_it_has_the_protocol(sandbox: Any) -> None:
    protocol = need("deepagents.backends.protocol")
    assert isinstance(sandbox, protocol.SandboxBackendProtocol)
    assert protocol.execute_accepts_timeout(type(sandbox))
    assert sandbox.id.startswith("belljar-") and sandbox.id == sandbox.id
    assert "/session" in sandbox.instructions()


def test_commands_have_their_output_in_order_and_their_status(sandbox: Any) -> None:
    response = sandbox.execute("echo a; echo b >&2; echo c; exit 3")
    assert (response.output, response.exit_code, response.truncated) == ("a\nb\nc\n", 3, False)
    assert sandbox.execute("kill -9 $$").exit_code == 137
    assert sandbox.execute("no-such-program").exit_code == 127
    assert sandbox.execute("printf '\\377'").output == "\ufffd"
    late = sandbox.execute("echo begun; sleep 983", timeout=5)
    assert (late.output, late.exit_code) == ("begun\nError: Command timed out after 5 seconds.", 124)
    assert sandbox.execute("echo on; pgrep -c sleep", timeout=0).output == "on\n0\n"
    for command in ("", "echo \0"):
        assert sandbox.execute(command).exit_code == 1
    long = sandbox.execute("seq 1 1000000")
    assert long.truncated and long.output.endswith("1000000\n") and len(long.output) < 4_200_000


def test_a_killed_interpreter_is_an_error_of_one_command(sandbox: Any) -> None:
    response = sandbox.execute("kill -9 $PPID")
    assert response.exit_code is None and response.output.startswith("Error: ")
    assert sandbox.execute("echo on").output == "on\n"


def test_files_are_written_read_and_edited(sandbox: Any) -> None:
    path = "/session/a b/ü.py"
    assert sandbox.write(path, "import os\nprint('TODO')\n").error is None
    read = sandbox.read(path, offset=1, limit=1)
    assert (read.file_data["content"], read.start_line, read.total_lines) == ("print('TODO')", 2, 2)
    assert sandbox.edit(path, "TODO", "done").occurrences == 1
    assert sandbox.edit(path, "TODO", "x").error == "Error: String not found in file: 'TODO'"
    assert sandbox.edit("/session/none", "a", "b").error == "Error: File '/session/none' not found"
    assert sandbox.read("/session/none").error == "File '/session/none': file_not_found"
    assert "Read-only file system" in sandbox.write("/none/file", "x").error
    # Beyond the size that deepagents passes in a command.
    assert sandbox.edit(path, "done", "x" * 300_000).occurrences == 1
    assert len(sandbox.download_files([path])[0].content) > 300_000
    assert sandbox.delete(path).path == path and "not found" in sandbox.delete(path).error


def test_files_are_found(sandbox: Any) -> None:
    sandbox.upload_files([("/session/src/a.py", b"one\ntwo TODO\n"), ("/session/src/b.txt", b"TODO")])
    assert sandbox.ls("/session").entries == [{"path": "/session/src", "is_dir": True}]
    assert sandbox.ls("/none").error == "Path '/none': path_not_found"
    found = sandbox.grep("TODO").matches
    assert {match["path"] for match in found} == {"/session/src/a.py", "/session/src/b.txt"}
    only = sandbox.grep("TODO", "/session", glob="*.py")
    assert only.matches == [{"path": "/session/src/a.py", "line": 2, "text": "two TODO"}]
    assert sandbox.grep("TODO", max_count=1).truncated
    assert [match["path"] for match in sandbox.glob("*.py").matches] == ["/session/src/a.py"]


def test_uploads_and_downloads_succeed_or_fail_one_by_one(sandbox: Any) -> None:
    contents = bytes(range(256)) * 50_000
    uploads = [("/session/b", contents), ("relative", b""), ("/usr/x", b""), ("/session", b""), ("/session/b/c", b"")]
    errors = [response.error for response in sandbox.upload_files(uploads)]
    assert errors == [None, "invalid_path", "permission_denied", "is_directory", "invalid_path"]
    paths = ["/session/b", "relative", "/none", "/session", "/dev/zero", "/session/\0"]
    responses = sandbox.download_files(paths)
    assert [response.path for response in responses] == paths
    assert responses[0].content == contents and all(response.content is None for response in responses[1:])
    assert [response.error for response in responses[1:]] == [
        "invalid_path",
        "file_not_found",
        "is_directory",
        "invalid_path",
        "invalid_path",
    ]


def test_async_calls_have_the_same_results_and_can_be_cancelled(sandbox: Any) -> None:
    async def main() -> None:
        assert (await sandbox.awrite("/session/f", "TODO\n")).error is None
        assert (await sandbox.aread("/session/f")).file_data["content"] == "TODO"
        assert (await sandbox.aedit("/session/f", "TODO", "done")).occurrences == 1
        assert (await sandbox.als("/session")).entries == [{"path": "/session/f", "is_dir": False}]
        assert [match["line"] for match in (await sandbox.agrep("done")).matches] == [1]
        assert [match["path"] for match in (await sandbox.aglob("*")).matches] == ["/session/f"]
        assert (await sandbox.aupload_files([("/usr/x", b"")]))[0].error == "permission_denied"
        assert [each.content for each in await sandbox.adownload_files(["/session/f", "/none"])] == [b"done\n", None]
        running = asyncio.create_task(sandbox.aexecute("sleep 982"))
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        responses = await asyncio.gather(*(sandbox.aexecute(f"echo {n}; pgrep -c sleep") for n in range(5)))
        assert [response.output for response in responses] == [f"{n}\n0\n" for n in range(5)]

    asyncio.run(main())


def test_agents_use_the_tools_of_files_and_long_output_is_offloaded(sandbox: Any) -> None:
    from deepagents import create_deep_agent

    script = Script("seq 1 200000", "cat /tmp/deepagents/large_tool_results/* | tail -n 1")
    model = langchain_model(script, "execute", "command")
    agent = create_deep_agent(model, backend=sandbox.backend())
    result = agent.invoke({"messages": [{"role": "user", "content": "Count."}]})
    assert "truncated" in script.results[0] and len(script.results[0]) < 20_000
    assert "200000" in result["messages"][-1].text


def test_it_ends_its_server_or_its_session(native: NativeServer, native_options: dict[str, Any]) -> None:
    need("deepagents")
    from belljar.deepagents import BelljarSandbox

    with native.connect() as box:
        with BelljarSandbox(box) as sandbox:
            sandbox.execute("true")
            assert len(box._sessions) == 1
        assert box._sessions == []
        assert box.run("1 + 1").ok
    with BelljarSandbox(**native_options) as own:
        assert own.execute("echo on").output == "on\n"
    with pytest.raises(belljar.SandboxError):
        own.execute("true")


def test_arguments_are_checked(box: Sandbox) -> None:
    need("deepagents")
    from belljar.deepagents import BelljarSandbox

    with pytest.raises(belljar.ArgumentError, match="venv: a sandbox that is passed"):
        BelljarSandbox(box, venv="x")
    with pytest.raises(belljar.ArgumentError, match="timeout"):
        BelljarSandbox(box, timeout=0)
    with BelljarSandbox(box) as sandbox, pytest.raises(belljar.SandboxError, match="native kernels"):
        sandbox.execute("true")

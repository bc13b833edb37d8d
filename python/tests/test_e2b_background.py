"""E2B's interface: commands in the background of native kernels."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from belljar import code_interpreter as e2b
from belljar.code_interpreter import AsyncSandbox, Sandbox
from belljar.native import NativeServer


@pytest.fixture
def sandbox(native: NativeServer) -> Iterator[Sandbox]:
    with native.connect() as box, Sandbox.create(box=box) as sandbox:
        yield sandbox


def test_command_goes_on_while_code_runs(sandbox: Sandbox) -> None:
    assert (sandbox.commands.list(), sandbox.commands.kill(1)) == ([], False)
    with pytest.raises(e2b.NotFoundException):
        sandbox.commands.connect(1)
    # The command waits for a file that the code writes meanwhile.
    line = "until [ -e go ]; do sleep 0.05; done; echo $A; printf 'ä' >&2"
    handle = sandbox.commands.run(line, background=True, envs={"A": "1"})
    (info,) = sandbox.commands.list()
    assert (info.pid, info.args, info.envs) == (handle.pid, ["-c", line], {"A": "1"})
    assert sandbox.run_code("open('go', 'w').close()\n6 * 7").text == "42"
    assert sorted(handle, key=str) == [("1\n", None, None), (None, "ä", None)]
    result = handle.wait()
    assert (result.stdout, result.stderr, result.exit_code) == ("1\n", "ä", 0)
    assert sandbox.commands.list() == [] and not handle.kill()
    with pytest.raises(e2b.NotFoundException, match="ended"):
        sandbox.commands.connect(handle.pid)
    with pytest.raises(e2b.InvalidArgumentException, match="cwd"):
        sandbox.commands.run("true", background=True, cwd="none")


def test_command_reads_input(sandbox: Sandbox) -> None:
    commands = sandbox.commands
    handle = commands.run("cat; echo end", background=True, stdin=True)
    handle.send_stdin("a\n")
    commands.send_stdin(handle.pid, b"b\n")
    # More than a pipe and than an answer holds.
    commands.stream_input(handle.pid, ["c" * 200_000, b"\n"])
    handle.close_stdin()
    with pytest.raises(e2b.InvalidArgumentException, match="closed"):
        handle.send_stdin("x")
    assert handle.wait().stdout == "a\nb\n" + "c" * 200_000 + "\nend\n"
    with pytest.raises(e2b.InvalidArgumentException, match="iterable"):
        commands.stream_input(handle.pid, "text")
    with commands_of(sandbox, "sleep 60") as running, pytest.raises(e2b.InvalidArgumentException, match="stdin=True"):
        running.send_stdin("x")

    def answer() -> None:
        while not (found := commands.list()):
            pass
        commands.send_stdin(found[0].pid, "from another thread")
        commands.close_stdin(found[0].pid)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    assert commands.run("cat", stdin=True).stdout == "from another thread"
    thread.join()


class commands_of:
    """A command that runs meanwhile."""

    def __init__(self, sandbox: Sandbox, line: str) -> None:
        self.handle = sandbox.commands.run(line, background=True, timeout=0)

    def __enter__(self) -> e2b.CommandHandle:
        return self.handle

    def __exit__(self, *_: object) -> None:
        self.handle.kill()


def test_commands_fail_are_killed_and_have_limits(sandbox: Sandbox) -> None:
    commands = sandbox.commands
    with pytest.raises(e2b.CommandExitException) as caught:
        commands.run("echo no >&2; exit 3", background=True).wait()
    assert (caught.value.exit_code, caught.value.stderr) == (3, "no\n")
    handle = commands.run("sleep 60 & sleep 60", background=True)
    assert commands.connect(handle.pid).kill() and not commands.kill(handle.pid)
    with pytest.raises(e2b.CommandExitException) as caught:
        handle.wait()
    assert caught.value.exit_code == -9
    begin = time.monotonic()
    late = commands.run("sleep 60", background=True, timeout=0.3)
    with pytest.raises(e2b.TimeoutException, match="0.3 s"):
        late.wait()
    assert time.monotonic() - begin < 30 and commands.list() == []
    assert commands.run("pgrep sleep || echo none").stdout == "none\n"
    with commands_of(sandbox, "sleep 60") as running:
        # The limit of a connection is not that of the command.
        with pytest.raises(e2b.TimeoutException):
            commands.connect(running.pid, timeout=0.1).wait()
        running.disconnect()
        with pytest.raises(e2b.SandboxException, match="disconnected"):
            running.wait()
        assert [each.pid for each in commands.list()] == [running.pid]
    seen: list[str] = []
    result = commands.run("echo 1", background=True, retain_output=False).wait(on_stdout=seen.append)
    assert (str(result.stdout), str(result.stderr), seen) == ("None", "None", ["1\n"])
    assert str(commands.run("echo 1", retain_output=False).stdout) == "None"
    # The output of more commands than are kept.
    for _ in range(70):
        last = commands.run("echo 1", background=True)
    assert last.wait().stdout == "1\n"


def test_commands_end_with_their_sandbox(native: NativeServer) -> None:
    with native.connect() as box:
        sandbox = Sandbox.create(box=box)
        handle = sandbox.commands.run("sleep 60", background=True)
        assert sandbox.kill()
        with pytest.raises(e2b.SandboxNotRunningException):
            handle.wait()
        with pytest.raises(e2b.SandboxNotRunningException):
            sandbox.commands.list()


def test_asyncio(native: NativeServer) -> None:
    async def main() -> None:
        async with native.connect_async() as box, await AsyncSandbox.create(box=box) as sandbox:
            commands = sandbox.commands
            seen: list[str] = []

            async def receive(text: str) -> None:
                # Receivers may call the sandbox.
                assert not await sandbox.commands.kill(1)
                seen.append(text)

            handle = await commands.run("cat; exit 1", background=True, stdin=True, on_stdout=receive)
            assert (handle.exit_code, handle.stdout) == (None, "")
            async with commands.stream_input(handle.pid) as pieces:
                await pieces.send("x")
                await pieces.send(b"y\n")
            with pytest.raises(e2b.SandboxException, match="closed"):
                await pieces.send("z")
            await handle.close_stdin()
            with pytest.raises(e2b.CommandExitException):
                await handle.wait()
            assert (handle.stdout, handle.exit_code, "".join(seen)) == ("xy\n", 1, "xy\n")
            first = await commands.run("sleep 60", background=True)
            await first.disconnect()
            second = await commands.connect(first.pid)
            assert [each.pid for each in await commands.list()] == [first.pid]
            assert await first.kill() and not await second.kill()
            with pytest.raises(e2b.CommandExitException):
                await second.wait()
            many = await asyncio.gather(*(commands.run(f"echo {n}", background=True) for n in range(8)))
            assert [(await each.wait()).stdout for each in many] == [f"{n}\n" for n in range(8)]

    asyncio.run(main())


def test_code_that_answers_for_the_commands_harms_only_its_sandbox(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("sleep 60", background=True)
    functions = "__import__('sys').modules['_belljar_code_interpreter'].in_background"
    for answer in ("{}", "[1]", "{'output': [1, 2], 'code': 0, 'is_late': 0}", "{'output': ['', ''], 'code': 'x'}"):
        sandbox.run_code(f"{functions}['poll'] = {functions}['processes'] = lambda **_: {answer}")
        with pytest.raises(e2b.SandboxException):
            handle.wait()
        if answer != "{}":
            with pytest.raises(e2b.SandboxException):
                sandbox.commands.list()

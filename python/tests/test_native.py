"""Native kernels from the library: the server process, commands and files."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belljar import ArgumentTypeError, Sandbox, SandboxError
from belljar.native import CommandError, NativeServer, Shell


@pytest.fixture
def shell(native: NativeServer) -> Iterator[Shell]:
    with native.connect() as box:
        yield Shell(box, max_output=100_000)


def test_commands_have_a_status_and_two_streams(shell: Shell) -> None:
    result = shell.execute("echo out; echo error >&2; pwd; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n/session\n", b"error\n")
    assert shell.execute(["python", "-c", "print(1, flush=True)\nraise SystemExit(2)"]).exit_code == 2
    assert shell.execute("echo a; echo b >&2; echo c", merged=True).stdout == b"a\nb\nc\n"
    assert shell.execute("echo $KEY; pwd", cwd="/tmp", env={"KEY": "a b'\""}).stdout == b"a b'\"\n/tmp\n"
    assert shell.execute("kill -9 $$").exit_code == -9
    assert shell.execute("cat; head -c 100 /dev/urandom > f; wc -c < f").stdout == b"100\n"
    with pytest.raises(FileNotFoundError, match="nope"):
        shell.execute(["nope"])


def test_long_output_loses_its_middle_and_leaves_no_file(shell: Shell) -> None:
    result = shell.execute("seq 1 100000")
    assert result.truncated and result.stdout.startswith(b"1\n2\n") and result.stdout.endswith(b"100000\n")
    assert len(result.stdout) < 100_100 and b"bytes are left out" in result.stdout
    assert len(shell.execute("seq 1 10000").stdout) == 48_894
    assert shell.execute("ls").stdout == b""


def test_commands_stop_at_their_limit_with_their_children(shell: Shell) -> None:
    result = shell.execute("echo begun; sleep 987 & sleep 987", timeout=5)
    assert result.timed_out and result.stdout == b"begun\n"
    assert shell.execute("pgrep -c sleep").stdout == b"0\n"


def test_processes_in_the_background_do_not_hold_a_command_up(shell: Shell) -> None:
    assert shell.execute("sleep 986 & echo started").stdout == b"started\n"
    assert shell.execute("pgrep -c sleep; pkill sleep").stdout == b"1\n"


def test_files_of_all_sizes_have_their_contents(shell: Shell) -> None:
    for size in (0, 1, 8_000, 8_001, 70_000, 9_000_000):
        contents = os.urandom(size)
        shell.write("a/b c/f", contents)
        assert shell.read("/session/a/b c/f") == contents
        assert shell.read("a/b c/f") == contents
    assert shell.execute("ls; ls -A /tmp | grep belljar-[0-9a-f]*$").stdout == b"a\n"


def test_errors_of_files_have_their_classes(shell: Shell) -> None:
    shell.write("file", b"x")
    for path, kind in [("none", FileNotFoundError), (".", IsADirectoryError), ("file/x", NotADirectoryError)]:
        with pytest.raises(kind):
            shell.read(path)
    with pytest.raises(OSError, match="not a file"):
        shell.read("/dev/zero")
    with pytest.raises(OSError, match="Read-only"):
        shell.write("/usr/x", b"")
    with pytest.raises(NotADirectoryError):
        shell.write("file/x", b"")
    with pytest.raises(IsADirectoryError):
        shell.write("/session", b"")
    assert len(shell.read("/proc/self/status")) > 100


def test_an_interpreter_that_was_killed_is_replaced(shell: Shell) -> None:
    shell.write("file", b"x")
    with pytest.raises(CommandError, match="killed"):
        shell.execute("kill -9 $PPID")
    assert shell.execute("cat file").stdout == b"x"


def test_a_session_without_space_reports_it(native: NativeServer) -> None:
    with native.connect() as box:
        shell = Shell(box)
        full = shell.execute("head -c 300M /dev/zero > full; head -c 300M /dev/zero > full2; seq 1 20000")
        assert b"No space left" in full.stderr and full.truncated
        with pytest.raises(OSError, match="does not fit"):
            shell.write("file", b"x" * 100_000)
        assert shell.execute("ls").stdout == b"full\nfull2\n"
        shell.execute("rm full full2")
        shell.write("file", b"x" * 100_000)


def test_output_of_the_session_is_not_trusted(shell: Shell) -> None:
    shell.root()
    # The kernel's process belongs to the user of the commands, who can replace what answers to the host.
    for answer in ["print('nonsense')", "print('[1]')", 'print(\'{"code": "x"}\')', "print('[' * 100_000)"]:
        shell._session.sync.run(f"import sys\nsys.modules['_belljar_shell'].run = lambda *_: {answer}")
        with pytest.raises(SandboxError):
            shell.execute("true")


def test_async_calls_can_be_cancelled(native: NativeServer) -> None:
    async def main() -> None:
        async with native.connect_async() as box:
            shell = Shell(box)
            assert await shell.aroot() == "/session"
            await shell.awrite("file", b"1")
            assert await shell.aread("file") == b"1"
            running = asyncio.create_task(shell.aexecute("touch begun; sleep 985; touch late"))
            # The list of the files waits for the command, so that nothing but time shows that it has begun.
            await asyncio.sleep(1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (await shell.aexecute("pgrep -c sleep; ls late")).stdout == b"0\n"
            results = await asyncio.gather(*(shell.aexecute(f"echo {number}") for number in range(8)))
            assert [result.stdout for result in results] == [b"%d\n" % number for number in range(8)]
            await shell.aclose()
            with pytest.raises(SandboxError, match="closed"):
                await shell.aexecute("true")

    asyncio.run(main())


def test_sessions_share_nothing(native: NativeServer) -> None:
    with native.connect() as box:
        first, second = Shell(box), Shell(box)
        first.write("file", b"1")
        assert second.execute("ls; ls /tmp/file").stdout == b""
        first.close()
        assert second.execute("echo on").stdout == b"on\n"


def test_sandboxes_without_native_kernels_are_refused(box: Sandbox) -> None:
    shell = Shell(box)
    with pytest.raises(SandboxError, match="native kernels"):
        shell.execute("true")
    shell.close()


def test_arguments_are_checked() -> None:
    with pytest.raises(ArgumentTypeError, match="sandbox: a Sandbox or AsyncSandbox is needed, not str"):
        Shell("http://example.org")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="options"):
        NativeServer(options="--verbose")


def test_servers_need_their_token(native: NativeServer) -> None:
    import belljar

    with pytest.raises(belljar.ServerError, match="401|token|auth"):
        belljar.connect(native.url)


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELLJAR_NATIVE", str(tmp_path))
    with pytest.raises(SandboxError, match=r"^failed to start native kernels: .*\(hint: .*native setup"):
        NativeServer()
    with pytest.raises(SandboxError, match="failed to start native kernels: .*unexpected argument"):
        NativeServer(options=["--no-such-option"])
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="need Linux"):
        NativeServer()


def processes_of(session: int) -> list[str]:
    """Returns the commands of the processes in a session of the system."""
    listed = subprocess.run(["ps", "-o", "args=", "-s", str(session)], capture_output=True, text=True, check=False)
    return listed.stdout.splitlines()


def wait_until_ended(session: int) -> None:
    deadline = time.monotonic() + 60
    while processes_of(session):
        assert time.monotonic() < deadline, processes_of(session)
        time.sleep(0.05)


def test_a_server_ends_when_it_is_closed_or_not_used_any_more(native_options: dict[str, Any]) -> None:
    server = NativeServer(**native_options)
    session = server._process.pid
    with server.connect() as box:
        Shell(box).execute("sleep 984 &")
    assert processes_of(session)
    server.close()
    server.close()
    wait_until_ended(session)
    server = NativeServer(**native_options)
    session = server._process.pid
    del server
    wait_until_ended(session)


def test_a_server_ends_with_a_process_that_is_killed(native_options: dict[str, Any]) -> None:
    program = (
        "import sys, time\nfrom belljar.native import NativeServer\n"
        f"server = NativeServer(**{native_options!r})\nprint(server._process.pid, flush=True)\ntime.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    session = int(process.stdout.readline())
    assert processes_of(session)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until_ended(session)

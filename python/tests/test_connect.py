"""Sandboxes on a server: `belljar.connect` against a process of `belljar streamable-http`."""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import belljar
from belljar import Sandbox, connect, connect_async
from server import TOKEN, Server


@pytest.fixture
def remote(server: Server) -> Iterator[Sandbox]:
    with connect(server.url, token=TOKEN) as box:
        yield box


def test_a_run_is_the_same_as_in_this_process(remote: Sandbox, box: Sandbox) -> None:
    codes = [
        "print('a'); import sys; print('b', file=sys.stderr); x * 7",
        "1 / 0",
        "import sys; sys.exit(3)",
        "import datetime; {'d': datetime.date(2024, 1, 2), 't': (1, 2**80), 's': {1}, 'b': b'0' * 9000, 'n': float('nan')}",
        "None",
    ]
    for code in codes:
        here, there = (each.run(code, globals={"x": 6}) for each in (box, remote))
        assert (here.status, here.output, here.stdout, here.stderr) == (
            there.status,
            there.output,
            there.stdout,
            there.stderr,
        )
        assert repr(here.value) == repr(there.value)
        assert (here.error, here.exit_code, here.limit, here.hint) == (
            there.error,
            there.exit_code,
            there.limit,
            there.hint,
        )
    assert there.stats.run > 0 and there.stats.peak_memory > 0


def test_variables_keep_their_types(remote: Sandbox) -> None:
    variables = {
        "when": datetime.datetime(2024, 1, 2),
        "data": b"\x00\xff" * 5000,
        "number": 2**100,
        "keys": {(1, 2): {3}},
    }
    run = remote.run("[when, data, number, keys]", globals=variables).check()
    assert run.value == list(variables.values())
    with pytest.raises(belljar.ArgumentTypeError, match="globals\\['o'\\]"):
        remote.run("1", globals={"o": object()})


def test_limits_are_those_of_the_call_and_the_server(remote: Sandbox) -> None:
    run = remote.run("while True: pass", timeout=0.3)
    assert (run.status, run.limit) == ("limit", "time")
    with pytest.raises(belljar.LimitError):
        run.check()


def test_output_arrives_while_the_code_runs(remote: Sandbox) -> None:
    arrived: list[tuple[str, str, float]] = []
    code = "import sys, time\nprint('one'); print('two', file=sys.stderr); time.sleep(3); print('three')"
    began = time.monotonic()
    run = remote.run(
        code,
        on_stdout=lambda text: arrived.append(("out", text, time.monotonic() - began)),
        on_stderr=lambda text: arrived.append(("err", text, time.monotonic() - began)),
    )
    assert [each[:2] for each in arrived] == [("out", "one\n"), ("err", "two\n"), ("out", "three\n")]
    # A busy machine delays the first message, too.
    assert arrived[2][2] - arrived[0][2] > 1
    assert (run.stdout, run.stderr) == ("one\nthree\n", "two\n")


def test_output_of_concurrent_calls_does_not_mix(remote: Sandbox) -> None:
    outputs: dict[int, list[str]] = {number: [] for number in range(12)}

    def run(number: int) -> None:
        remote.run(f"for i in range(50): print({number}, i)", on_stdout=outputs[number].append)

    threads = [threading.Thread(target=run, args=(number,)) for number in outputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, pieces in outputs.items():
        assert "".join(pieces) == "".join(f"{number} {i}\n" for i in range(50))


def test_receivers_of_output_can_use_the_sandbox_and_raise(remote: Sandbox) -> None:
    values: list[object] = []
    remote.run("print('x')", on_stdout=lambda _: values.append(remote.run("6 * 7").value))
    assert values == [42]

    def fail(_: str) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        remote.run("print('x')\nwhile True: pass", on_stdout=fail)


def test_sessions_keep_variables_and_files(remote: Sandbox) -> None:
    with remote.session() as session:
        session.files.write("räum lich?.bin", b"\x00\x01")
        session.run("import datetime; x = datetime.date(2024, 1, 2)").check()
        run = session.run("open('out.txt', 'w').write('ä' * 10)\nprint('p'); (x, y)", globals={"y": {1, 2}})
        assert (run.value, run.output, run.text) == (
            (datetime.date(2024, 1, 2), {1, 2}),
            "p\n",
            "(datetime.date(2024, 1, 2), {1, 2})",
        )
        assert {file.path: file.size for file in session.files.list()} == {"räum lich?.bin": 2, "out.txt": 20}
        assert session.files.read("räum lich?.bin") == b"\x00\x01"
        assert session.files.read("out.txt").decode() == "ä" * 10
        with pytest.raises(belljar.FileMissingError):
            session.files.read("absent")
        other = session.fork()
        other.run("x = 1")
        assert session.run("x").value == datetime.date(2024, 1, 2)
        failed = session.run("1 / 0")
        assert failed.error is not None and failed.error.name == "ZeroDivisionError"
        session.restart()
        assert session.run("x").status == "error"
        assert [file.path for file in session.files.list()] == ["out.txt", "räum lich?.bin"]
    with pytest.raises(belljar.SandboxError, match="closed"):
        session.run("1")


def test_large_files_are_read_in_parts(remote: Sandbox) -> None:
    with remote.session() as session:
        session.run("import os; data = os.urandom(9_000_000); open('large', 'wb').write(data); data[-1000:]").check()
        contents = session.files.read("large")
        assert len(contents) == 9_000_000
        assert contents[-1000:] == session.run("data[-1000:]").value


def test_values_without_room_are_left_out(remote: Sandbox) -> None:
    run = remote.run("b'x' * 20_000_000")
    assert run.ok and "left out" in run.value


def test_what_a_server_cannot_do_is_an_error(server: Server, remote: Sandbox) -> None:
    with pytest.raises(belljar.UnsupportedError, match="tools"):
        connect(server.url, token=TOKEN, tools=[print])
    with pytest.raises(belljar.UnsupportedError, match="load"):
        remote.load(b"")
    with remote.session() as session, pytest.raises(belljar.UnsupportedError, match="dump"):
        session.dump()


def test_refused_connections_are_errors(server: Server) -> None:
    with pytest.raises(belljar.ServerError, match="authorization.*token"):
        connect(server.url, token="wrong")
    with pytest.raises(belljar.ServerError, match="failed to connect|failed to send"):
        connect("http://127.0.0.1:9/mcp", timeout=5)
    for url, options in (
        ("ftp://example.org", {}),
        ("http://127.0.0.1:9/mcp", {"timeout": 0}),
        ("http://127.0.0.1:9/mcp", {"headers": {"a b": "c"}}),
    ):
        with pytest.raises(belljar.ArgumentError):
            connect(url, **options)  # type: ignore[arg-type]


def test_server_that_ends_is_an_error() -> None:
    server = Server("--toolset", "all")
    with connect(server.url) as box:
        assert box.run("1 + 1").value == 2
        threading.Timer(1, server.stop).start()
        with pytest.raises(belljar.ServerError):
            box.run("while True: pass")
        with pytest.raises(belljar.ServerError):
            box.run("1")


def test_server_without_sessions_names_the_option() -> None:
    server = Server()
    try:
        with connect(server.url) as box:
            assert box.run("1").value == 1
            with pytest.raises(belljar.ServerError, match="--toolset all"):
                box.session().run("1")
    finally:
        server.stop()


def test_connection_is_opened_again_after_idle_time() -> None:
    server = Server("--toolset", "all", "--http-session-timeout", "1")
    try:
        with connect(server.url) as box:
            session = box.session()
            session.run("x = 1")
            time.sleep(3)
            assert box.run("1 + 1").value == 2
            assert session.run("x").value == 1
    finally:
        server.stop()


def calls_in_flight(server: Server) -> bool:
    """Returns whether code runs on the server: its process then uses the processor."""
    before = processor_time(server)
    # Long enough for a busy machine to give the code this much.
    time.sleep(1)
    return processor_time(server) - before > 0.15


def processor_time(server: Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_idle(server: Server) -> None:
    deadline = time.monotonic() + 60
    while calls_in_flight(server):
        assert time.monotonic() < deadline, "the code still runs on the server"


def test_ctrl_c_stops_the_code_on_the_server(server: Server) -> None:
    program = f"""
import belljar, os, signal, threading
box = belljar.connect({server.url!r}, token={TOKEN!r})
session = box.session()
session.run("x = 1")
for run in (box.run, session.run):
    try:
        run("print('begun')\\nwhile True: pass", on_stdout=lambda _: os.kill(os.getpid(), signal.SIGINT))
    except KeyboardInterrupt:
        print("interrupted")
print(session.run("x").value)
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert result.stdout == "interrupted\ninterrupted\n1\n", result.stderr
    wait_until_idle(server)


def test_asyncio(server: Server) -> None:
    async def main() -> None:
        async with connect_async(server.url, token=TOKEN) as box:
            runs = await asyncio.gather(*(box.run(f"{number} + 1") for number in range(40)))
            assert [run.value for run in runs] == [number + 1 for number in range(40)]
            pieces: list[str] = []
            async with box.session() as session:
                cells = [session.run(f"print({number})", on_stdout=pieces.append) for number in range(5)]
                await asyncio.gather(*cells)
                assert "".join(pieces) == "0\n1\n2\n3\n4\n"
                await session.files.write("f", b"1")
                assert await session.files.read("f") == b"1"
                begun = threading.Event()
                code = "y = 2\nprint('begun')\nwhile True: pass"
                endless = asyncio.create_task(session.run(code, on_stdout=lambda _: begun.set()))
                assert await asyncio.to_thread(begun.wait, 60)
                endless.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await endless
                assert (await session.run("y")).value == 2
            begun = threading.Event()
            endless = asyncio.create_task(box.run("print('begun')\nwhile True: pass", on_stdout=lambda _: begun.set()))
            assert await asyncio.to_thread(begun.wait, 60)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            with pytest.raises(belljar.UnsupportedError):
                box.load(b"")

    asyncio.run(main())
    wait_until_idle(server)


def test_connection_refused_is_an_error_of_async_with() -> None:
    async def main() -> None:
        async with connect_async("http://127.0.0.1:9/mcp"):
            pass

    with pytest.raises(belljar.ServerError):
        asyncio.run(main())

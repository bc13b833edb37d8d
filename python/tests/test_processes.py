"""Processes: forks, spawned processes, Ctrl-C, and the end of the interpreter."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time


import belljar
from belljar import Sandbox


def python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs code in a new Python."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_interpreter_ends_while_a_loop_is_notified() -> None:
    program = """
import asyncio, belljar
async def main():
    async with belljar.AsyncSandbox(install=False) as box:
        await asyncio.gather(*(box.run("1") for _ in range(4)))
asyncio.run(main())
"""
    ended = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(8)]
    for process in ended:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")


def square(number: int) -> int:
    value: int = Sandbox(install=False).run(f"{number} ** 2").value
    return value


def test_spawned_processes_work() -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(square, range(4)) == [0, 1, 4, 9]


def test_fork_before_the_first_use_works() -> None:
    result = python(
        "import belljar, os\n"
        "if os.fork() == 0:\n"
        "    assert belljar.Sandbox(install=False).run('1 + 1').value == 2\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    assert result.stdout == "7\n", result.stderr


def test_fork_after_the_first_use_is_refused_with_the_reason(box: Sandbox) -> None:
    assert box.run("1").value == 1
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            box.run("1")
        except belljar.ForkError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    message = os.read(read, 10_000).decode()
    os.close(read)
    os.waitpid(child, 0)
    assert "spawn" in message
    assert box.run("2").value == 2


def test_ctrl_c_stops_the_code() -> None:
    # Programs that a shell starts in the background ignore SIGINT, and so do those that they start.
    code = (
        "import belljar, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "code = 'print(1)\\nwhile True: pass'\n"
        "belljar.Sandbox(install=False).run(code, on_stdout=lambda text: print('ready', flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, stderr = process.communicate(timeout=60)
        assert "KeyboardInterrupt" in stderr and time.monotonic() - begin < 10
        assert process.returncode == -signal.SIGINT


def test_interpreter_ends_while_code_runs() -> None:
    result = python(
        "import belljar, threading, time\n"
        "box = belljar.Sandbox(install=False)\n"
        "box.run('1')\n"
        "started = threading.Event()\n"
        "work = lambda: box.run('print(1)\\nwhile True: pass', on_stdout=lambda text: started.set())\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "started.wait()\n"
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_sessions_and_tools_may_be_left_open_at_the_end() -> None:
    result = python(
        "import belljar\n"
        "async def f(): return 1\n"
        "box = belljar.Sandbox(tools=[f], install=False)\n"
        "session = box.session()\n"
        "print(session.run('await f()').value)\n"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "1\n", "")


def test_memory_stays_within_bounds(box: Sandbox) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def work(count: int) -> None:
        for number in range(count):
            assert box.run("x", globals={"x": number}).value == number

    work(300)
    before = resident()
    work(1000)
    assert resident() - before < 16 << 20

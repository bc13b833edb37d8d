"""Processes: forks, spawned processes, Ctrl-C, and the end of the interpreter."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

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


def divide(number: int) -> belljar.Run:
    return Sandbox(install=False).run(f"print('dividing')\n1 / {number}").check()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_processes_work(method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(square, range(4)) == [0, 1, 4, 9]


def test_runs_and_errors_cross_between_processes() -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        run = pool.submit(divide, 4).result()
        assert (run.value, run.output) == (0.25, "dividing\n")
        with pytest.raises(belljar.CodeError, match="division by zero") as raised:
            pool.submit(divide, 0).result()
        assert raised.value.name == "ZeroDivisionError" and raised.value.run.output == "dividing\n"


def test_runs_of_all_kinds_can_be_pickled(box: Sandbox) -> None:
    run = box.run("b'x' * 5000, 10 ** 30, {1: 2}")
    copies = [pickle.loads(pickle.dumps(run)) for _ in range(2)]
    assert copies[0].value == run.value == pickle.loads(pickle.dumps(run)).value == copies[1].value
    for code in ("1 / 0", "import sys; sys.exit(3)", "while True: pass"):
        with pytest.raises(belljar.RunFailedError) as raised:
            box.run(code, timeout=0.3).check()
        copy = pickle.loads(pickle.dumps(raised.value))
        assert type(copy) is type(raised.value) and str(copy) == str(raised.value)
        assert copy.run.status == raised.value.run.status
    with pytest.raises(belljar.FileMissingError) as missing:
        box.session().files.read("none.txt")
    assert str(pickle.loads(pickle.dumps(missing.value))) == str(missing.value)


def test_pool_of_forked_processes_works_before_the_first_use_and_is_refused_after_it() -> None:
    code = """
import multiprocessing
import belljar

def square(number):
    return belljar.Sandbox(install=False).run(f"{number} ** 2").value

fork = multiprocessing.get_context("fork")
with fork.Pool(2) as pool:
    print(pool.map(square, range(4)))
print(square(5))
with fork.Pool(2) as pool:
    try:
        pool.map(square, range(4))
    except belljar.ForkError as error:
        print("spawn" in str(error))
print(square(6))
"""
    result = python(code)
    assert result.stdout == "[0, 1, 4, 9]\n25\nTrue\n36\n", result.stderr


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
        _, stderr = process.communicate(timeout=120)
        assert "KeyboardInterrupt" in stderr and time.monotonic() - begin < 60
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


def test_time_limits_hold_after_faulthandler_was_enabled() -> None:
    result = python(
        "import belljar, faulthandler\n"
        "box = belljar.Sandbox(install=False)\n"
        "box.run('1')\n"
        "faulthandler.enable()\n"
        "print(box.run('while True: pass', timeout=0.3).limit)\n"
        "faulthandler.disable()\n"
        "print(box.run('while True: pass', timeout=0.3).limit)\n"
    )
    assert (result.returncode, result.stdout) == (0, "time\ntime\n"), result.stderr

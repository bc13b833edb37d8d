"""One-shot runs."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import belljar
from belljar import Sandbox


def test_value_output_and_statistics_of_a_run(box: Sandbox) -> None:
    run = box.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nx * 7", globals={"x": 6})
    assert (run.status, run.value, run.ok) == ("success", 42, True)
    assert (run.output, run.stdout, run.stderr) == ("out\nerr\n", "out\n", "err\n")
    assert run.stats.run > 0 and run.stats.peak_memory > 1 << 20
    assert run.check() is run and run.error is None and run.calls == []


def test_each_run_has_an_interpreter_of_its_own(box: Sandbox) -> None:
    box.run("import builtins; builtins.leak = x = 1; open('file', 'w').write('x')").check()
    assert box.run("import os; ('x' in globals(), hasattr(__builtins__, 'leak'), os.listdir())").value == (
        False,
        False,
        [],
    )


def test_exception_has_name_message_and_traceback(box: Sandbox) -> None:
    run = box.run("def f():\n    return 1 / 0\nf()")
    assert run.status == "error" and not run.ok and run.value is None
    assert run.error is not None and (run.error.name, run.error.message) == ("ZeroDivisionError", "division by zero")
    assert run.error.traceback.startswith("Traceback") and 'line 2, in f' in run.error.traceback
    with pytest.raises(belljar.CodeError, match="ZeroDivisionError: division by zero") as raised:
        run.check()
    assert raised.value.run is run and isinstance(raised.value, belljar.BelljarError)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("while True: pass", "limit", belljar.LimitError),
        ("import sys; sys.exit(3)", "exit", belljar.ExitError),
        ("import nope_nope", "error", belljar.CodeError),
        ("def", "error", belljar.CodeError),
    ],
)
def test_each_failure_has_a_status_and_an_exception(
    box: Sandbox, code: str, status: str, kind: type[belljar.RunFailedError]
) -> None:
    run = box.run(code, timeout=5)
    assert run.status == status
    with pytest.raises(kind):
        run.check()


def test_limits_are_named() -> None:
    box = Sandbox(limits={"memory": "64MB", "output": "10KB", "timeout": 20}, install=False)
    assert box.run("while True: print('x' * 100)").limit == "output"
    error = box.run("x = bytearray(1 << 30)").error
    assert error is not None and error.name == "MemoryError"
    assert box.run("while True: pass", timeout=0.2).limit == "time"


def test_sys_exit_0_is_a_success(box: Sandbox) -> None:
    run = box.run("print('done'); raise SystemExit(0)")
    assert run.check().exit_code == 0 and run.output == "done\n"


def test_output_is_received_while_the_code_runs(box: Sandbox) -> None:
    pieces: list[str] = []
    errors: list[str] = []
    code = "import sys\nfor n in range(3): print(n)\nprint('é', file=sys.stderr)"
    run = box.run(code, on_stdout=pieces.append, on_stderr=errors.append)
    assert "".join(pieces) == run.stdout == "0\n1\n2\n"
    assert "".join(errors) == run.stderr == "é\n"


def test_exception_of_the_receiver_of_output_ends_the_run(box: Sandbox) -> None:
    def refuse(text: str) -> None:
        raise KeyError(text)

    begin = time.monotonic()
    with pytest.raises(KeyError):
        box.run("while True: print('x')", on_stdout=refuse)
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"limits": {"speed": 1}}, "speed"),
        ({"limits": {"memory": "lots"}}, "memory"),
        ({"limits": {"timeout": -1}}, "timeout"),
        ({"limits": {"timeout": "1"}}, "timeout"),
        ({"limits": 3}, "limits"),
        ({"packages": "numpy"}, "packages"),
        ({"packages": ["http://example.org/x.whl"]}, "packages"),
        ({"tools": print}, "tools"),
        ({"tools": [3]}, "tools"),
        ({"network": True}, "network"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, object], word: str) -> None:
    with pytest.raises((belljar.ArgumentError, belljar.ArgumentTypeError), match=word):
        Sandbox(**arguments).prepare()  # type: ignore[arg-type]


def test_invalid_arguments_of_a_run_are_named(box: Sandbox) -> None:
    with pytest.raises(belljar.ArgumentTypeError, match="code"):
        box.run(3)  # type: ignore[arg-type]
    with pytest.raises(belljar.ArgumentError, match="not a name"):
        box.run("1", globals={"not a name": 1})
    with pytest.raises(belljar.ArgumentError, match="timeout"):
        box.run("1", timeout=0)


def test_threads_run_code_side_by_side(box: Sandbox) -> None:
    values: dict[int, int] = {}

    def work(number: int) -> None:
        values[number] = box.run(f"{number} ** 2").value

    threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == {number: number**2 for number in range(100)}


def test_the_gil_is_free_while_code_runs(box: Sandbox) -> None:
    counted = 0
    thread = threading.Thread(target=box.run, args=("while True: pass",), kwargs={"timeout": 4})
    thread.start()
    while thread.is_alive():
        counted += 1
        time.sleep(0.001)
    assert counted > 50


def test_closed_sandbox_is_refused() -> None:
    with Sandbox(install=False) as box:
        session = box.session()
        session.run("x = 1")
    with pytest.raises(belljar.SandboxError, match="closed"):
        box.run("1")
    with pytest.raises(belljar.SandboxError, match="closed"):
        session.run("x")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"find_links": "wheels"}, "find_links"),
        ({"find_links": [5]}, "find_links"),
        ({"index_url": 5}, "index_url"),
        ({"cache": 5}, "cache"),
        ({"limits": {"timeout": float("inf")}}, "limits\\['timeout'\\]"),
        ({"limits": {"cpu": float("nan")}}, "limits\\['cpu'\\]"),
        ({"deny_tools": ["weather"], "tools": [print]}, "deny_tools: .*no servers"),
        ({"allow_tools": ["github.*"]}, "allow_tools: .*no servers"),
    ],
)
def test_options_without_a_meaning_are_named(options: dict[str, Any], name: str) -> None:
    with pytest.raises((belljar.ArgumentError, belljar.ArgumentTypeError), match=f"^{name}"):
        Sandbox(**options)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"globals": {"class": 1}}, "globals"),
        ({"on_stdout": 5}, "on_stdout"),
        ({"on_stderr": "print"}, "on_stderr"),
    ],
)
def test_arguments_without_a_meaning_are_named(box: Sandbox, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises((belljar.ArgumentError, belljar.ArgumentTypeError), match=f"^{name}"):
        box.run("1", **arguments)

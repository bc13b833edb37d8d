"""Sessions."""

from __future__ import annotations

import pytest

import belljar
from belljar import Sandbox, Session


def test_variables_stay(session: Session) -> None:
    session.run("x = 41").check()
    run = session.run("x += 1\nx")
    assert (run.value, run.text) == (42, "42")
    assert session.run("_ + 1").value == 43


def test_globals_and_typed_values(session: Session) -> None:
    assert session.run("(a, b)", globals={"a": b"x" * 5000, "b": {1}}).value == (b"x" * 5000, {1})
    assert session.run("len(a)").value == 5000


def test_errors_leave_the_session_usable(session: Session) -> None:
    run = session.run("y = 1\n1 / 0")
    assert run.error is not None and run.error.name == "ZeroDivisionError"
    with pytest.raises(belljar.CodeError):
        run.check()
    assert session.run("y").value == 1


def test_ipython_features_work(session: Session) -> None:
    run = session.run("from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\n%who_ls")
    assert run.displays[0]["text/html"] == "<b>x</b>"
    assert "HTML" in run.value


def test_time_limit_keeps_the_variables(session: Session) -> None:
    session.run("z = 5")
    run = session.run("while True: pass", timeout=0.5)
    assert (run.status, run.limit) == ("limit", "time")
    assert session.run("z").value == 5


def test_end_of_the_interpreter_keeps_the_files(session: Session) -> None:
    session.files.write("kept.txt", b"data")
    run = session.run("import os; os._exit(3)")
    assert (run.status, run.exit_code) == ("exit", 3)
    assert session.run("open('kept.txt').read()").check().value == "data"


def test_files_are_listed_read_and_written(session: Session) -> None:
    session.files.write("data.csv", b"a,b\n1,2\n")
    session.run("open('out.bin', 'wb').write(open('data.csv', 'rb').read() * 2)").check()
    assert {(file.path, file.size) for file in session.files.list()} == {("data.csv", 8), ("out.bin", 16)}
    assert session.files.read("out.bin") == b"a,b\n1,2\n" * 2
    large = bytes(range(256)) * 40_000
    session.files.write("large.bin", large)
    assert session.files.read("large.bin") == large


def test_file_errors_are_python_errors(session: Session) -> None:
    with pytest.raises(FileNotFoundError):
        session.files.read("none.txt")
    for name in ("../x", "/etc/passwd", "", "a/../b", ".hidden"):
        with pytest.raises(belljar.FileError):
            session.files.write(name, b"")


def test_forks_are_independent(session: Session) -> None:
    session.run("x = [1]")
    with session.fork() as other:
        other.run("x.append(2)")
        assert (session.run("x").value, other.run("x").value) == ([1], [1, 2])


def test_dumps_continue_in_another_sandbox(session: Session) -> None:
    session.run("x = {'a': 1}\ndef f(): return x")
    session.files.write("a.txt", b"1")
    dump = session.dump()
    with Sandbox(install=False) as other, other.load(dump) as loaded:
        assert loaded.run("f()").check().value == {"a": 1}
        assert loaded.files.read("a.txt") == b"1"
        first, second = loaded.run("import random; random.random()").value, session.run(
            "import random; random.random()"
        ).value
        assert first != second


def test_damaged_dumps_are_refused(box: Sandbox, session: Session) -> None:
    session.run("x = 1")
    dump = session.dump()
    for damaged in (b"", b"nonsense", dump[:100], dump[:-10], b"x" + dump[1:]):
        with pytest.raises(belljar.DumpError):
            box.load(damaged).run("x")
    with pytest.raises(belljar.ArgumentTypeError, match="dump"):
        box.load("text")  # type: ignore[arg-type]


def test_restart_forgets_variables_and_keeps_files(session: Session) -> None:
    session.run("x = 1")
    session.files.write("a.txt", b"1")
    session.restart()
    assert session.run("x").status == "error"
    assert session.files.read("a.txt") == b"1"


def test_output_is_in_order(session: Session) -> None:
    run = session.run("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')")
    assert (run.output, run.stdout, run.stderr) == ("a\nb\nc\n", "a\nc\n", "b\n")

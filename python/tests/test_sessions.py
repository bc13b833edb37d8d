"""Sessions."""

from __future__ import annotations

from pathlib import Path

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


def test_paths_of_files_may_be_objects(session: Session) -> None:
    session.files.write(Path("a.txt"), b"1")
    assert session.files.read(Path("a.txt")) == b"1"
    with pytest.raises(belljar.FileError, match="plots/a.txt.*directory itself"):
        session.files.write("plots/a.txt", b"1")
    with pytest.raises(belljar.ArgumentTypeError, match="path"):
        session.files.read(5)  # type: ignore[arg-type]


def test_forks_are_independent(session: Session) -> None:
    session.run("x = [1]")
    with session.fork() as other:
        other.run("x.append(2)")
        assert (session.run("x").value, other.run("x").value) == ([1], [1, 2])


def test_dumps_continue_in_another_sandbox(session: Session) -> None:
    session.run("x = {'a': 1}\ndef f(): return x")
    session.files.write("a.txt", b"1")
    dump = session.dump()
    with Sandbox(install=False) as other:
        loaded = other.load(dump)
        assert isinstance(loaded, Session)
        assert loaded.run("f()").check().value == {"a": 1}
        assert loaded.files.read("a.txt") == b"1"
        first, second = (
            loaded.run("import random; random.random()").value,
            session.run("import random; random.random()").value,
        )
        assert first != second


def test_damaged_dumps_are_refused(box: Sandbox, session: Session) -> None:
    session.run("x = 1")
    dump = session.dump()
    for damaged in (b"", b"nonsense", dump[:100], dump[:-10], b"x" + dump[1:]):
        with pytest.raises(belljar.DumpError):
            box.load(damaged)
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


PLAIN_CELLS = '''
import random, warnings
from IPython.core.inputtransformer2 import TransformerManager

warnings.simplefilter("ignore")
own, original = get_ipython().input_transformer_manager, TransformerManager()
pieces = ["x", "=", " ", "%", "!", "?", "\\n", "    ", ">>> ", "... ", "In [1]: ", ",", ";", "/", "f", "(", ")", "'", '"""',
          "#", "\\\\\\n", "%%time", "!ls", "a.b?", "await ", "{", "}", "f'{x=!r}'", "!=", "1", "\\t", "\\r\\n", "[", "]", ":"]
generator = random.Random(seed)

def transformed(manager, cell):
    try:
        return manager.transform_cell(cell)
    except Exception as error:
        return type(error).__name__

wrong = []
for _ in range(4000):
    cell = "".join(generator.choices(pieces, k=generator.randrange(1, 14)))
    if transformed(own, cell) != transformed(original, cell):
        wrong.append(cell)
(len(own.token_transformers), wrong[:5])
'''


def test_cells_without_syntax_of_ipython_become_what_ipython_makes_of_them(session: Session) -> None:
    count, wrong = session.run(PLAIN_CELLS, globals={"seed": 7}).check().value
    assert count > 0 and wrong == []


def test_transformations_of_the_session_apply_to_plain_cells(session: Session) -> None:
    code = "def shout(lines): return [line.replace('hello', 'HELLO') for line in lines]\n"
    session.run(code + "get_ipython().input_transformer_manager.line_transforms.append(shout)").check()
    assert session.run("'hello'").check().value == "HELLO"
    assert "shout" in session.run("%who").check().output


def test_cells_that_await_still_do(session: Session) -> None:
    assert session.run("import asyncio\nawait asyncio.sleep(0, 5)").check().value == 5
    assert session.run("[x async for x in (y for y in [])]").error is not None
    assert session.run("'await'").check().value == "await"


def test_image_of_sessions_contains_only_what_cells_need(session: Session) -> None:
    code = "import sys\n[name for name in ('jedi', 'prompt_toolkit', 'IPython.terminal.embed') if name in sys.modules]"
    assert session.run(code).check().value == []
    # Programs can use what was left out, as far as it is installed.
    code = "import prompt_toolkit, IPython.terminal.embed as embed\n(callable(embed.embed), prompt_toolkit.__name__)"
    assert session.run(code).check().value == (True, "prompt_toolkit")
    assert session.run("import IPython\ncallable(IPython.embed)").check().value is True
    # The tests' sandbox installs nothing.
    error = session.run("import jedi").error
    assert error is not None and error.name == "ModuleNotFoundError"

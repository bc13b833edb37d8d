"""E2B's interface: `belljar.code_interpreter.Sandbox` in this process, in the style of E2B's documentation."""

from __future__ import annotations

import ast
import base64
import inspect
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import EXAMPLES

import belljar
from belljar import code_interpreter as e2b
from belljar.code_interpreter import Sandbox


@pytest.fixture
def sandbox(box: belljar.Sandbox) -> Iterator[Sandbox]:
    with Sandbox.create(box=box) as sandbox:
        yield sandbox


def test_example_is_one_of_e2b_with_another_import(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import e2b_analysis

    total, report, error = e2b_analysis.analyse(b"item,price\napple,1.5\npear,2.25\n")
    assert (total, report) == ("2 orders\n3.75 EUR", "mean: 1.875\n")
    assert "NameError: name 'nothing' is not defined" in error
    assert capsys.readouterr().out == "2 orders\n"


def test_variables_stay_between_cells(sandbox: Sandbox) -> None:
    assert sandbox.run_code("x = 1").text is None
    execution = sandbox.run_code("x += 1; x")
    assert (execution.text, execution.execution_count, execution.error) == ("2", 2, None)
    assert sandbox.run_code("'a text'").text == "a text"
    assert json.loads(execution.to_json()) == {
        "results": [{"text": "2"}],
        "logs": '{"stdout": [], "stderr": []}',
        "error": None,
    }


def test_cells_do_not_see_the_operations_of_the_sandbox(sandbox: Sandbox) -> None:
    sandbox.run_code("40")
    sandbox.files.write("a", "b")
    sandbox.create_code_context()
    code = "(_, In[1:], sorted(name for name in globals() if name[0] != '_'))"
    text = sandbox.run_code(code).text
    assert text is not None
    assert ast.literal_eval(text) == (40, ["40", code], ["In", "Out", "exit", "get_ipython", "open", "quit"])
    error = sandbox.run_code("1 / 0").error
    assert error is not None and "Cell In[3], line 1" in error.traceback


def test_output_errors_and_results_arrive_in_callbacks(sandbox: Sandbox) -> None:
    out: list[str] = []
    err: list[str] = []
    results: list[e2b.Result] = []
    errors: list[e2b.ExecutionError] = []
    code = "import sys\nprint('one')\nprint('two', file=sys.stderr)\nsys.stdout.write('three')\ndisplay(4)\n5"
    before = time.time_ns()
    execution = sandbox.run_code(
        code,
        on_stdout=lambda message: out.append(message.line),
        on_stderr=lambda message: (err.append(str(message)), before < message.timestamp and message.error)[0],
        on_result=results.append,
        on_error=errors.append,
    )
    assert (out, err) == (["one\n", "three"], ["two\n"])
    assert "".join(execution.logs.stdout) == "one\nthree" and "".join(execution.logs.stderr) == "two\n"
    assert [(each.text, each.is_main_result) for each in results] == [("4", False), ("5", True)]
    assert results == execution.results and errors == []
    execution = sandbox.run_code("def f():\n    return nothing\nf()", on_error=errors.append)
    assert errors == [execution.error]
    assert (errors[0].name, errors[0].value) == ("NameError", "name 'nothing' is not defined")
    assert "line 2" in errors[0].traceback and json.loads(errors[0].to_json())["name"] == "NameError"

    def fail(message: e2b.OutputMessage) -> None:
        raise KeyError(message.line)

    with pytest.raises(KeyError, match="begun"):
        sandbox.run_code("print('begun')\nwhile True: pass", on_stdout=fail)
    assert sandbox.run_code("6 * 7").text == "42"


def test_results_have_mime_types(sandbox: Sandbox) -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    execution = sandbox.run_code("""
from IPython.display import HTML, JSON, Javascript, Latex, Markdown, SVG, display
class Figure:
    def _repr_png_(self): return b"\\x89PNG\\r\\n\\x1a\\n"
    def _repr_html_(self): return "<i>figure</i>"
    def __repr__(self): return "a figure"
for each in (HTML("<b>1</b>"), Markdown("# 2"), Latex("$3$"), JSON({"n": 4}), Javascript("5"), SVG("<svg/>")):
    display(each)
display({"text/plain": "7", "application/vnd.other+json": {"n": 7}, "image/png": 7}, raw=True)
Figure()
""")
    assert execution.error is None
    found = {name: result[name] for result in execution.results for name in result.formats() if name != "text"}
    assert found == {
        "application/vnd.other+json": {"n": 7},
        "html": "<i>figure</i>",
        "markdown": "# 2",
        "latex": "$3$",
        "json": {"n": 4},
        "javascript": "5",
        "svg": "<svg/>",
        "image/png": 7,
        "png": png,
    }
    assert execution.results[0].html == "<b>1</b>"
    other, figure = execution.results[-2:]
    assert other.extra == {"application/vnd.other+json": {"n": 7}, "image/png": 7} and other.png is None
    assert figure.is_main_result and list(figure.formats()) == ["text", "html", "png"]
    assert (execution.text, str(figure), figure._repr_png_(), figure.chart) == (
        "a figure",
        "Result(a figure)",
        png,
        None,
    )
    assert len(json.loads(execution.to_json())["results"]) == 8


def test_code_that_ends_its_interpreter_is_an_error_and_files_stay(box: belljar.Sandbox) -> None:
    with Sandbox.create(envs={"A": "1"}, box=box) as sandbox:
        context = sandbox.create_code_context()
        sandbox.run_code("open('f', 'w').write('x'); y = 1")
        execution = sandbox.run_code("import os; os._exit(3)")
        assert execution.error is not None and execution.error.name == "SystemExit"
        execution = sandbox.run_code("import os; (os.getcwd(), os.listdir(), os.environ['A'], 'y' in globals())")
        assert execution.text == "('/home/user', ['f'], '1', False)"
        assert sandbox.run_code("1", context=context).text == "1"


def test_time_limit_is_an_exception_and_variables_stay(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 1")
    with pytest.raises(e2b.TimeoutException, match="timeout"):
        sandbox.run_code("while True: pass", timeout=0.2)
    assert sandbox.run_code("x", timeout=0).text == "1"
    for code in ("while True:\n    try:\n        while True: pass\n    except BaseException: pass",):
        with pytest.raises(e2b.TimeoutException):
            sandbox.run_code(code, timeout=0.2)
    assert sandbox.run_code("'x' in globals(), __import__('os').getcwd()").text == "(False, '/home/user')"


def test_memory_limit_is_an_error_of_the_code() -> None:
    with belljar.Sandbox(install=False, limits={"memory": "256MB"}) as box, Sandbox(box=box) as sandbox:
        execution = sandbox.run_code("x = bytearray(1 << 30)")
        assert execution.error is not None and execution.error.name == "MemoryError"
        assert sandbox.run_code("1").text == "1"


def test_tools_of_the_box_are_called_with_their_exceptions() -> None:
    async def price(item: str) -> float:
        return {"apple": 1.5}[item]

    with belljar.Sandbox(install=False, tools=[price]) as box, Sandbox.create(box=box) as sandbox:
        assert sandbox.run_code("await price('apple')").text == "1.5"
        error = sandbox.run_code("await price('pear')").error
        assert error is not None and error.name == "KeyError"
    deferred = belljar.Tool(price, deferred=True)
    with pytest.raises(e2b.UnsupportedException, match="box"):
        Sandbox.create(box=belljar.Sandbox(tools=[deferred]))


def test_contexts_have_variables_and_directories_of_their_own(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("/home/user/data")
    context = sandbox.create_code_context(cwd="/home/user/data")
    assert (context.language, context.cwd) == ("python", "/home/user/data")
    sandbox.run_code("x = 'default'\nclass C: pass")
    assert sandbox.run_code("x", context=context).error is not None
    sandbox.run_code("x = 'other'; open('here', 'w').close()", context=context)
    assert [sandbox.run_code("x").text, sandbox.run_code("x", context=context).text] == ["default", "other"]
    assert sandbox.files.exists("/home/user/data/here")
    pickled = "import os, pickle; type(pickle.loads(pickle.dumps(C()))).__name__, os.getcwd()"
    assert sandbox.run_code(pickled).text == "('C', '/home/user')"
    assert sandbox.run_code("os.getcwd(), get_ipython().user_ns is globals()", context=context).error is not None
    assert (
        sandbox.run_code("import os; os.getcwd(), get_ipython().user_ns is globals()", context=context).text
        == "('/home/user/data', True)"
    )
    first, second = sandbox.list_code_contexts()
    assert (second, first.cwd) == (context, "/home/user")
    sandbox.restart_code_context(context.id)
    execution = sandbox.run_code("x", context=context)
    assert execution.error is not None and execution.execution_count == 1
    sandbox.remove_code_context(context)
    assert sandbox.list_code_contexts() == [first]
    for call in (sandbox.remove_code_context, sandbox.restart_code_context):
        with pytest.raises(e2b.NotFoundException, match="context"):
            call(context)
    with pytest.raises(e2b.NotFoundException, match="context"):
        sandbox.run_code("1", context=context)
    assert sandbox.run_code("x").text == "default"
    sandbox.restart_code_context(first)
    assert sandbox.run_code("'os' in globals()").text == "False"
    sandbox.remove_code_context(first)
    assert len(sandbox.list_code_contexts()) == 1 and sandbox.run_code("1").execution_count == 1
    with pytest.raises(e2b.InvalidArgumentException, match="cwd"):
        sandbox.create_code_context(cwd="/absent")


def test_environment_variables_of_sandbox_and_cell(box: belljar.Sandbox) -> None:
    with Sandbox.create(envs={"A": "sandbox", "B": "sandbox"}, box=box) as sandbox:
        code = "import os; os.environ['A'], os.environ['B'], os.environ.get('C')"
        assert sandbox.run_code(code, envs={"B": "cell", "C": "cell"}).text == "('sandbox', 'cell', 'cell')"
        assert sandbox.run_code(code).text == "('sandbox', 'sandbox', None)"
        command = 'python -c \'import os; print(os.environ["A"], os.environ["B"])\''
        assert sandbox.commands.run(command, envs={"B": "command"}).stdout == "sandbox command\n"


def test_ctrl_c_stops_the_code() -> None:
    program = """
import os, signal
from belljar.code_interpreter import Sandbox
# Processes that a shell has started in the background ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
with Sandbox.create() as sandbox:
    sandbox.run_code("x = 1")
    try:
        sandbox.run_code("print('begun')\\nwhile True: pass", on_stdout=lambda _: os.kill(os.getpid(), signal.SIGINT))
    except KeyboardInterrupt:
        print(sandbox.run_code("x").text)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout == "1\n", result.stderr


def test_threads_share_a_sandbox_and_have_their_own(sandbox: Sandbox, box: belljar.Sandbox) -> None:
    sandbox.run_code("counts = {}")
    found: dict[int, str | None] = {}

    def work(number: int) -> None:
        with Sandbox.create(box=box) as own:
            own.files.write("n", str(number))
            context = sandbox.create_code_context()
            sandbox.run_code(f"n = {number}", context=context)
            sandbox.run_code(f"counts[{number}] = 1")
            own.run_code("n = int(open('n').read())")
            found[number] = f"{own.run_code('n').text} {sandbox.run_code('n', context=context).text}"

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"{number} {number}" for number in range(12)}
    assert sandbox.run_code("len(counts)").text == "12"


def test_interface_is_typed_and_documented() -> None:
    program = """
from belljar.code_interpreter import AsyncSandbox, Execution, Sandbox
import belljar
with Sandbox.create(timeout=60, envs={"A": "1"}, box=belljar.Sandbox()) as sandbox:
    execution: Execution = sandbox.run_code("1", on_stdout=lambda message: print(message.line))
    text: str | None = execution.text
    contents: str = sandbox.files.read("x")
    data: bytearray = sandbox.files.read("x", format="bytes")
    ended: bool = Sandbox.kill(sandbox.sandbox_id) or sandbox.kill()
    same: Sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=10)
    for fork in sandbox.fork(count=2):
        if isinstance(fork, Sandbox):
            fork.set_timeout(10)
async def main() -> None:
    async with await AsyncSandbox.create() as sandbox:
        execution: Execution = await sandbox.run_code("1")
        pieces = [piece async for piece in await sandbox.files.read("x", format="stream")]
        await AsyncSandbox.pause(sandbox.sandbox_id)
"""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir=/dev/null",
        "-c",
        program,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    for name in e2b.__all__:
        value = getattr(e2b, name)
        if inspect.isclass(value):
            assert value.__doc__, name
            for attribute in dir(value):
                member = getattr(value, attribute)
                if (
                    not attribute.startswith("_")
                    and inspect.isroutine(member)
                    and not issubclass(value, (str, Exception))
                ):
                    assert member.__doc__, f"{name}.{attribute}"

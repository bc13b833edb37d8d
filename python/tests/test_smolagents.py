"""The executor for agents of smolagents, with scripted models."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import need

import belljar
from belljar import Sandbox, connect
from server import Server

PNG = """
import struct, zlib
from IPython.display import Image, display

def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

def png(width, height):
    rows = (b'\\0' + b'\\x80' * width) * height
    head = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
    return b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', head) + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')
"""


@pytest.fixture(scope="module")
def smolagents() -> Any:
    return need("smolagents")


@pytest.fixture
def executor(smolagents: Any, box: Sandbox) -> Iterator[Any]:
    from belljar.smolagents import BelljarExecutor

    with BelljarExecutor(box) as created:
        created.send_variables({})
        created.send_tools(tools(smolagents))
        yield created


def tools(smolagents: Any) -> dict[str, Any]:
    """Returns tools with plain values, images and objects of this process."""
    image, tool = need("PIL.Image"), smolagents.tool

    @tool
    def weather(city: str, unit: str = "C") -> dict[str, Any]:
        """Returns the weather.

        Args:
            city: The city.
            unit: The unit.
        """
        if city == "Atlantis":
            raise KeyError(f"there is no {city}")
        return {"high": 21.0, "unit": unit}

    class Draw(smolagents.Tool):  # type: ignore[misc, name-defined]
        name, description, output_type = "draw", "Draws a square.", "image"
        inputs = {"size": {"type": "integer", "description": "The width."}}

        def forward(self, size: int) -> Any:
            return image.new("RGB", (size, size))

    class Measure(smolagents.Tool):  # type: ignore[misc, name-defined]
        name, description, output_type = "measure", "Measures an image.", "array"
        inputs = {"picture": {"type": "image", "description": "The image."}}

        def forward(self, picture: Any) -> Any:
            return list(picture.size)

    created = [weather, Draw(), Measure(), smolagents.FinalAnswerTool()]
    return {each.name: each for each in created}


class Handle:
    """A class of this process."""


def scripted(smolagents: Any, *codes: str) -> Any:
    """Returns a model that runs pieces of code, and the messages that it has seen in its ``seen``."""

    class Model(smolagents.Model):  # type: ignore[misc, name-defined]
        seen: list[str] = []

        def generate(self, messages: Any, **options: Any) -> Any:
            self.seen = [*self.seen, str(messages[-1].content)]
            text = f"Thought: I compute.\n<code>\n{codes[len(self.seen) - 1]}\n</code>"
            return smolagents.ChatMessage(role="assistant", content=text)

    return Model()


def error_of(executor: Any, code: str) -> str:
    from smolagents.local_python_executor import InterpreterError

    with pytest.raises(InterpreterError) as raised:
        executor(code)
    return str(raised.value)


def test_steps_share_variables_and_have_output_and_value(executor: Any) -> None:
    executor.send_variables({"start": [1, 2]})
    output = executor("import sqlite3\nprint('hi')\ntotal = sum(start)\ntotal")
    assert (output.output, output.logs, output.is_final_answer) == (3, "hi\n", False)
    assert executor("total * 2").output == 6
    assert executor("'text'").output == "text"
    assert executor("x = 1").output is None
    assert executor("type('Odd', (), {'__repr__': lambda self: 'odd'})()").output == "odd"


def test_tools_take_positions_names_and_raise(executor: Any) -> None:
    assert executor("weather('Rome')['high'] + weather(city='Oslo', unit='F')['high']").output == 42.0
    assert (
        executor("try:\n    weather('Atlantis')\nexcept KeyError as e:\n    x = str(e)\nx").output
        == "'there is no Atlantis'"
    )
    message = error_of(executor, "weather('Atlantis')")
    assert message.endswith("KeyError: 'there is no Atlantis'") and "in tool(" not in message
    assert "missing 1 required positional argument" in error_of(executor, "weather()")
    assert "Returns the weather." in executor("weather.__doc__").output
    assert [call.name for call in executor.last_run.calls] == []


def test_final_answer_ends_the_code(executor: Any) -> None:
    output = executor("print('a')\ntry:\n    final_answer({'n': (1, 2)})\nexcept Exception:\n    pass\nprint('b')")
    assert (output.output, output.logs, output.is_final_answer) == ({"n": (1, 2)}, "a\n", True)
    assert executor("final_answer(answer='text')").output == "text"
    # An exception of the same name is not an answer.
    forged = "class FinalAnswerException(BaseException): pass\nraise FinalAnswerException('no')"
    assert error_of(executor, forged).endswith("FinalAnswerException: no")


def test_a_final_answer_tool_of_the_agent_runs_in_this_process(smolagents: Any, executor: Any) -> None:
    class Checked(smolagents.FinalAnswerTool):  # type: ignore[misc, name-defined]
        def forward(self, answer: Any) -> Any:
            if answer != 42:
                raise ValueError("that is not it")
            return f"It is {answer}."

    executor.send_tools({"final_answer": Checked()})
    assert "that is not it" in error_of(executor, "final_answer(41)")
    assert executor("final_answer(42)").output == "It is 42."


def test_images_and_objects_pass_between_tools(executor: Any) -> None:
    handle = Handle()
    executor.send_variables({"handle": handle, "nested": [{"handle": handle}]})
    assert executor("picture = draw(5)\nmeasure(picture)").output == [5, 5]
    assert executor("picture, draw(3)\nmeasure(picture=draw(3))").output == [3, 3]
    assert executor("repr(handle)").output == f"HostObject({__name__}.Handle)"
    assert executor("final_answer([handle, nested[0]['handle']])").output == [handle, handle]
    assert executor("final_answer(draw(7))").output.size == (7, 7)


def test_images_of_the_code_reach_tools_and_the_model(executor: Any) -> None:
    output = executor(PNG + "measure({'$belljar_image': png(4, 2)})")
    assert output.output == [4, 2]
    output = executor("display(Image(data=png(6, 3)))")
    assert output.output.size == (6, 3)
    step = type("Step", (), {"observations_images": None})()
    executor.attach_images(step)
    assert [image.size for image in step.observations_images] == [(6, 3)]


def test_hostile_values_are_refused_or_plain(executor: Any) -> None:
    assert executor("{'$belljar_object': 10**6}").output == {"$belljar_object": 10**6}
    assert "failed to decode an image" in error_of(executor, "measure({'$belljar_image': b'not an image'})")
    bomb = PNG + "measure({'$belljar_image': png(9_000, 9_000)})"
    assert "pixels are more than" in error_of(executor, bomb)
    assert error_of(executor, "measure({'$belljar_object': -1})")
    deep = "x = []\nfor _ in range(10_000): x = [x]\nweather('Rome', x)['high']"
    assert executor(deep).output == 21.0


def test_errors_have_the_logs_the_traceback_and_the_limit(smolagents: Any) -> None:
    from belljar.smolagents import BelljarExecutor

    with BelljarExecutor(install=False, limits={"timeout": 5}, max_print_outputs_length=200) as executor:
        executor.send_tools({})
        assert error_of(executor, "print('before')\n1 / 0").endswith("ZeroDivisionError: division by zero")
        assert executor.state == {"_print_outputs": "before\n"}
        assert "ran longer than 5 s" in error_of(executor, "x = 1\nwhile True: pass")
        assert "SystemExit: 3" in error_of(executor, "import sys; sys.exit(3)")
        assert len(executor("print('x' * 100_000)").logs) < 400
        assert "SyntaxError" in error_of(executor, "def")


def test_tools_are_defined_again_after_a_restart(executor: Any) -> None:
    executor("x = 1")
    assert "SystemExit" in error_of(executor, "import sys; sys.exit(3)")
    assert executor("weather('Rome')['high']").output == 21.0
    executor.cleanup()
    assert "NameError" in error_of(executor, "x")
    assert executor("weather('Rome')['high']").output == 21.0


def test_tasks_share_variables_and_can_have_other_tools(smolagents: Any, executor: Any) -> None:
    executor("x = weather('Rome')['high']")
    executor.send_variables({"y": 1})
    executor.send_tools({"look_up": tools(smolagents)["weather"]})
    assert executor("x + y + look_up('Oslo')['high']").output == 43.0


def test_agents_run_until_the_answer_and_leave_no_session(smolagents: Any, box: Sandbox) -> None:
    from belljar.smolagents import BelljarExecutor

    before = len(box._sessions)
    codes = [
        "print('real CPython')\nrome = weather('Rome')",
        "rome['high'] - nothing",
        "rome['high'] * factor",
        "final_answer(_ + 1)\nprint('not reached')",
    ]
    model = scripted(smolagents, *codes)
    weather = tools(smolagents)["weather"]
    with smolagents.CodeAgent([weather], model, executor=BelljarExecutor(box), verbosity_level=0) as agent:
        assert agent.run("How warm is it?", additional_args={"factor": 2}) == 43.0
        assert len(box._sessions) == before + 1
        errors = [step.error for step in agent.memory.steps if getattr(step, "error", None)]
    assert len(box._sessions) == before
    assert "real CPython" in model.seen[1] and "name 'nothing' is not defined" in model.seen[2]
    assert "42.0" in model.seen[3]
    assert [type(error).__name__ for error in errors] == ["AgentExecutionError"]


def test_managed_agents_are_functions_of_the_code(smolagents: Any, box: Sandbox) -> None:
    from belljar.smolagents import BelljarExecutor

    before = len(box._sessions)
    inner = smolagents.CodeAgent(
        [],
        scripted(smolagents, "final_answer(6 * 7)"),
        executor=BelljarExecutor(box),
        name="calculator",
        description="Calculates.",
        verbosity_level=0,
    )
    model = scripted(smolagents, "text = calculator('What is 6 * 7?')", "final_answer('42' in text)")
    with smolagents.CodeAgent(
        [], model, managed_agents=[inner], executor=BelljarExecutor(box), verbosity_level=0
    ) as agent:
        assert agent.run("What is it?") is True
    inner.cleanup()
    assert len(box._sessions) == before


def test_code_can_run_on_a_server_without_tools(smolagents: Any) -> None:
    from belljar.smolagents import BelljarExecutor

    server = Server("--toolset", "all")
    try:
        with connect(server.url) as remote, BelljarExecutor(remote) as executor:
            executor.send_variables({"x": [1, 2]})
            executor.send_tools({"final_answer": smolagents.FinalAnswerTool()})
            assert executor("sum(x)").output == 3
            output = executor("final_answer({'sum': sum(x)})")
            assert (output.output, output.is_final_answer) == ({"sum": 3}, True)
            with pytest.raises(belljar.UnsupportedError, match="cannot call functions"):
                executor.send_tools(tools(smolagents))
    finally:
        server.stop()


def test_arguments_are_checked(smolagents: Any, box: Sandbox) -> None:
    from belljar.smolagents import BelljarExecutor

    with pytest.raises(belljar.ArgumentError, match="packages: a sandbox that is passed"):
        BelljarExecutor(box, packages=["numpy"])
    with pytest.raises(belljar.ArgumentError, match="'print' is deferred"):
        BelljarExecutor(tools=[belljar.Tool(print, deferred=True)])
    with pytest.raises(belljar.ArgumentTypeError, match="sandbox"):
        BelljarExecutor("http://example.org")  # type: ignore[arg-type]


def test_images_of_pillow_stay_images(smolagents: Any, executor: Any) -> None:
    """Tests what needs Pillow in this process only: the contents of an image as a file."""
    from belljar.smolagents import _decoded

    image = need("PIL.Image").new("L", (3, 4))
    file = io.BytesIO()
    image.save(file, format="PNG")
    assert _decoded(file.getvalue()).size == (3, 4)

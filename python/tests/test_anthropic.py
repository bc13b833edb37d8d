"""`belljar.anthropic`, whose blocks are checked against the types of Anthropic's client."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from conftest import need

import belljar
from belljar import AsyncSandbox, Sandbox
from belljar.anthropic import AsyncCodeExecution, CodeExecution, Step

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
SHOW_IMAGE = f"from IPython.display import Image, display\ndisplay(Image({PNG!r}))"
QUERY: Any = {
    "name": "query-database",
    "description": "Runs a query.",
    "input_schema": {
        "type": "object",
        "properties": {
            "sql": {"type": "string", "description": "The query."},
            "limit": {"type": "integer"},
            "mode": {"enum": ["fast", "exact"]},
        },
        "required": ["sql"],
    },
    "allowed_callers": ["code_execution_20260120"],
}
DIRECT: Any = {"name": "direct", "input_schema": {"type": "object"}, "allowed_callers": ["direct"]}


def server_use(code: object, identifier: str = "srvtoolu_1") -> Any:
    """Returns a block as it is in messages with Anthropic's code execution."""
    return {"type": "server_tool_use", "id": identifier, "name": "code_execution", "input": {"code": code}}


def use(code: object, identifier: str = "toolu_1", name: str = "run_python") -> Any:
    """Returns a block for a tool of the client."""
    return {"type": "tool_use", "id": identifier, "name": name, "input": {"code": code}}


def answers(step: Step, *contents: Any, is_error: bool = False) -> list[Any]:
    """Returns results of the calls of a step."""
    calls = zip(step.calls, contents)
    return [
        {"type": "tool_result", "tool_use_id": call["id"], "content": content, "is_error": is_error}
        for call, content in calls
    ]


def check(step: Step) -> Step:
    """Checks the blocks of a step against the types of Anthropic's client."""
    types, adapter = need("anthropic.types"), need("pydantic").TypeAdapter
    for block in step.results:
        if block["type"] == "tool_result":
            adapter(types.ToolResultBlockParam).validate_python(block, extra="forbid")
        else:
            types.CodeExecutionToolResultBlock.model_validate(block)
            adapter(types.CodeExecutionToolResultBlockParam).validate_python(block, extra="forbid")
    for call in step.calls:
        types.ToolUseBlock.model_validate(call)
        adapter(types.ToolUseBlockParam).validate_python(call, extra="forbid")
    json.dumps([step.results, step.calls])
    return step


def code_execution(**options: Any) -> CodeExecution:
    return CodeExecution(**{"install": False, **options})


def test_blocks_of_a_message_run_in_one_session() -> None:
    with code_execution() as code:
        message = [
            {"type": "text", "text": "I compute."},
            server_use("import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 6"),
            use("x * 7"),
            use("ignored", name="another_tool"),
        ]
        server_result, result = check(code.run(message)).results
        assert server_result == {
            "type": "code_execution_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {
                "type": "code_execution_result",
                "stdout": "out\n",
                "stderr": "err\n",
                "return_code": 0,
                "content": [],
            },
        }
        assert result == {"type": "tool_result", "tool_use_id": "toolu_1", "content": "42", "is_error": False}
        assert code.run([]) == Step([], [])


def test_blocks_of_the_client_are_accepted() -> None:
    types = need("anthropic.types")
    with code_execution() as code:
        blocks = [types.ServerToolUseBlock(**server_use("1 + 1")), types.ToolUseBlock(**use("2 + 2"))]
        server_result, result = check(code.run(blocks)).results
        assert server_result["content"]["stdout"] == "2\n" and result["content"] == "4"


def test_errors_have_their_traceback_and_limits_their_code() -> None:
    with code_execution(timeout=5) as code:
        blocks = [server_use("print('before')\n1 / 0"), use("1 / 0"), server_use("import sys\nsys.exit(3)")]
        first, second, third = check(code.run(blocks)).results
        assert first["content"]["stdout"] == "before\n" and first["content"]["return_code"] == 1
        assert "ZeroDivisionError: division by zero" in first["content"]["stderr"]
        assert second["is_error"] and "Cell In[2], line 1" in second["content"]
        assert third["content"]["return_code"] == 3
        first, second, third = check(
            code.run([server_use("while True:\n    pass"), use("while True:\n    pass"), use("1")])
        ).results
        assert first["content"] == {
            "type": "code_execution_tool_result_error",
            "error_code": "execution_time_exceeded",
        }
        assert second["is_error"] and "ran longer than 5 s" in second["content"]
        assert third["content"] == "1"


@pytest.mark.parametrize("given", [5, None, ["x"], "\ud800"])
def test_invalid_input_of_the_model_is_a_result(given: object) -> None:
    with code_execution() as code:
        first, second = check(code.run([server_use(given), use(given)])).results
        assert first["content"] == {"type": "code_execution_tool_result_error", "error_code": "invalid_tool_input"}
        assert second["is_error"] and second["content"].startswith("the code ")
        block = {**use("1"), "input": "text"}
        assert code.run([block]).results[0]["is_error"]


def test_calls_by_code_go_to_the_caller_and_their_results_back() -> None:
    with code_execution(tools=[QUERY, DIRECT]) as code:
        program = (
            "import asyncio\n"
            "first, second = await asyncio.gather(query_database('A', mode=None), query_database(sql='B', limit=3))\n"
            "print(first)\nsecond"
        )
        step = check(code.run([server_use(program), use("len(first)")]))
        assert step.results == []
        assert [(call["name"], call["input"]) for call in step.calls] == [
            ("query-database", {"sql": "A"}),
            ("query-database", {"sql": "B", "limit": 3}),
        ]
        assert all(call["id"].startswith("toolu_") for call in step.calls)
        assert step.calls[0]["caller"] == {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
        with pytest.raises(belljar.ArgumentError, match="wait for their results"):
            code.run([use("1")])
        # One result leaves the other call as it is.
        again = check(code.resume(answers(step, "rows")))
        assert (again.results, again.calls) == ([], step.calls[1:])
        step = check(code.resume(answers(again, [{"type": "text", "text": "more"}, {"type": "text", "text": "rows"}])))
        assert step.calls == []
        assert step.results[0]["content"]["stdout"] == "rows\n'more\\nrows'\n"
        assert step.results[1]["content"] == "4"
        assert code.run([use("'direct' in globals()")]).results[0]["content"] == "False"


def test_code_calls_one_tool_after_the_other() -> None:
    with code_execution(tools=[QUERY], decode=json.loads) as code:
        step = code.run([use("total = 0\nfor n in range(3):\n    total += (await query_database(str(n)))['n']\ntotal")])
        for number in range(3):
            assert [call["input"] for call in step.calls] == [{"sql": str(number)}]
            step = check(code.resume(answers(step, json.dumps({"n": number}))))
        assert step.results[0]["content"] == "3"


def test_errors_of_tools_are_exceptions_of_the_code() -> None:
    with code_execution(tools=[QUERY]) as code:
        step = code.run(
            [use("try:\n    await query_database('A')\nexcept Exception as error:\n    found = error\nfound")]
        )
        (result,) = check(code.resume(answers(step, "no such table", is_error=True))).results
        assert result["content"] == "ToolError('no such table')"
        step = code.run([use("await query_database('A')")])
        (result,) = check(code.resume(answers(step, "no such table", is_error=True))).results
        assert result["is_error"] and "ToolError: no such table" in result["content"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("query_database()", "missing a required argument: 'sql'"),
        ("query_database('A', table='x')", "unexpected keyword argument 'table'"),
        ("query_database({1, 2})", "the arguments are not JSON"),
        ("query_database(b'x')", "the arguments are not JSON"),
        ("query_database('\\ud800')", "the arguments are not JSON"),
        ("query_database(float('nan'))", "the arguments are not JSON"),
        ("query_database('x' * 2_000_000)", "at most 1,000,000"),
    ],
)
def test_hostile_calls_never_reach_the_caller(call: str, error: str) -> None:
    with code_execution(tools=[QUERY]) as code:
        step = check(code.run([use(f"try:\n    await {call}\nexcept Exception as error:\n    print(error)")]))
        assert step.calls == [] and error in step.results[0]["content"]


def test_number_of_calls_is_bounded() -> None:
    with code_execution(tools=[QUERY], max_calls=3) as code:
        program = (
            "import asyncio\n"
            "results = await asyncio.gather(*(query_database('A') for _ in range(10)), return_exceptions=True)\n"
            "sum(isinstance(result, RuntimeError) for result in results)"
        )
        step = check(code.run([use(program)]))
        assert len(step.calls) == 3
        step = code.resume(answers(step, "1", "2", "3"))
        assert step.results[0]["content"] == "7"


def test_wrong_results_are_refused() -> None:
    with code_execution(tools=[QUERY]) as code:
        step = code.run([use("await query_database('A')")])
        (answer,) = answers(step, "rows")
        for wrong, error in [
            ({**answer, "type": "text"}, "'tool_result' is needed"),
            ({**answer, "tool_use_id": "toolu_other"}, "no call waits for a result with the identifier 'toolu_other'"),
            ({**answer, "content": [{"type": "image"}]}, "code receives text only"),
            ({**answer, "content": 5}, "neither a text nor a list"),
        ]:
            with pytest.raises((ValueError, TypeError), match=error):
                code.resume([wrong])
        with pytest.raises(ValueError, match="no result"):
            code.resume([])
        assert code.resume([answer]).results[0]["content"] == "'rows'"
        with pytest.raises(ValueError, match="no call waits"):
            code.resume([answer])


def test_code_that_waits_can_be_given_up() -> None:
    with code_execution(tools=[QUERY]) as code:
        code.run([use("x = 1"), use("await query_database('A')"), use("x")])
        code.restart()
        assert "NameError" in code.run([use("x")]).results[0]["content"]


def test_files_and_images_reach_the_caller() -> None:
    saved: dict[str, bytes] = {}

    def save(path: str, contents: bytes) -> str | None:
        saved[path] = contents
        return None if path.endswith(".tmp") else f"file_{len(saved)}"

    with code_execution(on_file=save) as code:
        code.session.files.write("input.csv", b"1")
        program = f"{SHOW_IMAGE}\nfor name in ['a.txt', 'b.tmp']:\n    open(name, 'w').write(name)\nprint('done')"
        first, second = check(code.run([server_use(program), use("open('a.txt', 'a').write('+')")])).results
        assert [each["file_id"] for each in first["content"]["content"]] == ["file_1", "file_3"]
        assert saved == {"a.txt": b"a.txt+", "b.tmp": b"b.tmp", "figure_1.png": PNG}
        assert second["content"] == "1\nFiles:\na.txt: file_3"
        (result,) = check(code.run([use(SHOW_IMAGE)])).results
        text, image = result["content"]
        assert text["text"] == "(an image)\nFiles:\nfigure_1.png: file_3"
        assert image["source"] == {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}


def test_long_output_is_shortened() -> None:
    with code_execution(max_text=1000) as code:
        first, second = check(code.run([server_use("print('a' * 5000 + 'end')"), use("'b' * 10**6")])).results
        assert first["content"]["stdout"].endswith("end\n") and len(first["content"]["stdout"]) < 1100
        assert "characters are left out" in second["content"] and len(second["content"]) < 1100


def test_tool_describes_the_functions_of_the_code() -> None:
    def own(city: str) -> str:
        """Returns the weather."""
        return city.upper()

    with Sandbox(tools=[own], install=False) as box, CodeExecution(box, tools=[QUERY, DIRECT]) as code:
        adapter = need("pydantic").TypeAdapter(need("anthropic.types").ToolParam)
        adapter.validate_python(code.tool, extra="forbid")
        description = code.tool["description"]
        assert "async def own(city" in description and "direct" not in description
        expected = "query_database(sql: str, limit: int | None = None, mode: Literal['fast', 'exact'] | None = None)"
        assert expected in description and "sql: The query." in description
        assert code.run([use("await own('oslo')")]).results[0]["content"] == "'OSLO'"


def test_sandboxes_and_sessions_of_the_caller_stay_open() -> None:
    with Sandbox(install=False) as box, box.session() as session:
        session.run("x = 5")
        with CodeExecution(session, tools=[QUERY]) as code:
            step = code.run([use("y = await query_database(str(x))\ny")])
            assert code.resume(answers(step, "rows")).results[0]["content"] == "'rows'"
        assert session.run("y").value == "rows"
        with CodeExecution(box) as code:
            assert code.run([use("1")]).results[0]["content"] == "1"
        assert box._sessions == [session]
        for options in ({"limits": {"timeout": 1}}, {"install": False}):
            with pytest.raises(ValueError, match=f"{list(options)[0]}: a sandbox"):
                CodeExecution(box, **options)
    with pytest.raises(TypeError, match="Sandbox or a session is needed, not AsyncSandbox"):
        CodeExecution(AsyncSandbox(install=False))


@pytest.mark.parametrize(
    ("tools", "error"),
    [
        ([QUERY, QUERY], "two tools have the name 'query-database'"),
        ([QUERY, {**QUERY, "name": "query.database"}], "two functions have the name 'query_database'"),
        ([{"name": "bash", "type": "bash_20250124"}], "'bash' has no input_schema"),
        (["query"], "'query' is not the description of a tool"),
    ],
)
def test_wrong_tools_are_refused(tools: list[Any], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        code_execution(tools=tools)


def test_async_sessions_run_side_by_side_and_can_be_cancelled() -> None:
    async def one(number: int) -> str:
        async with AsyncCodeExecution(tools=[QUERY], install=False) as code:
            step = await code.run([use(f"x = {number}\n(x, await query_database('A'))")])
            step = check(await code.resume(answers(step, "rows")))
            return str(step.results[0]["content"])

    async def main() -> None:
        results = await asyncio.gather(*(one(number) for number in range(8)))
        assert results == [f"({number}, 'rows')" for number in range(8)]
        async with AsyncSandbox(install=False) as box:
            async with AsyncCodeExecution(box) as code:
                task = asyncio.create_task(code.run([use("x = 1\nwhile True:\n    pass"), use("y = 1")]))
                await asyncio.sleep(0.2)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                step = await code.run([use("'y' in globals()")])
                assert step.results[0]["content"] == "False"
                await code.restart()
            assert box._sessions == []

    asyncio.run(main())


def test_failure_of_a_server_is_a_result() -> None:
    from server import Server

    server = Server("--toolset", "all")
    try:
        box = belljar.connect(server.url)
        code = CodeExecution(box)
        assert check(code.run([server_use("6 * 7")])).results[0]["content"]["stdout"] == "42\n"
        with pytest.raises(belljar.UnsupportedError, match="tools"):
            CodeExecution(box, tools=[QUERY])
        server.stop()
        first, second = check(code.run([server_use("1"), use("2")])).results
        assert first["content"]["error_code"] == "unavailable"
        assert second["is_error"] and "failed to send a request" in second["content"]
    finally:
        server.stop()

"""`belljar.openai`, whose items are checked against the types of OpenAI's client."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from conftest import need

import belljar
from belljar import AsyncSandbox, Sandbox
from belljar.openai import AsyncCodeInterpreter, CodeInterpreter, Step

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
SHOW_IMAGE = f"from IPython.display import Image, display\ndisplay(Image({PNG!r}))"
QUERY: Any = {
    "type": "function",
    "name": "query",
    "description": "Runs a query.",
    "parameters": {
        "type": "object",
        "properties": {"sql": {"type": "string"}, "tables": {"type": "array", "items": {"type": "string"}}},
        "required": ["sql"],
    },
    "strict": False,
    "allowed_callers": ["programmatic"],
}
DIRECT: Any = {**QUERY, "name": "direct", "allowed_callers": ["direct"]}


def interpreter_call(code: object, identifier: str = "ci_1") -> Any:
    """Returns an item as it is in responses with OpenAI's code interpreter."""
    fields = {"container_id": "cntr_1", "outputs": None, "status": "interpreting"}
    return {"type": "code_interpreter_call", "id": identifier, "code": code, **fields}


def function_call(code: object, identifier: str = "call_1", name: str = "run_python") -> Any:
    """Returns an item for a function of the client."""
    arguments = json.dumps({"code": code})
    return {"type": "function_call", "id": "fc_1", "call_id": identifier, "name": name, "arguments": arguments}


def outputs(step: Step, *values: Any) -> list[Any]:
    """Returns the outputs of the calls of a step."""
    calls = zip(step.calls, values)
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": output} for call, output in calls]


def check(step: Step) -> Step:
    """Checks the items of a step against the types of OpenAI's client."""
    types, adapter = need("openai.types.responses"), need("pydantic").TypeAdapter
    output = need("openai.types.responses.response_input_item_param").FunctionCallOutput
    for item in step.results:
        if item["type"] == "function_call_output":
            adapter(output).validate_python(item, extra="forbid")
        else:
            types.ResponseCodeInterpreterToolCall.model_validate(item)
            adapter(types.ResponseCodeInterpreterToolCallParam).validate_python(item, extra="forbid")
    for call in step.calls:
        types.ResponseFunctionToolCallItem.model_validate(call)
        adapter(types.ResponseFunctionToolCallParam).validate_python(call, extra="forbid")
    json.dumps([step.results, step.calls])
    return step


def interpreter(**options: Any) -> CodeInterpreter:
    return CodeInterpreter(**{"install": False, **options})


def test_items_of_a_response_run_in_one_session() -> None:
    with interpreter() as code:
        response = [
            {"type": "message", "role": "assistant", "content": []},
            interpreter_call("print('out')\nx = 6\nx"),
            function_call("x * 7"),
            function_call("ignored", name="another_function"),
            {**interpreter_call("x = 0"), "outputs": []},
        ]
        first, second = check(code.run(response)).results
        assert first == {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "code": "print('out')\nx = 6\nx",
            "container_id": "cntr_1",
            "status": "completed",
            "outputs": [{"type": "logs", "logs": "out\n6"}],
        }
        assert second == {"type": "function_call_output", "call_id": "call_1", "output": "42"}
        assert code.run([function_call("x")]).results[0]["output"] == "6"


def test_items_of_the_client_are_accepted() -> None:
    types = need("openai.types.responses")
    with interpreter() as code:
        items = [
            types.ResponseCodeInterpreterToolCall(**interpreter_call("1 + 1")),
            types.ResponseFunctionToolCall(**function_call("2 + 2")),
        ]
        first, second = check(code.run(items)).results
        assert first["outputs"][0]["logs"] == "2" and second["output"] == "4"


def test_errors_and_limits_have_a_status() -> None:
    with interpreter(timeout=5) as code:
        items = [
            interpreter_call("print('before')\n1 / 0"),
            interpreter_call("while True:\n    pass"),
            interpreter_call(None),
            interpreter_call("1"),
        ]
        results = check(code.run(items)).results
        assert [result["status"] for result in results] == ["completed", "incomplete", "failed", "completed"]
        logs = [result["outputs"][0]["logs"] for result in results]
        assert "before\n" in logs[0] and "ZeroDivisionError: division by zero" in logs[0]
        assert "ran longer than 5 s" in logs[1] and logs[2] == "the code is missing"
        (result,) = check(code.run([function_call("1 / 0")])).results
        assert "ZeroDivisionError" in result["output"]


@pytest.mark.parametrize("arguments", ["", "[", "5", "[]", "{}", '{"code": 5}', '{"code": "\\ud800"}', "[" * 100_000])
def test_invalid_arguments_of_the_model_are_a_result(arguments: str) -> None:
    with interpreter() as code:
        (result,) = check(code.run([{**function_call(""), "arguments": arguments}])).results
        assert result["output"].startswith("the code ")


def test_calls_by_code_go_to_the_caller_and_their_outputs_back() -> None:
    with interpreter(tools=[QUERY, DIRECT], decode=json.loads) as code:
        program = (
            "import asyncio\n"
            "first, second = await asyncio.gather(query('A'), query(sql='B', tables=['t']))\n"
            "first['n'] + second['n'], 'direct' in globals()"
        )
        step = check(code.run([interpreter_call(program), function_call("first")]))
        assert step.results == [] and [call["name"] for call in step.calls] == ["query", "query"]
        assert [json.loads(call["arguments"]) for call in step.calls] == [{"sql": "A"}, {"sql": "B", "tables": ["t"]}]
        assert step.calls[0]["caller"] == {"type": "program", "caller_id": "ci_1"}
        again = check(code.resume(outputs(step, '{"n": 1}')))
        assert (again.results, again.calls) == ([], step.calls[1:])
        step = check(code.resume(outputs(again, [{"type": "input_text", "text": '{"n": 2}'}])))
        assert step.results[0]["outputs"] == [{"type": "logs", "logs": "(3, False)"}]
        assert step.results[1]["output"] == "{'n': 1}"


def test_exception_as_an_output_is_raised_in_the_code() -> None:
    with interpreter(tools=[QUERY]) as code:
        step = code.run([function_call("await query('A')")])
        (result,) = check(code.resume(outputs(step, PermissionError("not this table")))).results
        assert "PermissionError: not this table" in result["output"]
        step = code.run([function_call("await query('A')")])
        (output,) = outputs(step, "rows")
        for wrong, error in [
            ({**output, "type": "message"}, "'function_call_output' is needed"),
            ({**output, "call_id": "call_other"}, "no call waits"),
            ({**output, "output": [{"type": "input_image"}]}, "code receives text only"),
            ({**output, "output": None}, "neither a text nor a list"),
        ]:
            with pytest.raises((ValueError, TypeError), match=error):
                code.resume([wrong])
        assert code.resume([output]).results[0]["output"] == "'rows'"


def test_images_are_data_urls() -> None:
    with interpreter() as code:
        first, second = check(code.run([interpreter_call(SHOW_IMAGE), function_call(SHOW_IMAGE)])).results
        assert first["outputs"][1] == {"type": "image", "url": URL}
        assert second["output"] == [
            {"type": "input_text", "text": "(an image)"},
            {"type": "input_image", "image_url": URL, "detail": "auto"},
        ]
        svg = "from IPython.display import SVG\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"
        (result,) = check(code.run([interpreter_call(svg)])).results
        assert len(result["outputs"]) == 1 and "1 images are not shown" in result["outputs"][0]["logs"]


def test_tool_describes_the_functions_of_the_code() -> None:
    with interpreter(tools=[QUERY, DIRECT]) as code:
        need("pydantic").TypeAdapter(need("openai.types.responses").FunctionToolParam).validate_python(code.tool)
        description = str(code.tool["description"])
        assert "async def query(sql: str, tables: list[str] | None = None):" in description
        assert "direct" not in description
    with pytest.raises(ValueError, match="'browse' is not a tool of the type 'function'"):
        interpreter(tools=[{"type": "custom", "name": "browse"}])


def test_async_sessions_and_sandboxes_of_the_caller() -> None:
    async def main() -> None:
        async with AsyncSandbox(install=False) as box, box.session() as session:
            async with AsyncCodeInterpreter(session, tools=[QUERY]) as code:
                step = await code.run([function_call("x = await query('A')\nx")])
                step = check(await code.resume(outputs(step, "rows")))
                assert step.results[0]["output"] == "'rows'"
            assert (await session.run("x")).value == "rows"
            codes = [AsyncCodeInterpreter(box) for _ in range(8)]
            steps = await asyncio.gather(*(code.run([function_call(f"{n}")]) for n, code in enumerate(codes)))
            assert [step.results[0]["output"] for step in steps] == [str(n) for n in range(8)]
            for code in codes:
                await code.close()
            assert box._sessions == [session]

    asyncio.run(main())


def test_sandboxes_whose_code_pauses_for_others_are_refused() -> None:
    server = belljar.McpServer("true", name="server")
    with Sandbox(tools=[server], approve="pause", install=False) as box:
        with pytest.raises(belljar.ArgumentError, match="'pause' is not supported"):
            CodeInterpreter(box)

    @belljar.tool(deferred=True)
    def later() -> int:
        return 1

    with (
        Sandbox(tools=[later], install=False) as box,
        pytest.raises(belljar.ArgumentError, match="'later' is deferred"),
    ):
        CodeInterpreter(box)
    with Sandbox(install=False) as box, pytest.raises(belljar.ArgumentError, match="limits"):
        CodeInterpreter(box, limits={"timeout": 1})

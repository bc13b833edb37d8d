"""The examples of `python/examples`, with scripted models, and the pages that show them."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import EXAMPLES, ROOT, need

import belljar
from server import COMMAND, Server
from scripted import Script, server

PAGES = sorted((ROOT / "docs/python").glob("*.md"))
SHOWN = re.compile(r"<!-- (python/examples/\w+\.py) -->\n```python\n(.*?)```\n", re.DOTALL)


@pytest.fixture(autouse=True)
def examples_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PATH", f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}")


def test_pages_show_the_programs_that_the_tests_run() -> None:
    shown = {name: text for page in PAGES for name, text in SHOWN.findall(page.read_text())}
    assert set(shown) == {f"python/examples/{file.name}" for file in EXAMPLES.glob("*.py")}
    for name, text in shown.items():
        assert text == (ROOT / name).read_text(), f"copy {name} into the page that shows it"


def test_every_page_shows_a_program_and_is_linked() -> None:
    links = (ROOT / "docs/python.md").read_text() + (ROOT / "README.md").read_text()
    for page in PAGES:
        text = page.read_text()
        assert SHOWN.search(text) and text.count("```python") == len(SHOWN.findall(text)), page
        assert links.count(f"python/{page.name})") == 2, f"{page} is not linked in docs/python.md and README.md"


def test_functions_for_code_on_a_server(tmp_path: Path) -> None:
    need("fastmcp")
    page = (ROOT / "docs/python.md").read_text()
    (program,) = re.findall(r"<!-- functions.py -->\n```python\n(.*?)```\n", page, re.DOTALL)
    (tmp_path / "functions.py").write_text(program)
    command = f"functions='{sys.executable}' '{tmp_path}/functions.py'"
    started = Server("--toolset", "all", "--approve", "none", "--server", command)
    try:
        with belljar.connect(started.url) as box:
            assert "async def weather(*, city: str)" in box.tool_stubs()
            run = box.run("from tools import functions\n(await functions.weather(city='Oslo'))['celsius']")
            assert run.check().value == 21
            assert [(call.server, call.name, call.status) for call in run.calls] == [("functions", "weather", "ok")]
    finally:
        started.stop()


def pydantic_ai_model(script: Script, tool: str, argument: str) -> Any:
    """Returns a model of pydantic-ai that follows a script."""
    messages = need("pydantic_ai.messages")

    def respond(history: list[Any], info: Any) -> Any:
        assert [each.name for each in info.function_tools] == [tool]
        returned = [part for part in history[-1].parts if part.part_kind == "tool-return"]
        kind, text = script.next(returned[-1].model_response_str() if returned else None)
        if kind == "code":
            return messages.ModelResponse([messages.ToolCallPart(tool, {argument: text})])
        return messages.ModelResponse([messages.TextPart(text)])

    return need("pydantic_ai.models.function").FunctionModel(respond)


WARMER = "rome, oslo = await weather('Rome'), await weather('Oslo')"


def test_pydantic_ai_tool() -> None:
    need("pydantic_ai")
    import pydantic_ai_tool

    script = Script(WARMER, "print('computing')\nrome['high'] - oslo['high']", "nothing", "2 ** 20_000 > 0")
    model = pydantic_ai_model(script, "run_code", "code")
    assert asyncio.run(pydantic_ai_tool.answer("How much warmer is it?", model)) == "It is True."
    assert script.results[:2] == ["(no output)", "computing\n16.5"]
    assert "NameError: name 'nothing' is not defined" in script.results[2]


def test_fastmcp_code_mode() -> None:
    fastmcp = need("fastmcp")
    need("fastmcp.experimental.transforms.code_mode")
    import fastmcp_code_mode

    async def main() -> Any:
        async with fastmcp.Client(fastmcp_code_mode.server) as client:
            code = (
                "rome, oslo = [await call_tool('weather', {'city': city}) for city in ('Rome', 'Oslo')]\n"
                "return rome['high'] - oslo['high']"
            )
            return (await client.call_tool("execute", {"code": code})).content[0].text

    assert asyncio.run(main()) == "16.5"


def test_pydantic_ai_mcp() -> None:
    need("fastmcp")
    need("pydantic_ai")
    import pydantic_ai_mcp

    script = Script("sum(range(10))")
    model = pydantic_ai_model(script, "run_python_code", "python_code")
    answer = asyncio.run(pydantic_ai_mcp.answer("What is the sum?", model))
    assert "45" in answer and "success" in script.results[0]


def langchain_model(script: Script, tool: str, argument: str) -> Any:
    """Returns a chat model of LangChain that follows a script."""
    fake = need("langchain_core.language_models.fake_chat_models")
    messages, outputs = need("langchain_core.messages"), need("langchain_core.outputs")

    class Model(fake.GenericFakeChatModel):  # type: ignore[misc, name-defined]
        """A chat model of LangChain that follows the script."""

        tools: list[str] = []

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            self.tools = [tool.name for tool in tools]
            return self

        def _generate(self, history: Any, *arguments: Any, **options: Any) -> Any:
            assert tool in self.tools
            kind, text = script.next(history[-1].text if history[-1].type == "tool" else None)
            calls = [{"name": tool, "args": {argument: text}, "id": f"call_{len(history)}"}]
            message = messages.AIMessage("", tool_calls=calls) if kind == "code" else messages.AIMessage(text)
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=message)])

    return Model(messages=iter([]))


def test_langchain_agent() -> None:
    need("langchain")
    import langchain_agent

    script = Script(
        "import csv\nrows = list(csv.DictReader(open('orders.csv')))",
        "sum(float(row['price']) for row in rows) / await exchange_rate('USD')",
    )
    model = langchain_model(script, "run_python", "code")
    orders = b"item,price\napple,1.5\npear,2.5\n"
    answer = langchain_agent.answer("What do all orders cost?", model, orders, "a")
    assert (answer, script.results) == ("It is 5.0.", ["(no output)", "5.0"])


def test_deepagents_sandbox(native_options: dict[str, Any]) -> None:
    need("deepagents")
    import deepagents_sandbox

    script = Script("wc -l < orders.csv", "awk -F, 'NR > 1 { sum += $2 } END { print sum }' orders.csv; exit 3")
    model = langchain_model(script, "execute", "command")
    answer = deepagents_sandbox.answer("What do all orders cost?", model, **native_options)
    assert answer.startswith("It is 3.75") and "3\n" in script.results[0]
    assert "exit code 3" in script.results[1]


def test_smolagents_executor() -> None:
    smolagents = need("smolagents")
    import smolagents_executor

    codes = [
        "import sqlite3, zoneinfo\nprint('real CPython')\nrome = weather('Rome')",
        "rome['high'] - nothing",
        "difference = rome['high'] - weather(city='Oslo')['high']\ndifference",
        "final_answer(difference)\nprint('not reached')",
    ]
    seen: list[str] = []

    class Model(smolagents.Model):  # type: ignore[misc, name-defined]
        """A model of smolagents that follows the script."""

        def generate(self, messages: Any, **options: Any) -> Any:
            seen.append(str(messages[-1].content))
            text = f"Thought: I compute.\n<code>\n{codes[len(seen) - 1]}\n</code>"
            return smolagents.ChatMessage(role="assistant", content=text)

    assert smolagents_executor.answer("How much warmer is it?", Model()) == 16.5
    assert len(seen) == 4
    assert "real CPython" in seen[1] and "name 'nothing' is not defined" in seen[2] and "16.5" in seen[3]


def test_openai_agents_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    agents, openai = need("agents"), need("openai")
    import openai_agents_tool

    script = Script(WARMER, "rome['high'] - oslo['high']")
    with server(script) as address:
        client = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none")
        model = agents.OpenAIResponsesModel("gpt-6.2-sol", client)
        assert asyncio.run(openai_agents_tool.answer("How much warmer is it?", model)) == "It is 16.5."
    assert script.results[0] == "(no output)"
    assert script.requests[0]["tools"][0]["parameters"]["required"] == ["code"]


def test_openai_agents_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, native_options: dict[str, Any]) -> None:
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    agents, openai = need("agents"), need("openai")
    import openai_agents_sandbox

    script = Script("cat orders.csv", "exit 3", tool="exec_command", argument="cmd")
    with server(script) as address:
        client = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none")
        model = agents.OpenAIResponsesModel("gpt-6.2-sol", client)
        answer = asyncio.run(openai_agents_sandbox.answer("What do all orders cost?", model, **native_options))
    assert "pear,2.25" in script.results[0] and "Process exited with code 3" in answer


def test_openai_loop() -> None:
    openai = need("openai")
    import openai_loop

    script = Script("found = await orders('2026-11-23')", "sum(order['price'] for order in found)", "n / 0", "6 * 7")
    with server(script) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
        assert openai_loop.answer("What is it?", client, "gpt-6.2-sol") == "It is 42."
    assert script.results[:2] == ["(no output)", "3.75"]
    assert "NameError: name 'n' is not defined" in script.results[2]
    (tool,) = script.requests[0]["tools"]
    assert tool["name"] == "run_python" and "async def orders(day: str):" in tool["description"]


def test_anthropic_loop() -> None:
    anthropic = need("anthropic")
    import anthropic_loop

    script = Script("found = await orders(day='2026-11-23')", "n / 0", "sum(order['price'] for order in found)")
    with server(script) as address:
        client = anthropic.Anthropic(base_url=address, api_key="none")
        assert anthropic_loop.answer("What do they cost?", client, "claude-sonnet-5-5") == "It is 3.75."
    blocks = [request["messages"][-1]["content"][0] for request in script.requests[1:]]
    assert [block["is_error"] for block in blocks] == [False, True, False]
    assert "async def orders(day: str):" in script.requests[0]["tools"][0]["description"]


def test_loops_end_with_a_model_that_does_not() -> None:
    openai = need("openai")
    import openai_loop

    script = Script(*["1"] * 20)
    with server(script) as address, pytest.raises(RuntimeError, match="ten rounds"):
        openai_loop.answer("What is it?", openai.OpenAI(base_url=f"{address}/v1", api_key="none"), "gpt-6.2-sol")

"""The programs of `docs/integrations.md`, with scripted models."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, need
from scripted import Script, server
from test_examples import langchain_model, pydantic_ai_model

PROGRAMS = re.findall(r"```python\n(.*?)```\n", (ROOT / "docs/integrations.md").read_text(), re.DOTALL)
MESSAGES = {"messages": [{"role": "user", "content": "What is it?"}]}


def program(name: str) -> str:
    """Returns the only program of the page that has a name."""
    (found,) = [text for text in PROGRAMS if name in text]
    return found


def run(name: str, then: str = "", **variables: Any) -> dict[str, Any]:
    """Runs a program of the page, and then further lines. Returns its variables."""
    exec(compile(program(name) + then, f"docs/integrations.md: {name}", "exec"), variables)
    return variables


def test_pydantic_ai(monkeypatch: pytest.MonkeyPatch) -> None:
    pydantic_ai = need("pydantic_ai")
    need("openai")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    tools = pydantic_ai.FunctionToolset()

    @tools.tool_plain
    def double(number: int) -> int:
        """Doubles a number."""
        return number * 2

    script = Script("await double(number=21)")
    agent = run("BelljarToolset", your_tools=tools)["agent"]
    assert agent.run_sync("What is it?", model=pydantic_ai_model(script, "run_code", "code")).output == "It is 42."


def test_fastmcp() -> None:
    fastmcp = need("fastmcp")
    need("fastmcp.experimental.transforms.code_mode")

    async def main() -> Any:
        async with fastmcp.Client(run("BelljarSandboxProvider")["server"]) as client:
            return (await client.call_tool("execute", {"code": "return 6 * 7"})).content[0].text

    assert asyncio.run(main()) == "42"


def test_smolagents() -> None:
    smolagents = need("smolagents")

    class Model(smolagents.Model):  # type: ignore[misc, name-defined]
        """A model of smolagents that answers at once."""

        def generate(self, messages: Any, **options: Any) -> Any:
            text = "Thought: I compute.\n<code>\nfinal_answer(6 * 7)\n</code>"
            return smolagents.ChatMessage(role="assistant", content=text)

    with run("BelljarExecutor", model=Model())["agent"] as agent:
        assert agent.run("What is it?") == 42


def test_langchain() -> None:
    need("langchain")
    agent = run("PythonTool", model=langchain_model(Script("6 * 7"), "run_python", "code"))["agent"]
    assert agent.invoke(MESSAGES)["messages"][-1].text == "It is 42."


def test_deepagents(monkeypatch: pytest.MonkeyPatch, native_options: dict[str, Any]) -> None:
    need("deepagents")
    monkeypatch.setenv("BELLJAR_VENV", native_options["venv"])
    model = langchain_model(Script("echo $((6 * 7)) > f; cat f"), "execute", "command")
    then = "    result = agent.invoke(question)\n"
    result = run("BelljarSandbox()", then, model=model, question=MESSAGES)["result"]
    assert result["messages"][-1].text.startswith("It is 42")


def openai_agents_run(script: Script, use: Callable[[Any, Any], Any]) -> str:
    """Runs what a function makes of the SDK and a model that follows a script. Returns the answer."""
    agents, openai = need("agents"), need("openai")
    with server(script) as address:
        client = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none")
        return str(asyncio.run(use(agents, agents.OpenAIResponsesModel("gpt-6.2-sol", client))).final_output)


def test_openai_agents_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")

    async def use(agents: Any, model: Any) -> Any:
        agent = run("python_tool()", model=model)["agent"]
        try:
            return await agents.Runner.run(agent, "What is it?")
        finally:
            await agent.tools[0].aclose()

    assert openai_agents_run(Script("6 * 7"), use) == "It is 42."


def test_openai_agents_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, native_options: dict[str, Any]) -> None:
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("BELLJAR_VENV", native_options["venv"])
    script = Script("echo $((6 * 7))", tool="exec_command", argument="cmd")

    async def use(agents: Any, model: Any) -> Any:
        sandbox = need("agents.sandbox")
        capabilities = [need("agents.sandbox.capabilities").Shell()]
        run_config = run("BelljarSandboxClient")["run_config"]
        agent = sandbox.SandboxAgent(name="Coder", model=model, capabilities=capabilities)
        async with run_config.sandbox.client:
            return await agents.Runner.run(agent, "What is it?", run_config=run_config)

    assert "42" in openai_agents_run(script, use)


def test_anthropic() -> None:
    anthropic = need("anthropic")
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    tools = [{"name": "double", "description": "Doubles a number.", "input_schema": schema}]
    with server(Script("x = 6 * 7\nx", "await double(x)")) as address:
        client = anthropic.Anthropic(base_url=address, api_key="none")
        options = {"client": client, "model": "claude-sonnet-5-5", "tools": tools, "messages": MESSAGES["messages"]}
        step = run("belljar.anthropic", **options)["step"]
    assert [result["content"] for result in step.results] == ["42"] and step.calls == []


def test_e2b() -> None:
    value = re.search(r"(sandbox\.run_code\(.*\)\.text) +# (.*)\n", program("belljar.code_interpreter"))
    assert value is not None
    text = run("belljar.code_interpreter", f"    text = {value[1]}\n")["text"]
    assert text == ast.literal_eval(value[2])


def test_every_program_is_run() -> None:
    source = Path(__file__).read_text()
    names = re.findall(r'\b(?:run|program)\("(.*?)"', source)
    untested = [text for text in PROGRAMS if not any(name in text for name in names)]
    # Code mode with Monty is a program of another package, which the tests of `belljar monty` run.
    (code_mode,) = untested
    *_, call = ast.parse(code_mode).body
    assert ast.unparse(call).startswith("CodeMode(monty_sandbox=") and len(names) >= len(PROGRAMS) - 1

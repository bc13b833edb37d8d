"""The tool for agents of LangChain, with scripted models."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any

import pytest
from conftest import need
from test_smolagents import PNG

import belljar
from belljar import AsyncSandbox, Sandbox, connect
from server import Server


@pytest.fixture(autouse=True, scope="module")
def langchain() -> Any:
    need("langgraph")
    return need("langchain")


def call(tool: Any, code: str, thread: str | None = None) -> Any:
    """Returns the message of a call, as agents make it."""
    request = {"name": tool.name, "args": {"code": code}, "id": "1", "type": "tool_call"}
    return tool.invoke(request, {"configurable": {"thread_id": thread}} if thread else None)


async def acall(tool: Any, code: str, thread: str | None = None) -> Any:
    request = {"name": tool.name, "args": {"code": code}, "id": "1", "type": "tool_call"}
    return await tool.ainvoke(request, {"configurable": {"thread_id": thread}} if thread else None)


def exchange() -> Any:
    @need("langchain_core.tools").tool
    def exchange(amount: float, currency: str = "USD") -> dict[str, Any]:
        """Converts an amount.

        Args:
            amount: The amount.
            currency: The currency.
        """
        if currency == "XXX":
            raise ValueError("there is no XXX")
        return {"amount": amount * 2, "currency": currency}

    return exchange


def test_content_is_for_the_model_and_the_artifact_for_programs(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    with PythonTool(box) as tool:
        message = call(tool, "import sys\nprint('out')\nprint('error', file=sys.stderr)\n6 * 7")
        assert message.content == "out\nerror\n42"
        artifact = message.artifact
        assert (artifact["status"], artifact["stdout"], artifact["stderr"]) == ("success", "out\n", "error\n")
        assert (artifact["text"], artifact["error"], artifact["calls"]) == ("42", None, [])
        failed = call(tool, "print('before')\n1 / 0")
        assert failed.content.startswith("before\n") and failed.content.endswith("ZeroDivisionError: division by zero")
        assert failed.artifact["error"]["name"] == "ZeroDivisionError"
        assert call(tool, "x = 1").content == "(no output)"


def test_threads_have_sessions_of_their_own(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    with PythonTool(box) as tool:
        call(tool, "x = 1", "a")
        assert call(tool, "x", "a").content == "1"
        assert "NameError" in call(tool, "x", "b").content
        assert "NameError" in call(tool, "x").content
        tool.session("b").sync.files.write("f", b"contents")
        assert call(tool, "open('f').read()", "b").content == "'contents'"
        tool.reset("a")
        assert "NameError" in call(tool, "x", "a").content
    assert box._sessions == []
    with pytest.raises(belljar.SandboxError, match="closed"):
        call(tool, "1")


def test_fresh_calls_share_nothing(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    with PythonTool(box, state="fresh") as tool:
        call(tool, "x = 1\nopen('f', 'w').close()")
        assert "NameError" in call(tool, "x").content
        assert call(tool, "import os\nos.listdir()").content == "[]"
        assert box._sessions == []
        assert "variables and files of earlier calls do not exist" in tool.description


def test_a_function_can_choose_the_session_and_old_ones_are_closed(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    with PythonTool(box, state=lambda config: config["configurable"]["thread_id"][0], max_sessions=2) as tool:
        call(tool, "x = 1", "a1")
        assert call(tool, "x", "a2").content == "1"
        call(tool, "x = 2", "b")
        call(tool, "x", "a1")
        call(tool, "x = 3", "c")
        assert len(box._sessions) == 2
        assert call(tool, "x", "a1").content == "1"
        assert "NameError" in call(tool, "x", "b").content


def test_code_calls_tools(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    async def later(number: int) -> int:
        """Doubles a number."""
        await asyncio.sleep(0)
        return number * 2

    with PythonTool(box, tools=[exchange(), later]) as tool:
        assert "async def exchange(amount: float, currency: str = 'USD')" in tool.description
        assert "async def later(number: int) -> int:" in tool.description.replace("'", "")
        code = "a, b = await asyncio.gather(exchange(2, currency='EUR'), later(4))\na | {'b': b}"
        message = call(tool, f"import asyncio\n{code}")
        assert message.content == "{'amount': 4.0, 'currency': 'EUR', 'b': 8}"
        assert sorted(each["name"] for each in message.artifact["calls"]) == ["exchange", "later"]
        message = call(
            tool, "try:\n    await exchange(1, 'XXX')\nexcept ValueError as e:\n    print(e)\nawait exchange('x')"
        )
        assert message.content.startswith("there is no XXX\n") and "ValidationError" in message.content
        assert [each["error"] is None for each in message.artifact["calls"]] == [False, False]
        assert "TypeError" in call(tool, "await exchange(1, nothing=2)").content


def test_tools_with_injected_arguments_are_refused() -> None:
    from belljar.langchain import PythonTool

    tools = need("langchain_core.tools")
    from typing import Annotated

    def remember(text: str, call_id: Annotated[str, tools.InjectedToolCallId]) -> str:
        """Remembers a text."""
        return text + call_id

    remember.__annotations__ = {"text": str, "call_id": Annotated[str, tools.InjectedToolCallId], "return": str}
    with pytest.raises(belljar.ArgumentError, match="remember needs call_id"):
        PythonTool(tools=[tools.tool(remember)])


@pytest.mark.parametrize("code", [None, 5, ["x"], "'\ud800'"])
def test_invalid_code_is_an_error_of_the_arguments(box: Sandbox, code: object) -> None:
    from langchain.agents import create_agent
    from scripted import Script
    from test_examples import langchain_model

    from belljar.langchain import PythonTool

    with PythonTool(box) as tool:
        agent = create_agent(langchain_model(Script(code), "run_python", "code"), [tool])  # type: ignore[arg-type]
        assert "the code " in agent.invoke({"messages": [("user", "What is it?")]})["messages"][-1].text


def test_names_that_are_not_those_of_variables_are_passed_on(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    schema = {
        "type": "object",
        "properties": {"user-id": {"type": "integer"}, "to": {"type": "string"}},
        "required": ["user-id", "to"],
    }
    structured = need("langchain_core.tools").StructuredTool

    def send(**arguments: Any) -> str:
        return str(sorted(arguments.items()))

    tool = structured.from_function(send, name="send-mail", description="Sends a mail.", args_schema=schema)
    with PythonTool(box, tools=[tool]) as python:
        assert "async def send_mail(to: str, **others):" in python.description
        content = call(python, "await send_mail('Ada', **{'user-id': 1})").content
        assert content == repr("[('to', 'Ada'), ('user-id', 1)]")


def test_images_are_blocks_of_the_content(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    show = PNG + "for width in range(1, {}): display(Image(data=png(width, 1)))\n'shown'"
    with PythonTool(box) as tool:
        text, *images = call(tool, show.format(3)).content
        assert text == {"type": "text", "text": "'shown'"}
        assert [image["mime_type"] for image in images] == ["image/png"] * 2
        assert base64.b64decode(images[0]["base64"]).startswith(b"\x89PNG")
        message = call(tool, show.format(12))
        assert len(message.content) == 11 and "[1 of 11 images" in message.content[0]["text"]
        assert len(message.artifact["images"]) == 11
    with PythonTool(box, images=False) as tool:
        assert call(tool, show.format(2)).content == "'shown'\n[1 of 1 images are not shown: the result is text only]"
        assert "images" not in tool.description


def test_long_results_lose_their_middle(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    with PythonTool(box, max_text=1000) as tool:
        content = call(tool, "print('a' * 5000)\nprint('b' * 5000)\n1 / 0").content
        assert len(content) < 1100 and content.startswith("aaa") and content.endswith("division by zero")
        assert "characters are left out" in content


def test_time_limits_are_part_of_the_content(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    with PythonTool(box, timeout=5) as tool:
        message = call(tool, "x = 1\nwhile True: pass")
        assert "ran longer than 5 s" in message.content and message.artifact["limit"] == "time"
        assert call(tool, "x").content == "1"


def test_async_calls_share_the_sessions_and_can_be_cancelled(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    began = threading.Event()

    @need("langchain_core.tools").tool
    def begin() -> str:
        """Records that the code runs."""
        began.set()
        return ""

    async def main() -> None:
        async with PythonTool(box, tools=[exchange(), begin]) as tool:
            call(tool, "x = 1", "a")
            assert (await acall(tool, "x", "a")).content == "1"
            messages = await asyncio.gather(
                *(acall(tool, f"(await exchange({n}))['amount']", f"{n % 3}") for n in range(9))
            )
            assert [message.content for message in messages] == [f"{n * 2.0}" for n in range(9)]
            endless = asyncio.create_task(acall(tool, "y = 2\nawait begin()\nwhile True: pass", "a"))
            assert await asyncio.to_thread(began.wait, 60)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            assert (await acall(tool, "x + y", "a")).content == "3"
            await tool.areset("a")
            assert "NameError" in (await acall(tool, "x", "a")).content
        assert box._sessions == []
        async with AsyncSandbox(install=False) as other, PythonTool(other, state="fresh") as tool:
            assert (await acall(tool, "1 + 1")).content == "2"
            assert other._sessions == []

    asyncio.run(main())


def test_agents_keep_the_artifact_in_their_checkpoints(box: Sandbox) -> None:
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver
    from scripted import Script
    from test_examples import langchain_model

    from belljar.langchain import PythonTool

    script = Script("import datetime\nd = {1: datetime.date(2000, 2, 29)}\nawait exchange(4)", "d[1].strftime('%A')")
    with PythonTool(box, tools=[exchange()]) as tool:
        model = langchain_model(script, "run_python", "code")
        agent = create_agent(model, [tool], checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "a"}}
        result = agent.invoke({"messages": [{"role": "user", "content": "Which day?"}]}, config)
        assert result["messages"][-1].text == "It is 'Tuesday'."
        stored = agent.get_state(config).values["messages"]
        artifacts = [message.artifact for message in stored if message.type == "tool"]
        assert [artifact["text"] for artifact in artifacts] == ["{'amount': 8.0, 'currency': 'USD'}", "'Tuesday'"]


def test_code_can_run_on_a_server() -> None:
    from belljar.langchain import PythonTool

    server = Server("--toolset", "all")
    try:
        with connect(server.url) as box, PythonTool(box) as tool:
            call(tool, "x = 6", "a")
            assert call(tool, "print(x * 7)", "a").content == "42"
            with pytest.raises(belljar.UnsupportedError, match="cannot call functions"):
                PythonTool(box, tools=[exchange()])
    finally:
        server.stop()


def test_arguments_are_checked(box: Sandbox) -> None:
    from belljar.langchain import PythonTool

    pausing = Sandbox(tools=[belljar.McpServer("none", name="none")], approve="pause")
    for options, match in [
        ({"state": "session"}, "state"),
        ({"max_sessions": 0}, "max_sessions"),
        ({"sandbox": box, "packages": []}, "packages"),
        ({"tools": [exchange(), exchange()]}, "two functions"),
        ({"tools": [belljar.Tool(print, deferred=True)]}, "'print' is deferred"),
        ({"sandbox": Sandbox(tools=[belljar.Tool(print, deferred=True)])}, "'print' is deferred"),
        ({"tools": [belljar.McpServer("none", name="none")]}, "MCP servers"),
        ({"sandbox": pausing}, "'pause' is not supported"),
    ]:
        with pytest.raises(belljar.ArgumentError, match=match):
            PythonTool(**options)

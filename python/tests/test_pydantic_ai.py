"""`belljar.pydantic_ai` with agents whose model follows a script."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest
from conftest import need
from server import Server

import belljar
from belljar import AsyncSandbox

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
SHOW_IMAGE = f"from IPython.display import Image, display\nimport base64\ndisplay(Image(base64.b64decode('{PNG}')))"


class Model:
    """A model that runs pieces of code, one after the other or several in one response, and then answers."""

    def __init__(self, *codes: str | list[str], tool: str = "run_code") -> None:
        self.codes = list(codes)
        self.tool = tool
        self.seen: list[Any] = []
        """The contents of the results that the model has received."""
        self.infos: list[Any] = []

    def respond(self, messages: list[Any], info: Any) -> Any:
        parts = need("pydantic_ai.messages")
        number = sum(isinstance(message, parts.ModelResponse) for message in messages)
        self.infos.append(info)
        if number:
            self.seen.extend(part.content for part in messages[-1].parts if part.part_kind != "user-prompt")
        if number == len(self.codes):
            return parts.ModelResponse([parts.TextPart("done")])
        codes = self.codes[number]
        codes = [codes] if isinstance(codes, str) else codes
        return parts.ModelResponse([parts.ToolCallPart(self.tool, {"code": code}) for code in codes])

    def agent(self, *toolsets: Any, **options: Any) -> Any:
        function = need("pydantic_ai.models.function")
        return need("pydantic_ai").Agent(function.FunctionModel(self.respond), toolsets=toolsets, **options)


def toolset(*arguments: Any, **options: Any) -> Any:
    need("pydantic_ai")
    from belljar.pydantic_ai import BelljarToolset

    return BelljarToolset(*arguments, **({"install": False, **options} if not arguments else options))


def shop() -> Any:
    """Returns a toolset of pydantic-ai with several tools."""
    pydantic_ai, pydantic = need("pydantic_ai"), need("pydantic")
    tools = pydantic_ai.FunctionToolset()

    class Price(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        amount: float
        currency: str = "EUR"

    async def price(ctx: Any, item: str, count: int = 1) -> Any:
        """Returns the price of items.

        Args:
            item: The name of the item.
            count: How many.
        """
        await asyncio.sleep(0.01)
        if item == "nothing":
            raise pydantic_ai.ModelRetry("there is no such item: take 'pear'")
        return Price(amount=ctx.deps * count)

    price.__annotations__ |= {"ctx": pydantic_ai.RunContext[float], "return": Price, "item": str, "count": int}
    tools.add_function(price, takes_ctx=True)

    @tools.tool_plain
    def broken() -> str:
        """Fails."""
        raise KeyError("internal")

    @tools.tool_plain
    def picture() -> Any:
        """Returns a picture for the model, and its size for the code."""
        image = pydantic_ai.BinaryContent(base64.b64decode(PNG), media_type="image/png")
        return pydantic_ai.ToolReturn({"size": 48}, content=["The picture:", image])

    return tools


def run(agent: Any, **options: Any) -> Any:
    return asyncio.run(agent.run("question", **options))


def test_session_lives_as_long_as_the_run_of_the_agent() -> None:
    model = Model("total = 40\nprint('computing')", "total + 2", "total")
    agent = model.agent(toolset())
    assert run(agent).output == "done"
    assert model.seen == ["computing", "42", "40"]
    other = Model("total")
    with pytest.raises(need("pydantic_ai").UnexpectedModelBehavior, match="max retries"):
        run(other.agent(toolset(max_retries=0)))
    again = Model("'total' in globals()")
    agent = again.agent(toolset())
    run(agent)
    run(agent)
    assert again.seen == ["False", "False"]


def test_code_calls_tools_of_other_toolsets() -> None:
    model = Model(
        "import asyncio\nprices = await asyncio.gather(price('a'), price(item='b', count=2))\n"
        "sum(price['amount'] for price in prices), prices[0]['currency']",
        "await price('pear')",
    )
    result = run(model.agent(toolset(toolsets=[shop()]), deps_type=float), deps=1.5)
    assert model.seen == ["(4.5, 'EUR')", "{'amount': 1.5, 'currency': 'EUR'}"]
    assert result.usage.tool_calls == 5
    (tool,) = model.infos[0].function_tools
    assert "async def price(*, item: str, count: int = 1) -> Price:" in tool.description
    assert "class Price(TypedDict):" in tool.description and "How many." in tool.description
    returned = [part for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"]
    assert [call["tool"] for call in returned[0].metadata["calls"]] == ["price", "price"]
    assert returned[0].metadata["status"] == "success"


def test_failures_of_code_and_of_tools_are_retries_with_the_traceback() -> None:
    model = Model(
        "print('before')\n1 / 0",
        "await price('nothing')",
        "await price('a', count='many')",
        "await price()",
        "await broken()",
        "try:\n    await price('nothing')\nexcept Exception as error:\n    print(error)",
    )
    run(model.agent(toolset(toolsets=[shop()], max_retries=9), deps_type=float), deps=1.0)
    texts = [getattr(each, "message", each) if not isinstance(each, str) else each for each in model.seen]
    assert "before\n" in texts[0] and "ZeroDivisionError: division by zero" in texts[0] and "Cell In[1]" in texts[0]
    assert "there is no such item: take 'pear'" in texts[1]
    assert "valid integer" in texts[2]
    assert "missing a required argument: 'item'" in texts[3]
    assert "KeyError: 'internal'" in texts[4]
    assert texts[5] == "there is no such item: take 'pear'"


def test_agent_gives_up_after_the_retries() -> None:
    model = Model(*["1 / 0"] * 5)
    with pytest.raises(need("pydantic_ai").UnexpectedModelBehavior, match="max retries count of 2"):
        run(model.agent(toolset(max_retries=2)))
    assert len(model.infos) == 3


def test_images_are_part_of_the_result() -> None:
    binary = need("pydantic_ai").BinaryContent
    model = Model(f"{SHOW_IMAGE}\nprint('shown')", "(await picture())['size']", SHOW_IMAGE)
    run(model.agent(toolset(toolsets=[shop()]), deps_type=float), deps=1.0)
    text, image = model.seen[0]
    assert text == "shown" and isinstance(image, binary)
    assert (image.data, image.media_type) == (base64.b64decode(PNG), "image/png")
    assert model.seen[1] == "48"
    assert model.seen[2][0] == "(an image)"


def test_limits_stop_code_and_the_next_code_runs() -> None:
    model = Model("x = 1\nwhile True:\n    pass", "x", "b'x' * (1 << 30)", "[await price('a') for _ in range(9)]", "x")
    limits = {"timeout": 5, "memory": "256MB", "calls": 5}
    tools = toolset(toolsets=[shop()], limits=limits, max_retries=9, max_text=2000)
    run(model.agent(tools, deps_type=float), deps=1.0)
    assert "ran longer than 5 s" in model.seen[0] and model.seen[1] == "1"
    assert "MemoryError" in model.seen[2] and "5 times, its limit" in model.seen[3] and model.seen[4] == "1"
    assert all(len(text) < 2100 for text in model.seen)


def test_stateless_code_has_an_interpreter_of_its_own() -> None:
    model = Model("x = 1", ["'x' in globals()"] * 3)
    run(model.agent(toolset(stateful=False)))
    assert model.seen == ["(no output)", "False", "False", "False"]
    assert not model.infos[0].function_tools[0].sequential


def test_calls_in_one_response_run_in_order() -> None:
    model = Model(["x = [1]", "x.append(2)", "x"])
    run(model.agent(toolset()))
    assert model.seen == ["(no output)", "(no output)", "[1, 2]"]


def test_runs_of_agents_at_the_same_time_share_nothing() -> None:
    async def main() -> list[list[Any]]:
        tools = toolset(toolsets=[shop()])
        models = [Model(f"x = {number}", "await price('a')", "x") for number in range(8)]
        agents = [model.agent(tools, deps_type=float) for model in models]
        await asyncio.gather(*(agent.run("question", deps=1.0) for agent in agents))
        return [model.seen for model in models]

    assert [seen[2] for seen in asyncio.run(main())] == [str(number) for number in range(8)]


def test_sessions_end_with_their_runs() -> None:
    async def main() -> None:
        async with AsyncSandbox(install=False) as box:
            model = Model("x = 1", "x")
            agent = model.agent(toolset(box))
            async with agent:
                await agent.run("question")
            assert box._sessions == [] and not box._is_closed
            assert (await box.run("1")).value == 1
            async with box.session() as session:
                await session.run("given = 5")
                model = Model("given += 1", "given")
                await model.agent(toolset(session)).run("question")
                assert model.seen[-1] == "6"
                assert (await session.run("given")).value == 6

    asyncio.run(main())


def test_sandbox_of_a_toolset_is_closed_after_the_last_run() -> None:
    tools = toolset()
    first = tools._sandbox._sandbox
    run(Model("1").agent(tools))
    assert first._is_closed and first._sessions == []
    model = Model("2")
    run(model.agent(tools))
    assert model.seen == ["2"]


def test_cancelled_runs_stop_the_code() -> None:
    async def main() -> None:
        async with AsyncSandbox(install=False) as box:
            pydantic_ai = need("pydantic_ai")
            began, ended = asyncio.Event(), asyncio.Event()
            tools = pydantic_ai.FunctionToolset()

            @tools.tool_plain
            async def wait() -> str:
                began.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    ended.set()
                return ""

            task = asyncio.create_task(Model("await wait()").agent(toolset(box, toolsets=[tools])).run("question"))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(ended.wait(), 60)
            assert (await box.run("1")).value == 1

    asyncio.run(main())


def test_files_are_there_at_the_start() -> None:
    model = Model("import csv\n[row['price'] for row in csv.DictReader(open('orders.csv'))]")
    run(model.agent(toolset(files={"orders.csv": b"item,price\napple,1.5\n"})))
    assert model.seen == ["['1.5']"]


def test_tools_that_need_approval_stay_tools_of_the_model() -> None:
    pydantic_ai = need("pydantic_ai")
    tools = pydantic_ai.FunctionToolset()

    @tools.tool_plain(requires_approval=True)
    def delete() -> str:
        """Deletes everything."""
        return "deleted"

    @tools.tool_plain
    def ask() -> str:
        """Needs an approval when it is called."""
        raise need("pydantic_ai.exceptions").ApprovalRequired

    model = Model("await delete()", "await ask()")
    run(model.agent(toolset(toolsets=[tools]), output_type=[str, pydantic_ai.DeferredToolRequests]))
    assert [tool.name for tool in model.infos[0].function_tools] == ["delete", "run_code"]
    assert "name 'delete' is not defined" in model.seen[0]
    assert "PermissionError: ask needs an approval" in model.seen[1]


def test_tools_of_mcp_servers_and_of_wrapped_toolsets_are_functions_of_the_code() -> None:
    mcp, fastmcp = need("pydantic_ai.mcp"), need("fastmcp")
    server = fastmcp.FastMCP("Server")

    @server.tool(name="list-items")
    def list_items(limit: int = 2) -> list[str]:
        """Lists items."""
        return ["a", "b", "c"][:limit]

    hidden = shop().filtered(lambda ctx, definition: definition.name == "broken").defer_loading()
    tools = [mcp.MCPToolset(server), shop().prefixed("shop").filtered(lambda ctx, tool: "price" in tool.name), hidden]
    model = Model("await list_items(), (await shop_price('a'))['amount']", "'broken' in globals()")
    run(model.agent(toolset(toolsets=tools), deps_type=float), deps=3.0)
    assert model.seen == ["(['a', 'b'], 3.0)", "False"]
    names = {tool.name: tool for tool in model.infos[0].function_tools}
    assert "async def list_items(*, limit: int = 2)" in names["run_code"].description
    assert "shop_picture" not in names["run_code"].description


def test_usage_limit_holds_for_calls_of_the_code() -> None:
    pydantic_ai = need("pydantic_ai")
    model = Model("import asyncio\nawait asyncio.gather(*(price('a') for _ in range(5)))")
    agent = model.agent(toolset(toolsets=[shop()]), deps_type=float)
    with pytest.raises(pydantic_ai.UsageLimitExceeded):
        run(agent, deps=1.0, usage_limits=pydantic_ai.UsageLimits(tool_calls_limit=3))


def test_sequential_tools_run_alone() -> None:
    tools = need("pydantic_ai").FunctionToolset()
    running: list[int] = []

    @tools.tool_plain(sequential=True)
    async def step(number: int) -> int:
        running.append(number)
        await asyncio.sleep(0.01)
        assert running.pop() == number and not running
        return number

    model = Model("import asyncio\nawait asyncio.gather(*(step(number=n) for n in range(4)))")
    run(model.agent(toolset(toolsets=[tools])))
    assert model.seen == ["[0, 1, 2, 3]"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"code": 5}, "valid string"),
        ({}, "Field required"),
        ({"code": "1\0"}, "null bytes"),
        ({"code": "await price({1: 2})"}, "valid string"),
        ({"code": "await price('a', **{'others': 1})"}, "unexpected keyword argument"),
        ({"code": "print('x' * 1_000_000)\nraise SystemExit(3)"}, "SystemExit: 3"),
        ({"code": "class A:\n    def __repr__(self): 1 / 0\nA()\n1 / 0"}, "ZeroDivisionError"),
    ],
)
def test_hostile_calls_are_retries(arguments: dict[str, Any], text: str) -> None:
    parts = need("pydantic_ai.messages")
    seen: list[str] = []

    def respond(messages: list[Any], info: Any) -> Any:
        if len(messages) == 1:
            return parts.ModelResponse([parts.ToolCallPart("run_code", arguments)])
        seen.append(str(messages[-1].parts[0].content))
        return parts.ModelResponse([parts.TextPart("done")])

    function: Callable[..., Any] = need("pydantic_ai.models.function").FunctionModel
    tools = toolset(toolsets=[shop()])
    run(need("pydantic_ai").Agent(function(respond), toolsets=[tools], deps_type=float), deps=1.0)
    assert text in seen[0] and len(seen[0]) < 25_000


def test_wrong_arguments_are_refused() -> None:
    user_error = need("pydantic_ai.exceptions").UserError
    with pytest.raises(ValueError, match="limits"):
        toolset(AsyncSandbox(install=False), limits={"timeout": 1})
    with pytest.raises(TypeError, match="AsyncSandbox is needed"):
        toolset(belljar.Sandbox(install=False))
    with pytest.raises(user_error, match="stateful"):
        toolset(AsyncSandbox(install=False).session(), stateful=False)
    tools = need("pydantic_ai").FunctionToolset()
    for name in ("a-b", "a.b"):
        tools.add_function(lambda: 1, name=name)
    with pytest.raises(user_error, match="two tools have the name 'a_b'"):
        run(Model("1").agent(toolset(toolsets=[tools])))


def test_code_runs_on_a_server_without_tools() -> None:
    need("pydantic_ai")
    server = Server("--toolset", "all")
    try:

        async def main() -> None:
            async with belljar.connect_async(server.url) as box:
                model = Model("x = 6", "x * 7")
                await model.agent(toolset(box)).run("question")
                assert model.seen[1] == "42"
                with pytest.raises(belljar.UnsupportedError, match="tools"):
                    await Model("1").agent(toolset(box, toolsets=[shop()]), deps_type=float).run("question", deps=1.0)

        asyncio.run(main())
    finally:
        server.stop()


def test_sandboxes_whose_code_pauses_are_refused() -> None:
    @belljar.tool(deferred=True)
    def later() -> int:
        return 1

    with pytest.raises(ValueError, match="'later' is deferred"):
        toolset(tools=[later])

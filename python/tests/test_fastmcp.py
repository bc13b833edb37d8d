"""`belljar.fastmcp` with FastMCP's code mode and its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from conftest import need

from belljar import AsyncSandbox, SandboxError, UnsupportedError, connect_async, tool


def provider(**options: Any) -> Any:
    need("fastmcp.experimental.transforms.code_mode")
    from belljar.fastmcp import BelljarSandboxProvider

    return BelljarSandboxProvider(**{"install": False, **options})


def run(
    code: str, functions: dict[str, Any] | None = None, inputs: dict[str, Any] | None = None, **options: Any
) -> Any:
    """Runs code without a server."""
    return asyncio.run(provider(**options).run(code, inputs=inputs, external_functions=functions))


def with_server(use: Callable[[Any, Any], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Passes a client of a server with code mode, and a list of the calls of its tools."""
    fastmcp = need("fastmcp")
    mode = need("fastmcp.experimental.transforms.code_mode")
    server = fastmcp.FastMCP("Shop", transforms=[mode.CodeMode(sandbox_provider=provider(**options), max_tool_calls=5)])
    calls: list[str] = []

    @server.tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.tool
    async def order(item: str) -> dict[str, Any]:
        """Orders an item."""
        calls.append(item)
        await asyncio.sleep(0.01)
        return {"item": item, "price": 2.5}

    @server.tool
    def fail(reason: str) -> str:
        """Fails."""
        raise ValueError(reason)

    async def main() -> None:
        async with fastmcp.Client(server) as client:
            await use(client, calls)

    asyncio.run(main())


async def execute(client: Any, code: str) -> tuple[bool, str]:
    """Returns whether code has failed, and the text that a model reads."""
    result = await client.call_tool("execute", {"code": code}, raise_on_error=False)
    return result.is_error, "".join(block.text for block in result.content)


def test_models_find_tools_and_call_them_from_code() -> None:
    async def use(client: Any, calls: list[str]) -> None:
        assert sorted(tool.name for tool in await client.list_tools()) == ["execute", "get_schema", "search"]
        found = await client.call_tool("search", {"query": "order an item"})
        assert "order" in str(found.content)
        code = (
            "import asyncio\n"
            "orders = await asyncio.gather(*(call_tool('order', {'item': name}) for name in ['a', 'b']))\n"
            "total = sum(order['price'] for order in orders)\n"
            "if total > 1:\n"
            "    return {'total': total, 'sum': await call_tool('add', {'a': 1, 'b': 2})}\n"
            "return 'not reached'"
        )
        result = await client.call_tool("execute", {"code": code})
        assert result.structured_content == {"total": 5.0, "sum": {"result": 3}}
        assert sorted(calls) == ["a", "b"]

    with_server(use)


def test_errors_reach_the_model_with_their_traceback() -> None:
    async def use(client: Any, calls: list[str]) -> None:
        failed, text = await execute(client, "print('before')\nx = 0\nreturn 1 / x")
        assert failed and "before\n" in text and "----> 3 return 1 / x" in text and "ZeroDivisionError" in text
        failed, text = await execute(client, "await call_tool('fail', {'reason': 'broken pipe'})")
        assert failed and "broken pipe" in text and "Cell In" in text
        failed, text = await execute(client, "await call_tool('add', {'a': 1})")
        assert failed and "Valid parameters for add" in text
        failed, text = await execute(client, "await call_tool('nothing', {})")
        assert failed and "Unknown tool: nothing" in text
        failed, text = await execute(client, "return 1 +* 2")
        assert failed and "SyntaxError" in text
        code = (
            "try:\n    await call_tool('fail', {'reason': 'x'})\nexcept Exception as error:\n    return str(error)[:25]"
        )
        assert await execute(client, code) == (False, "call_tool('fail') failed:")

    with_server(use)


def test_errors_reach_the_model_of_a_server_that_masks_others() -> None:
    fastmcp = need("fastmcp")
    mode = need("fastmcp.experimental.transforms.code_mode")
    server = fastmcp.FastMCP(transforms=[mode.CodeMode(sandbox_provider=provider())], mask_error_details=True)

    async def main() -> tuple[bool, str]:
        async with fastmcp.Client(server) as client:
            return await execute(client, "return 1 / 0")

    failed, text = asyncio.run(main())
    assert failed and "ZeroDivisionError" in text


def test_limits_of_the_server_and_of_the_sandbox_hold() -> None:
    async def use(client: Any, calls: list[str]) -> None:
        code = "for number in range(9):\n    await call_tool('order', {'item': str(number)})"
        failed, text = await execute(client, code)
        assert failed and "Tool call limit exceeded" in text and len(calls) == 5
        failed, text = await execute(client, "while True:\n    pass")
        assert failed and "ran longer than 5 s" in text
        failed, text = await execute(client, "return bytearray(1 << 30)")
        assert failed and "MemoryError" in text
        failed, text = await execute(client, "return 'x' * 3_000_000")
        assert not failed and "left out" in text and len(text) < 200
        failed, text = await execute(client, "print('x' * 100_000)\n1 / 0")
        assert failed and "ZeroDivisionError" in text and len(text) < 25_000

    with_server(use, limits={"timeout": 5, "memory": "256MB", "value": "1MB"})


def test_pieces_of_code_share_nothing_and_run_side_by_side() -> None:
    async def use(client: Any, calls: list[str]) -> None:
        codes = [f"x = {n}\nawait call_tool('order', {{'item': 'i'}})\nreturn x, len(globals())" for n in range(8)]
        results = await asyncio.gather(*(execute(client, code) for code in codes))
        assert [text.split(",")[0] for _, text in results] == [f"[{n}" for n in range(8)]
        assert len({text.split(",")[1] for _, text in results}) == 1
        failed, text = await execute(client, "return x")
        assert failed and "NameError" in text
        numbers = [
            await execute(client, "import random, uuid\nreturn random.random(), str(uuid.uuid4())") for _ in "ab"
        ]
        assert numbers[0] != numbers[1]

    with_server(use)


def test_cancelled_requests_stop_the_code_and_its_calls() -> None:
    async def main() -> None:
        sandbox = provider()
        began, ended = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            began.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        task = asyncio.create_task(sandbox.run("await wait()\nreturn 1", external_functions={"wait": wait}))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 60)
        assert await sandbox.run("return 1") == 1

    asyncio.run(main())


def test_variables_of_code_with_return_are_global() -> None:
    code = """
from __future__ import annotations
from math import *
count: int = 1
unset: str

def increment():
    global count
    count += 1

class Table:
    rows = [number for number in range(3)]

increment()
with open("notes.txt", "w") as file:
    file.write("text")
match {"key": count}:
    case {"key": found, **rest}:
        pass
if (half := count / 2) == 1:
    return count, found, half, sqrt(4), Table.rows, file.closed, sorted({"count", "half", "increment"} - set(globals()))
half
"""
    assert run(code) == [2, 2, 1.0, 2.0, [0, 1, 2], True, []]


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("return 6 * 7", 42),
        ("x + 1", 3),
        ("if not x:\n    return 'a'\n'b'", "b"),
        ("return", None),
        ("", None),
        ("x", 2),
        ("print('only printed')", "only printed"),
        ("print('printed')\nreturn 1", 1),
        ("def f():\n    return 1\nf()", 1),
        ("import asyncio\nasync def f():\n    return 5\nreturn asyncio.run(f())", 5),
        ("return await double(x) + await double(1)", 6),
        ("await double(x)", 4),
        ("async for n in numbers():\n    return n", "TypeError"),
        ("return [await double(n) for n in range(3)]", [0, 2, 4]),
        ("return (1, {2}, None)", [1, [2], None]),
        ("return {1: float('inf'), 'b': b'\\xff', 'c': 1j}", {"1": float("inf"), "b": "_w==", "c": "1j"}),
        ("return memoryview(b'ab')", [97, 98]),
        ("return 2 ** 100", 2**100),
        ("nested = []\nnested.append(nested)\nreturn nested", ["..."]),
    ],
)
def test_value_is_that_of_return_or_of_the_last_line(code: str, value: Any) -> None:
    async def double(number: int) -> int:
        return number * 2

    def numbers() -> list[int]:
        return [1]

    functions = {"double": double, "numbers": numbers}
    if value == "TypeError":
        with pytest.raises(Exception, match="TypeError"):
            run(code, functions, {"x": 2})
    else:
        assert run(code, functions, {"x": 2}) == value


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("class A:\n    return 1\nreturn 2", "SyntaxError: 'return' outside function"),
        ("def f():\n    nonlocal x\nreturn 2", "no binding for nonlocal"),
        ("return 1\0", "null bytes"),
        ("\ud800", "not valid Unicode"),
        ("return '\\ud800'", "failed to send the value"),
        ("import os\nos._exit(3)", "SystemExit: 3"),
        ("raise SystemExit(4)", "SystemExit: 4"),
        ("return " + "-" * 5000 + "1", "Error"),
        ("get_ipython().ast_transformers.clear()\nreturn nothing", "NameError"),
        ("def f():\n    f()\nf()\nreturn", "RecursionError"),
    ],
)
def test_wrong_and_hostile_code_is_an_error_of_the_tool(code: str, error: str) -> None:
    tool_error = need("fastmcp.exceptions").ToolError
    with pytest.raises(tool_error, match=error):
        run(code)


def test_sandbox_of_the_caller_keeps_its_settings_and_functions() -> None:
    async def main() -> None:
        async def secret() -> int:
            return 7

        async with AsyncSandbox(tools=[secret], install=False) as box:
            sandbox = provider_of(box)
            assert await sandbox.run("return await secret() + await own()", external_functions={"own": secret}) == 14
            with pytest.raises(ValueError, match="two functions have the name 'secret'"):
                await sandbox.run("return 1", external_functions={"secret": secret})
            await sandbox.close()
            assert await sandbox.run("return 1") == 1
            assert len(box._sessions) == 0
        own = provider()
        await own.close()
        for closed in (sandbox, own):
            with pytest.raises(SandboxError, match="closed"):
                await closed.run("return 1")

    asyncio.run(main())


def test_sandbox_on_a_server_has_no_functions() -> None:
    need("fastmcp")
    remote = connect_async("http://127.0.0.1:9/mcp")
    with pytest.raises(UnsupportedError, match="tools"):
        asyncio.run(provider_of(remote).run("return 1", external_functions={"f": print}))


def provider_of(box: AsyncSandbox) -> Any:
    need("fastmcp")
    from belljar.fastmcp import BelljarSandboxProvider

    with pytest.raises(ValueError, match="limits"):
        BelljarSandboxProvider(box, limits={"timeout": 1})
    return BelljarSandboxProvider(box)


def test_sandboxes_whose_code_pauses_are_refused() -> None:
    need("fastmcp")
    from belljar.fastmcp import BelljarSandboxProvider

    @tool(deferred=True)
    def later() -> int:
        return 1

    with pytest.raises(ValueError, match="'later' is deferred"):
        BelljarSandboxProvider(tools=[later])

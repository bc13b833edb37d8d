"""A server of both eras with the Python SDK 2, for the features in which the eras differ."""

import os
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("modern", instructions="Ask and you will be asked.")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def talk(ctx: Context) -> str:
    for step in range(3):
        await ctx.info(f"line {step}")
        await ctx.report_progress(step, 3, f"step {step}")
    return "said"


@server.tool()
async def ask(ctx: Context) -> types.CallToolResult | types.InputRequiredResult:
    """Asks for a name; then for a model's opinion of it and for the roots."""
    answers = ctx.input_responses or {}
    state = ctx.request_state
    if state is None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}}}
        params = types.ElicitRequestFormParams(message="Who is there?", requested_schema=schema)
        requests: dict[str, Any] = {"name": types.ElicitRequest(params=params)}
        return types.InputRequiredResult(input_requests=requests, request_state="asked")
    if "opinion" not in answers:
        name = answers["name"].content
        message = types.SamplingMessage(role="user", content=types.TextContent(text=f"What of {name['name']}, {name['age']}?"))
        params = types.CreateMessageRequestParams(messages=[message], max_tokens=9, system_prompt="Be kind.")
        requests = {"opinion": types.CreateMessageRequest(params=params), "roots": types.ListRootsRequest()}
        return types.InputRequiredResult(input_requests=requests, request_state=f"{state}, {name['name']}")
    said = answers["opinion"].content
    roots = ", ".join(str(root.uri) for root in answers["roots"].roots)
    return types.CallToolResult(content=[types.TextContent(text=f"{state}: {said.text} ({roots})")])


@server.tool()
def header(name: str, ctx: Context) -> str:
    return (ctx.headers or {}).get(name, "none")


@server.tool()
async def sleep(ctx: Context) -> str:
    await ctx.report_progress(0, 1, "started")
    try:
        await anyio.sleep(60)
    except BaseException:
        if path := os.environ.get("NOTES"):
            with open(path, "a") as notes:
                notes.write("cancelled\n")
        raise
    return "slept"


@server.tool()
async def grow(ctx: Context) -> str:
    server.add_tool(lambda: "new", name="grown", description="A tool that was not there before.")
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
async def touch(ctx: Context) -> str:
    await ctx.notify_resource_updated("mem://note")
    return "touched"


@server.tool()
def fail() -> str:
    raise ValueError("no such thing")


@server.resource("mem://note")
def note() -> str:
    return "a note"


@server.prompt()
def greet(name: str) -> str:
    return f"Hello, {name}!"


if __name__ == "__main__":
    match sys.argv[1]:
        case "stdio":
            server.run("stdio")
        case transport:
            server.run(transport, port=int(os.environ["PORT"]))

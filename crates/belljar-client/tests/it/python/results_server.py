"""An MCP server whose tools return the results in `results.json` unchanged."""

import json
from pathlib import Path
from typing import Any

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import McpError

DATA: dict[str, Any] = json.loads((Path(__file__).parent / "results.json").read_text())
server: Server[None] = Server("results", version="1", instructions="Every tool has one answer.")


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    names = [*DATA["tools"], *DATA["protocol_errors"]]
    return [types.Tool(name=name, inputSchema={"type": "object"}) for name in names]


async def call_tool(request: types.CallToolRequest) -> types.ServerResult:
    name = request.params.name
    if error := DATA["protocol_errors"].get(name):
        raise McpError(types.ErrorData(**error))
    if name not in DATA["tools"]:
        raise McpError(types.ErrorData(code=types.INVALID_PARAMS, message=f"Unknown tool: {name}"))
    return types.ServerResult(types.CallToolResult.model_validate(DATA["tools"][name]))


async def read_resource(request: types.ReadResourceRequest) -> types.ServerResult:
    contents = DATA["resources"].get(str(request.params.uri))
    if contents is None:
        raise McpError(types.ErrorData(code=-32002, message="Resource not found"))
    return types.ServerResult(types.ReadResourceResult.model_validate({"contents": contents}))


@server.list_resources()
async def list_resources() -> list[types.Resource]:
    return [types.Resource(uri=uri, name=uri) for uri in DATA["resources"]]


# The decorators would wrap errors and results; these handlers return them unchanged.
server.request_handlers[types.CallToolRequest] = call_tool
server.request_handlers[types.ReadResourceRequest] = read_resource


async def main() -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


anyio.run(main)

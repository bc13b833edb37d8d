"""Calls every tool of the results server through pydantic-ai 2 and prints the outcomes as JSON."""

import asyncio
import base64
import json
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

from fastmcp.client.transports import StdioTransport  # noqa: E402
from pydantic_ai import BinaryContent, ModelRetry  # noqa: E402
from pydantic_ai.mcp import MCPError, MCPToolset  # noqa: E402


def encode(value: Any) -> Any:
    match value:
        case BinaryContent():
            return {"binary": base64.b64encode(value.data).decode(), "media_type": value.media_type}
        case list():
            return [encode(item) for item in value]
        case dict():
            return {name: encode(item) for name, item in value.items()}
        case _:
            return value


async def main() -> None:
    # The server runs with the Python of the first oracle, whose SDK accepts every result unchanged.
    python, script = sys.argv[1], str(Path(__file__).parent / "results_server.py")
    server = MCPToolset(StdioTransport(python, [script]), init_timeout=60)
    outcomes: dict[str, Any] = {}
    async with server:
        for tool in await server.list_tools():
            try:
                outcomes[tool.name] = {"output": encode(await server.direct_call_tool(tool.name, {}))}
            except ModelRetry as retry:
                outcomes[tool.name] = {"retry": retry.message}
            except MCPError as error:
                outcomes[tool.name] = {"error": error.message, "code": error.code}
    print(json.dumps(outcomes))


asyncio.run(main())

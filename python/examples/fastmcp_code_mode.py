"""An MCP server with code mode: models call its tools from code that runs in Belljar."""

from fastmcp import FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode

from belljar.fastmcp import BelljarSandboxProvider

sandbox = BelljarSandboxProvider(limits={"timeout": 10, "memory": "512MB"})
server = FastMCP("Weather", transforms=[CodeMode(sandbox_provider=sandbox)])


@server.tool
async def weather(city: str) -> dict[str, float]:
    """Returns today's temperatures in a city, in degrees Celsius."""
    return {"Oslo": {"low": -2.0, "high": 4.5}, "Rome": {"low": 11.0, "high": 21.0}}[city]


if __name__ == "__main__":
    server.run()

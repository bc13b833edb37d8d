"""Two clients of one server: each lists the files of its own sessions only. Argument: the server's URL."""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def work(url: str, text: str, seen: dict[str, list[str]], both: asyncio.Barrier) -> None:
    async with streamablehttp_client(url) as (read, write, _), ClientSession(read, write) as client:
        await client.initialize()
        result = await client.call_tool("execute_code", {"code": f"open('{text}.txt', 'w').write('{text}')"})
        answer = json.loads(result.content[0].text)
        assert answer["success"], answer
        await both.wait()
        listed = await client.list_resources()
        seen[text] = [str(resource.uri) for resource in listed.resources]
        contents = await client.read_resource(listed.resources[0].uri)
        assert contents.contents[0].text == text, contents
        await both.wait()


async def main(url: str) -> None:
    seen: dict[str, list[str]] = {}
    both = asyncio.Barrier(2)
    await asyncio.gather(work(url, "one", seen, both), work(url, "two", seen, both))
    assert all(len(uris) == 1 and uris[0].endswith(f"/{text}.txt") for text, uris in seen.items()), seen


asyncio.run(main(sys.argv[1]))

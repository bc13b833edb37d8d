import asyncio

import anthropic
import httpx2


def refused(act):
    try:
        act()
    except Exception as error:
        return f"{error} {error.__cause__}"
    raise AssertionError("there is a network")


reason = "this sandbox has no network access"
assert reason in refused(lambda: httpx2.get("https://example.com/"))


async def request():
    async with httpx2.AsyncClient() as client:
        await client.get("https://example.com/")


assert reason in refused(lambda: asyncio.run(request()))
messages = anthropic.Anthropic(api_key="none", max_retries=0).messages
asked = lambda: messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "?"}])
assert reason in refused(asked), refused(asked)

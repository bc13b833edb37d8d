"""anthropic: messages, whole and streamed, by clients that block and clients that await."""

import asyncio

import anthropic

OPTIONS = {"base_url": "https://api.example.com:PORT_https", "api_key": "sk-ant-test", "max_retries": 0}
QUESTION = {"model": "test", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}

client = anthropic.Anthropic(**OPTIONS)
answer = client.messages.create(**QUESTION)
assert answer.content[0].text == "Hello from the model" and answer.usage.output_tokens == 4
with client.messages.stream(**QUESTION) as stream:
    assert "".join(stream.text_stream) == "Hello from the model "

try:
    anthropic.Anthropic(**{**OPTIONS, "api_key": "wrong"}).messages.create(**QUESTION)
    raise AssertionError
except anthropic.AuthenticationError:
    pass


async def main():
    client = anthropic.AsyncAnthropic(**OPTIONS)
    assert (await client.messages.create(**QUESTION)).content[0].text == "Hello from the model"
    async with client.messages.stream(**QUESTION) as stream:
        assert [text async for text in stream.text_stream][-1] == "model "


asyncio.run(main())

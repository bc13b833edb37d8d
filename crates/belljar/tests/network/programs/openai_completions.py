"""openai: completions, whole and streamed, by clients that block and clients that await."""

import asyncio

import openai

OPTIONS = {"base_url": "https://api.example.com:PORT_https/v1", "api_key": "sk-test", "max_retries": 0}
QUESTION = {"model": "test", "messages": [{"role": "user", "content": "Hi"}]}

client = openai.OpenAI(**OPTIONS)
answer = client.chat.completions.create(**QUESTION)
assert answer.choices[0].message.content == "Hello from the model"
assert answer.usage.total_tokens == 5
parts = [chunk.choices[0].delta.content for chunk in client.chat.completions.create(**QUESTION, stream=True)]
assert parts == ["Hello ", "from ", "the ", "model "], parts

try:
    client.with_options(api_key="wrong").chat.completions.create(**QUESTION)
    raise AssertionError
except openai.AuthenticationError:
    pass


async def main():
    client = openai.AsyncOpenAI(**OPTIONS)
    answers = await asyncio.gather(*(client.chat.completions.create(**QUESTION) for _ in range(5)))
    assert {answer.choices[0].message.content for answer in answers} == {"Hello from the model"}
    stream = await client.chat.completions.create(**QUESTION, stream=True)
    assert [chunk.choices[0].delta.content async for chunk in stream] == parts


asyncio.run(main())

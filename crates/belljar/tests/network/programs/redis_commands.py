"""redis: commands, pipelines and asyncio, with a server of its protocol."""

import asyncio

import redis
import redis.asyncio

client = redis.Redis("api.example.com", PORT_redis, socket_timeout=20)
assert client.ping()
assert client.set("name", "välue") and client.get("name").decode() == "välue"
assert client.get("missing") is None
with client.pipeline(transaction=False) as pipeline:
    for index in range(100):
        pipeline.incrby("counter", index)
    assert pipeline.execute()[-1] >= 4950
client.rpush("list", "a", "b")
assert client.lrange("list", 0, -1)[:2] == [b"a", b"b"]

try:
    client.execute_command("NONSENSE")
    raise AssertionError
except redis.ResponseError as error:
    assert "unknown command" in str(error)

try:
    redis.Redis("api.example.com", PORT_closed, retry=None).ping()
    raise AssertionError
except redis.ConnectionError as error:
    assert "refused" in str(error), error


async def main():
    client = redis.asyncio.Redis(host="api.example.com", port=PORT_redis)
    await asyncio.gather(*(client.set(f"key {index}", index) for index in range(20)))
    assert await client.get("key 7") == b"7"
    await client.aclose()


asyncio.run(main())

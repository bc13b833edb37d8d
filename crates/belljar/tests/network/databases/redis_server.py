"""redis: commands, pipelines, transactions, messages, asyncio. The arguments are the ports without and with TLS."""

import asyncio
import sys

import redis
import redis.asyncio

PLAIN, TLS = map(int, sys.argv[1:])
HOST = "db.example.com"

for options in ({"port": PLAIN}, {"port": TLS, "ssl": True}):
    client = redis.Redis(HOST, socket_timeout=20, **options)
    assert client.ping()
    assert client.set("name", "välue") and client.get("name").decode() == "välue"
    client.close()
client = redis.Redis(HOST, PLAIN, socket_timeout=20)
assert client.get("missing") is None
with client.pipeline(transaction=False) as pipeline:
    for index in range(100):
        pipeline.incrby("counter", index)
    assert pipeline.execute()[-1] >= 4950
client.rpush("list", "a", "b")
assert client.lrange("list", 0, -1) == [b"a", b"b"]
with client.pipeline(transaction=True) as pipeline:
    assert pipeline.set("both", 1).incr("both").execute() == [True, 2]
messages = client.pubsub(ignore_subscribe_messages=True)
messages.subscribe("channel")
assert messages.get_message(timeout=20) is None
assert client.publish("channel", "news") == 1
assert messages.get_message(timeout=20)["data"] == b"news"
messages.close()

try:
    client.execute_command("NONSENSE")
    raise AssertionError
except redis.ResponseError as error:
    assert "unknown command" in str(error)

try:
    redis.Redis(HOST, TLS, socket_timeout=20, retry=None).ping()
    raise AssertionError
except redis.ConnectionError:
    pass


async def main():
    client = redis.asyncio.Redis(host=HOST, port=TLS, ssl=True)
    await asyncio.gather(*(client.set(f"key {index}", index) for index in range(20)))
    assert await client.get("key 7") == b"7"
    await client.aclose()


asyncio.run(main())

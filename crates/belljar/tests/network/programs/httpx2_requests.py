# /// script
# dependencies = ["httpx2"]
# ///
"""httpx2: clients that block and clients that await, streams, and time limits."""

import asyncio
import hashlib

import httpx2

BASE = "https://api.example.com:PORT_https"

assert httpx2.get(f"{BASE}/hello").json()["hello"] == "world"
with httpx2.Client(base_url=BASE) as client:
    assert len({client.get("/hello").json()["client"] for _ in range(5)}) == 1
    assert client.post("/request", json={"a": 1}).json()["body"] == '{"a":1}'
    with client.stream("GET", "/bytes?count=1000000") as answer:
        digest = hashlib.sha256()
        for chunk in answer.iter_bytes():
            digest.update(chunk)
    assert digest.hexdigest() == answer.headers["X-Digest"]
    try:
        client.get("/delay?seconds=5", timeout=httpx2.Timeout(120, read=0.3))
        raise AssertionError
    except httpx2.ReadTimeout:
        pass

try:
    httpx2.get("https://api.example.com:PORT_unknown/")
    raise AssertionError
except httpx2.ConnectError as error:
    assert "unable to get local issuer certificate" in str(error), error

try:
    httpx2.get("https://elsewhere.example.org/")
    raise AssertionError
except httpx2.ConnectError as error:
    assert "elsewhere.example.org:443 is not allowed" in str(error), error


async def main():
    async with httpx2.AsyncClient(base_url=BASE, timeout=120) as client:
        answers = await asyncio.gather(*(client.get(f"/request?i={index}") for index in range(30)))
        assert [answer.json()["query"]["i"] for answer in answers] == [str(index) for index in range(30)]
        async with client.stream("GET", "/chunks?count=20") as answer:
            assert [line async for line in answer.aiter_lines()][-1] == "chunk 19"
        try:
            await client.get("/delay?seconds=5", timeout=httpx2.Timeout(120, read=0.3))
            raise AssertionError
        except httpx2.ReadTimeout:
            pass
        try:
            async with asyncio.timeout(0.3):
                await client.get("/delay?seconds=5")
            raise AssertionError
        except TimeoutError:
            pass


asyncio.run(main())

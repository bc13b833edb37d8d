"""aiohttp: many requests at once, streams, WebSockets and time limits."""

import asyncio
import hashlib
import ssl

import aiohttp

BASE = "https://api.example.com:PORT_https"


async def main():
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as session:

        async def get(path):
            async with session.get(BASE + path) as answer:
                return await answer.json()

        assert (await get("/hello"))["hello"] == "world"
        answers = await asyncio.gather(*(get(f"/request?i={index}") for index in range(40)))
        assert [answer["query"]["i"] for answer in answers] == [str(index) for index in range(40)]
        data = bytes(range(256)) * 4000
        async with session.post(f"{BASE}/upload", data=data) as answer:
            assert (await answer.json())["digest"] == hashlib.sha256(data).hexdigest()
        async with session.get(f"{BASE}/bytes?count=2000000") as answer:
            digest = hashlib.sha256()
            async for chunk in answer.content.iter_chunked(10_000):
                digest.update(chunk)
            assert digest.hexdigest() == answer.headers["X-Digest"]
        async with session.ws_connect(f"{BASE}/websocket") as socket:
            await socket.send_str("hello")
            assert (await socket.receive()).data == "hello"
            await socket.send_bytes(bytes(70_000))
            assert len((await socket.receive()).data) == 70_000
        try:
            async with session.get(f"{BASE}/delay?seconds=5", timeout=aiohttp.ClientTimeout(0.3)):
                raise AssertionError
        except TimeoutError:
            pass
        try:
            await session.get("https://api.example.com:PORT_wrong_name/")
            raise AssertionError
        except aiohttp.ClientConnectorCertificateError as error:
            assert isinstance(error.certificate_error, ssl.SSLCertVerificationError)
            assert "not valid for 'api.example.com'" in str(error), error
        async with session.get("https://api.example.com:PORT_wrong_name/hello", ssl=False) as answer:
            assert answer.status == 200
        try:
            await session.get("https://elsewhere.example.org/")
            raise AssertionError
        except (aiohttp.ClientError, PermissionError) as error:
            assert "elsewhere.example.org" in str(error) and "not allowed" in str(error), error


asyncio.run(main())

"""websockets: clients with asyncio, over TLS and without."""

import asyncio

import websockets

async def main():
    for url in ("wss://api.example.com:PORT_https/websocket", "ws://api.example.com:PORT_http/websocket"):
        async with websockets.connect(url) as socket:
            for index in range(20):
                await socket.send(f"message {index}")
                assert await socket.recv() == f"message {index}"
            await socket.send(bytes(100_000))
            assert len(await socket.recv()) == 100_000
            await (await socket.ping())
    try:
        async with asyncio.timeout(0.3), websockets.connect("wss://api.example.com:PORT_https/websocket") as socket:
            await socket.recv()
        raise AssertionError
    except TimeoutError:
        pass


asyncio.run(main())

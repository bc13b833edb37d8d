"""Runs a feed whose request has the place of its sender in a trace: `trace_parent.py URL PARENT`.

pydantic-monty sends it with its own tracing only, so that this script writes the messages itself.
"""

import base64
import os
import socket
import struct
import sys
from urllib.parse import urlsplit

OK, COMPLETE = 10, 6


def field(number: int, content: bytes | int) -> bytes:
    """Encodes a field of less than 128 bytes: a message or a text; or a small integer."""
    key = number << 3 if isinstance(content, int) else number << 3 | 2
    encoded = bytes([key]) if key < 128 else bytes([key & 0x7F | 0x80, key >> 7])
    return encoded + (bytes([content]) if isinstance(content, int) else bytes([len(content)]) + content)


class WebSocket:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port))
        self.stream = self.socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        assert b" 101 " in self.stream.readline()
        while self.stream.readline() != b"\r\n":
            pass

    def ask(self, request: bytes) -> int:
        """Sends a request of less than 126 bytes, and returns the number of the event that ends its turn."""
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(request))
        self.socket.sendall(struct.pack("!BB", 0x82, 0x80 | len(request)) + mask + masked)
        while True:
            kind, length = self.stream.read(2)
            if length == 126:
                (length,) = struct.unpack("!H", self.stream.read(2))
            event = self.stream.read(length)
            # Binary messages only, and no output.
            if kind == 0x82 and (number := event[0] >> 3) != 1:
                return number


def main(url: str, parent: str) -> None:
    connection = WebSocket(url)
    assert connection.ask(field(1, field(1, b"main.py") + field(9, 6))) == OK
    assert connection.ask(field(3, field(1, b"1 + 1")) + field(20, parent.encode())) == COMPLETE


main(*sys.argv[1:])

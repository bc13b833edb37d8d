"""The HTTP/1.1 server of the tests. Its answers depend on the path alone, so that each test chooses one."""

import gzip
import hashlib
import json
import time
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, quote, urlsplit

import llm_api

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BLOCK = bytes(range(256)) * 256
"""64 KiB of every downloaded body."""


class Handler(BaseHTTPRequestHandler):
    """Answers requests."""

    protocol_version = "HTTP/1.1"
    log: Callable[..., None]
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, *arguments: object) -> None:
        pass

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        if parsed:
            port = self.server.server_address[1]
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.log(port=port, method=self.command, path=self.path, headers=headers)
        return parsed

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        head, _, self.rest = url.path.removeprefix("/").partition("/")
        getattr(self, "get_" + head.replace("-", "_"), self.get_missing)()

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = handle_any

    def answer(self, body: bytes | str, kind: str = "text/plain", status: int = 200, **headers: str) -> None:
        """Sends a whole answer."""
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def answer_json(self, value: object, status: int = 200) -> None:
        self.answer(json.dumps(value), "application/json", status)

    def start_chunked(self, kind: str, **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def body(self) -> bytes:
        """Reads the body of the request."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def authorization(self) -> str:
        """Returns the token of the request."""
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    # Plain answers.

    def get_missing(self) -> None:
        self.body()
        self.answer_json({"error": "not found"}, 404)

    def get_hello(self) -> None:
        self.answer_json({"hello": "world", "client": self.client_address[1]})

    def get_status(self) -> None:
        self.answer_json({"status": int(self.rest)}, int(self.rest))

    def get_headers(self) -> None:
        self.answer_json({name.lower(): value for name, value in self.headers.items()})

    def get_request(self) -> None:
        body = self.body().decode()
        self.answer_json(
            {"method": self.command, "query": self.query, "body": body, "type": self.headers["Content-Type"]}
        )

    def get_csv(self) -> None:
        self.answer("name,value\na,1\nb,2\n", "text/csv")

    def get_cookies(self) -> None:
        self.answer(self.headers.get("Cookie", ""), Set_Cookie="flavour=oat; Path=/")

    def get_redirect(self) -> None:
        self.answer("", status=int(self.query.get("status", 302)), Location=self.query["to"])

    def get_delay(self) -> None:
        time.sleep(float(self.query["seconds"]))
        self.answer("late")

    def get_gzip(self) -> None:
        self.answer(gzip.compress(b"compressed text " * 100), Content_Encoding="gzip")

    # Large and hostile answers.

    def get_bytes(self) -> None:
        count = int(self.query["count"])
        digest = hashlib.sha256((BLOCK * (count // len(BLOCK) + 1))[:count]).hexdigest() if count < 1 << 26 else ""
        self.send_response(200)
        self.send_header("Content-Length", str(count))
        self.send_header("X-Digest", digest)
        self.end_headers()
        while count > 0:
            self.wfile.write(BLOCK[:count])
            count -= len(BLOCK)

    def get_chunks(self) -> None:
        self.start_chunked("text/plain")
        for index in range(int(self.query["count"])):
            self.chunk(b"chunk %d\n" % index)
        self.chunk(b"")

    def get_upload(self) -> None:
        data = self.body()
        self.answer_json({"count": len(data), "digest": hashlib.sha256(data).hexdigest()})

    def get_cut(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"only this")
        self.close_connection = True

    def get_garbage(self) -> None:
        self.wfile.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        self.close_connection = True

    def get_endless_headers(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for index in range(1 << 20):
            self.wfile.write(b"X-Header-%d: %s\r\n" % (index, b"x" * 1000))

    def get_bomb(self) -> None:
        packer = zlib.compressobj(9, wbits=31)
        data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1024)) + packer.flush()
        self.answer(data, Content_Encoding="gzip")

    # Answers that return the credentials of the request.

    def get_digest(self) -> None:
        """Returns a hash of the token, which no scrubber recognizes."""
        token = self.headers.get(self.query.get("header", "Authorization"), "")
        self.answer(hashlib.sha256(token.encode()).hexdigest())

    def get_return(self) -> None:
        token = self.authorization()
        match self.rest:
            case "plain":
                self.answer(f"[{token}]")
            case "base64":
                self.answer(b64encode(f"{self.query.get('before', '')}{token}".encode()))
            case "base64url":
                self.answer(urlsafe_b64encode(token.encode()).rstrip(b"="))
            case "hex":
                self.answer(token.encode().hex())
            case "url":
                self.answer(quote(token, safe=""))
            case "json":
                self.answer(json.dumps({"token": token}).replace("/", "\\/"), "application/json")
            case "gzip":
                self.answer(gzip.compress(f"[{token}]".encode()), Content_Encoding="gzip")
            case "deflate":
                self.answer(zlib.compress(f"[{token}]".encode()), Content_Encoding="deflate")
            case "header":
                self.answer("see X-Token", X_Token=token)
            case "location":
                self.answer("", status=302, Location=f"/hello?token={quote(token)}")
            case "reason":
                self.wfile.write(f"HTTP/1.1 200 {token}\r\nContent-Length: 0\r\n\r\n".encode())
            case "cookie":
                self.answer("", Set_Cookie=f"token={token}")
            case "error":
                self.answer_json({"error": f"invalid token {token}"}, 401)
            case "trailer":
                self.start_chunked("text/plain", Trailer="X-Token")
                self.wfile.write(f"0\r\nX-Token: {token}\r\n\r\n".encode())
            case "split":
                self.start_chunked("text/plain")
                for letter in f"[{token}]":
                    self.chunk(letter.encode())
                    time.sleep(0.005)
                self.chunk(b"")
            case "slow":
                self.start_chunked("text/plain")
                middle = len(token) // 2
                for part in ("[" + token[:middle], token[middle:] + "]"):
                    self.chunk(part.encode())
                    time.sleep(0.6)
                self.chunk(b"")
            case "informational":
                self.wfile.write(f"HTTP/1.1 103 Early\r\nX-Token: {token}\r\n\r\n".encode())
                self.answer("after hints")
            case "close":
                self.wfile.write(f"HTTP/1.1 200 OK\r\n\r\n[{token}]".encode())
                self.close_connection = True
            case "partial":
                self.answer(f"[{token}]", Content_Range=f"bytes 0-{len(token)}/1000", status=206)

    # Protocols on top.

    def get_websocket(self) -> None:
        key = self.headers["Sec-WebSocket-Key"].encode()
        accept = b64encode(hashlib.sha1(key + GUID).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while len(head := self.rfile.read(2)) == 2:
            kind, size = head[0] & 15, head[1] & 127
            if size >= 126:
                size = int.from_bytes(self.rfile.read(2 if size == 126 else 8), "big")
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[index % 4] for index, byte in enumerate(self.rfile.read(size)))
            if kind == 1 and data == b"token":
                data = self.authorization().encode()
            if kind in (1, 2, 8, 9):
                self.frame(10 if kind == 9 else kind, data)
            if kind == 8:
                break

    def frame(self, kind: int, data: bytes) -> None:
        if len(data) < 126:
            size = bytes([len(data)])
        elif len(data) < 1 << 16:
            size = b"\x7e" + len(data).to_bytes(2, "big")
        else:
            size = b"\x7f" + len(data).to_bytes(8, "big")
        self.wfile.write(bytes([0x80 | kind]) + size + data)
        self.wfile.flush()

    def get_v1(self) -> None:
        llm_api.answer(self)


def handler(log: Callable[..., None]) -> type[Handler]:
    """Returns the class of handlers that log their requests."""
    return type("LoggingHandler", (Handler,), {"log": staticmethod(log)})

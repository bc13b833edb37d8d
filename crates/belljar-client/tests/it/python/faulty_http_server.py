"""A server over HTTP that misbehaves, in the way that the path names. It uses nothing but the standard library."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SEEN: list[dict[str, str]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path
        if path == "/seen":
            return self.answer(200, {"content-type": "application/json"}, json.dumps(SEEN).encode())
        SEEN.append({name.lower(): value for name, value in self.headers.items()})
        match path.split("/")[1]:
            case "other-origin":
                body = b"event: endpoint\ndata: http://example.org/messages\n\n"
                self.answer(200, {"content-type": "text/event-stream"}, body)
            case "redirect":
                self.answer(307, {"location": f"http://127.0.0.1:{path.split('/')[2]}/stolen"})
            case "page":
                self.answer(200, {"content-type": "text/html"}, b"<h1>It works!</h1>")
            case "broken":
                self.answer(500, {"content-type": "text/plain"}, b"trouble")
            case "empty":
                self.answer(200, {})
            case "private":
                self.answer(401, {"www-authenticate": 'Bearer realm="private"'})
            case "endless":
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                piece = b"data: " + b"x" * 65_530 + b"\n"
                try:
                    while True:
                        self.wfile.write(piece)
                except OSError:
                    self.close_connection = True
            case _:
                self.answer(404, {"content-type": "text/plain"}, b"not here")

    do_GET = do_POST = do_DELETE = handle_any

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()

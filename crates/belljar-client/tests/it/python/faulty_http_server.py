"""A server over HTTP with a fault that the path selects. It uses only the standard library.

`/acts/FAULT` is a server of streamable HTTP that works until its tool is called. `/sse` is a server of the transport of
2024 that refuses the message with this call. `/moved/STATUS/…` redirects. The other paths are not MCP servers.
"""

import json
import os
import queue
import secrets
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SEEN: list[dict[str, str]] = []
HUGE = 17 * 1024 * 1024
STREAMS: dict[str, queue.Queue[str]] = {}


def response(message: dict[str, Any], words: str) -> dict[str, Any]:
    result = {"content": [{"type": "text", "text": words}]}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def description(message: dict[str, Any]) -> dict[str, Any]:
    result = {
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "faulty", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def tools(message: dict[str, Any]) -> dict[str, Any]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("act", "fine")]
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}


def unknown(message: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, value: Any) -> None:
        self.answer(200, {"content-type": "application/json"}, json.dumps(value).encode())

    def start_events(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, data: str, id: str | None = None) -> None:
        text = (f"id: {id}\nretry: 10\n" if id else "") + f"data: {data}\n\n"
        self.wfile.write(text.encode())
        self.wfile.flush()

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path
        if path == "/seen":
            return self.answer_json(SEEN)
        SEEN.append({"method": self.command, **{name.lower(): value for name, value in self.headers.items()}})
        match path.split("?")[0].split("/")[1]:
            case "acts":
                try:
                    self.handle_message(path.split("/")[2], json.loads(body) if body else {})
                except OSError:
                    self.close_connection = True
            case "sse":
                self.stream()
            case "messages":
                self.handle_posted(path.split("?")[1], json.loads(body))
            case "other-origin":
                body = b"event: endpoint\ndata: http://example.org/messages\n\n"
                self.answer(200, {"content-type": "text/event-stream"}, body)
            case "redirect":
                self.answer(307, {"location": f"http://127.0.0.1:{path.split('/')[2]}/stolen"})
            case "moved":
                _, _, status, target = path.split("/", 3)
                self.answer(int(status), {"location": f"/{target}"})
            case "page":
                self.answer(200, {"content-type": "text/html"}, b"<h1>It works!</h1>")
            case "broken":
                self.answer(500, {"content-type": "text/plain"}, b"trouble")
            case "empty":
                self.answer(200, {})
            case "private":
                self.answer(401, {"www-authenticate": 'Bearer realm="private"'})
            case "refuses":
                status = int(path.split("/")[2])
                retry = {"retry-after": "7"} if status in (429, 503) else {}
                self.answer(status, {"content-type": "text/plain", **retry}, b"no")
            case "scopes":
                self.answer(403, {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'})
            case "locked":
                self.answer(401, {"content-type": "application/json"}, b'{"error": "who are you?"}')
            case "endless":
                self.start_events()
                piece = b"data: " + b"x" * 65_530 + b"\n"
                try:
                    while True:
                        self.wfile.write(piece)
                except OSError:
                    self.close_connection = True
            case _:
                self.answer(404, {"content-type": "text/plain"}, b"not here")

    def stream(self) -> None:
        """Sends what `handle_posted` answers."""
        session = secrets.token_hex(8)
        messages = STREAMS[session] = queue.Queue()
        self.start_events()
        try:
            self.wfile.write(f"event: endpoint\ndata: /messages?{session}\n\n".encode())
            while True:
                self.event(messages.get())
        except OSError:
            del STREAMS[session]

    def handle_posted(self, session: str, message: dict[str, Any]) -> None:
        answer = None
        match message.get("method"):
            case "initialize":
                answer = description(message)
            case "tools/list":
                answer = tools(message)
            case "tools/call" if message["params"]["name"] == "fine":
                answer = response(message, "fine")
            case "tools/call":
                return self.answer(503, {"content-type": "text/plain", "retry-after": "7"}, b"busy")
            case _ if "id" in message:
                answer = unknown(message)
        if answer:
            STREAMS[session].put(json.dumps(answer))
        self.answer(202, {})

    def handle_message(self, fault: str, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "initialize":
                self.answer_json(description(message))
            case "tools/list":
                self.answer_json(tools(message))
            case "tools/call" if message["params"]["name"] == "fine":
                self.answer_json(response(message, "fine"))
            case "tools/call":
                self.act(fault, message)
            case None if self.command == "GET" and (last := self.headers.get("last-event-id")):
                # The response to the request whose stream broke: the event ID contains the request ID.
                self.start_events()
                self.event(json.dumps(response({"id": int(last.split("-")[1])}, "resumed")), f"{last}-2")
            case None:
                self.answer(405, {})
            case _ if "id" in message:
                self.answer_json(unknown(message))
            case _:
                self.answer(202, {})

    def act(self, fault: str, message: dict[str, Any]) -> None:
        match fault:
            case "429" | "503":
                self.answer(int(fault), {"content-type": "text/plain"}, b"busy")
            case "dies":
                self.close_connection = True
            case "dies_in_the_body":
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "1000")
                self.end_headers()
                self.wfile.write(b'{"jsonrpc":')
                self.close_connection = True
            case "breaks":
                self.start_events()
                self.wfile.write(b'data: {"jsonrpc": "2.0", ')
            case "resumes":
                self.start_events()
                self.event("", f"event-{message['id']}")
            case "hangs":
                time.sleep(60)
            case "malformed":
                self.answer(200, {"content-type": "application/json"}, b'{"jsonrpc": "2.0", "id": ')
            case "malformed_events":
                self.start_events()
                for data in ["not JSON", "[1, 2]", '{"jsonrpc": "2.0"}']:
                    self.event(data)
                self.event(json.dumps(response(message, "done")))
            case "wrong_id":
                self.answer_json(response({"id": 4711}, "for another"))
            case "wrong_id_in_events":
                self.start_events()
                self.event(json.dumps(response({"id": 4711}, "for another")))
            case "huge":
                self.answer_json(response(message, "x" * HUGE))
            case "huge_event":
                self.start_events()
                self.event(json.dumps(response(message, "x" * HUGE)))
            case "floods":
                self.start_events()
                for count in range(5_000):
                    params = {"level": "info", "data": f"line {count} " + "x" * 80}
                    self.event(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
                self.event(json.dumps(response(message, "done")))
            case _:
                self.answer_json(response(message, "done"))

    do_GET = do_POST = do_DELETE = handle_any

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()

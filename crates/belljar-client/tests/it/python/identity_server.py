"""A server of streamable HTTP with a session for each client, and tools and resources that depend on the user.

It needs the user's token for every request, `initialize` included, unless `OPEN` is set. It uses only the standard
library.
"""

import json
import os
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SEEN: list[dict[str, str]] = []
SESSIONS: dict[str, dict[str, Any]] = {}
CONNECTIONS: list[int] = []
LOCK = threading.Lock()
# Status and Retry-After of the next responses.
REFUSALS: list[tuple[int, str | None]] = []


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        with LOCK:
            CONNECTIONS.append(self.client_address[1])

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, value: Any, headers: dict[str, str] | None = None) -> None:
        self.answer(200, {"content-type": "application/json", **(headers or {})}, json.dumps(value).encode())

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        message = json.loads(body) if body else {}
        match self.path:
            case "/seen":
                return self.answer_json(SEEN)
            case "/sessions":
                return self.answer_json(sorted(session["user"] for session in SESSIONS.values()))
            case "/connections":
                return self.answer_json(len(CONNECTIONS))
            case "/refuse":
                REFUSALS.extend((status, after) for status, after in message)
                return self.answer(204, {})
        headers = {name.lower(): value for name, value in self.headers.items()}
        name = message.get("params", {}).get("name", "") if isinstance(message, dict) else ""
        with LOCK:
            method = message.get("method") or self.command
            meta = message.get("params", {}).get("_meta", {})
            SEEN.append({"method": method, "name": name, "traceparent": meta.get("traceparent", ""), **headers})
        user = headers.get("authorization", "").removeprefix("Bearer ").split("-")[0]
        if os.environ.get("OPEN") is None and not user:
            return self.answer(401, {"www-authenticate": "Bearer"})
        if method not in ("initialize", "GET", "DELETE", "notifications/initialized") and REFUSALS:
            status, after = REFUSALS.pop(0)
            return self.answer(status, {"retry-after": after} if after else {})
        session = SESSIONS.get(headers.get("mcp-session-id", ""))
        if method == "initialize":
            key = uuid.uuid4().hex
            SESSIONS[key] = {"user": user, "notes": []}
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "completions": {}},
                "serverInfo": {"name": "identities", "version": "1"},
            }
            response = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            return self.answer_json(response, {"mcp-session-id": key})
        if self.command == "GET":
            return self.answer(405, {})
        if self.command == "DELETE":
            SESSIONS.pop(headers.get("mcp-session-id", ""), None)
            return self.answer(200, {})
        if "id" not in message:
            return self.answer(202, {})
        if method == "server/discover":
            error = {"code": -32601, "message": "Method not found"}
            return self.answer_json({"jsonrpc": "2.0", "id": message["id"], "error": error})
        if session is None or session["user"] != user:
            return self.answer(404, {})
        result = self.result(method, message["params"], session, user)
        if result is None:
            error = {"code": -32601, "message": "Method not found"}
            return self.answer_json({"jsonrpc": "2.0", "id": message["id"], "error": error})
        self.answer_json({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def result(self, method: str, params: dict[str, Any], session: dict[str, Any], user: str) -> Any:
        schema = {"type": "object"}
        read_only = {"readOnlyHint": True}
        match method:
            case "tools/list":
                own = [{"name": f"{user}s_tool", "inputSchema": schema}]
                look = {"name": "look", "inputSchema": schema, "annotations": read_only}
                return {"tools": [{"name": "note", "inputSchema": schema}, look, *own]}
            case "tools/call" if params["name"] == "note":
                session["notes"].append(params["arguments"]["text"])
                return text(", ".join(session["notes"]))
            case "tools/call":
                return text(f"{user}: {params['name']}")
            case "resources/list":
                return {"resources": [{"uri": f"notes://{user}", "name": user}]}
            case "resources/read":
                return {"contents": [{"uri": params["uri"], "text": f"{user}'s"}]}
            case "prompts/get":
                return {"messages": [{"role": "user", "content": {"type": "text", "text": f"I am {user}"}}]}
            case "completion/complete":
                return {"completion": {"values": [user]}}
            case "example/whoami":
                return {"user": user, "params": params}
        return None

    do_GET = do_POST = do_DELETE = handle_any

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True


if os.environ.get("NODELAY"):
    Handler.disable_nagle_algorithm = True

Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()

"""A server that requires a token, and its authorization server: OAuth 2.1 with registration, PKCE and refresh.

It uses only the standard library. `/mcp` uses streamable HTTP and `/sse` the transport before it. `/seen` lists the
requests to the authorization server, `/expire` invalidates every access token, `/revoke` every refresh token as well,
`/forget` the clients. `/mint` returns an access token, and `/rejections` the number of requests without a valid one.
With the variable `ISSUER`, the authorization server has this URL, and is reached through this server as an HTTP proxy.
"""

import base64
import hashlib
import json
import os
import queue
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

BASE = f"http://127.0.0.1:{os.environ['PORT']}"
ISSUER = os.environ.get("ISSUER", BASE)
SEEN: list[str] = []
CHALLENGES: dict[str, str] = {}
ACCESS: set[str] = set()
REFRESH: set[str] = set()
STREAMS: dict[str, queue.Queue[str]] = {}
CLIENTS: set[str] = set()
REJECTIONS: list[str] = []


def grant(kind: str) -> dict[str, Any]:
    SEEN.append(kind)
    access, refresh = secrets.token_hex(8), secrets.token_hex(8)
    ACCESS.add(access)
    REFRESH.add(refresh)
    return {"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 3600, "scope": "read"}


def reply(message: dict[str, Any]) -> dict[str, Any] | None:
    if "id" not in message:
        return None
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "private", "version": "1"}
            result: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "for your eyes"}]}
        case _:
            error = {"code": -32601, "message": "Method not found"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def is_authorized(self) -> bool:
        if self.headers.get("authorization", "").removeprefix("Bearer ") in ACCESS:
            return True
        REJECTIONS.append(self.path)
        metadata = f"{BASE}/.well-known/oauth-protected-resource"
        self.answer(401, None, {"www-authenticate": f'Bearer resource_metadata="{metadata}"'})
        return False

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        url = urlsplit(self.path)
        match url.path:
            case "/seen":
                self.answer(200, SEEN)
            case "/expire":
                ACCESS.clear()
                self.answer(200)
            case "/revoke":
                ACCESS.clear()
                REFRESH.clear()
                self.answer(200)
            case "/forget":
                CLIENTS.clear()
                self.answer(200)
            case "/rejections":
                self.answer(200, len(REJECTIONS))
            case "/mint":
                self.answer(200, grant("minted"))
            case path if path.startswith("/.well-known/oauth-protected-resource"):
                resource = f"{BASE}{path.removeprefix('/.well-known/oauth-protected-resource') or '/'}"
                metadata = {"resource": resource, "authorization_servers": [ISSUER], "scopes_supported": ["read"]}
                self.answer(200, metadata)
            case "/.well-known/oauth-authorization-server":
                self.answer(200, {
                    "issuer": ISSUER,
                    "authorization_endpoint": f"{ISSUER}/authorize",
                    "token_endpoint": f"{ISSUER}/token",
                    "registration_endpoint": f"{ISSUER}/register",
                    "response_types_supported": ["code"],
                    "grant_types_supported": ["authorization_code", "refresh_token"],
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["none"],
                })  # fmt: skip
            case "/register":
                SEEN.append("registration")
                client = f"client-{len(SEEN)}"
                CLIENTS.add(client)
                self.answer(201, {**json.loads(body), "client_id": client})
            case "/authorize":
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                assert query["code_challenge_method"] == "S256", query
                if query["client_id"] not in CLIENTS:
                    refusal = {"error": "unauthorized_client", "state": query["state"]}
                    return self.answer(302, None, {"location": f"{query['redirect_uri']}?{urlencode(refusal)}"})
                code = secrets.token_hex(8)
                CHALLENGES[code] = query["code_challenge"]
                target = f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
                SEEN.append("consent")
                self.answer(302, None, {"location": target})
            case "/token":
                form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
                if form["grant_type"] == "refresh_token" and form["refresh_token"] in REFRESH:
                    return self.answer(200, grant("refresh"))
                digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                if CHALLENGES.pop(form.get("code", ""), None) == challenge:
                    return self.answer(200, grant("token"))
                self.answer(400, {"error": "invalid_grant"})
            case "/mcp" if self.command == "POST":
                if self.is_authorized():
                    answer = reply(json.loads(body))
                    self.answer(202 if answer is None else 200, answer)
            case "/sse":
                if self.is_authorized():
                    self.stream()
            case "/messages":
                if self.is_authorized():
                    if answer := reply(json.loads(body)):
                        STREAMS[url.query].put(json.dumps(answer))
                    self.answer(202)
            case _:
                self.answer(405 if url.path == "/mcp" else 404)

    def stream(self) -> None:
        session = secrets.token_hex(8)
        messages = STREAMS[session] = queue.Queue()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.wfile.write(f"event: endpoint\ndata: /messages?{session}\n\n".encode())
            while True:
                self.wfile.write(f"event: message\ndata: {messages.get()}\n\n".encode())
        except OSError:
            del STREAMS[session]

    do_GET = do_POST = do_DELETE = handle_any

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()

"""An endpoint of chat completions that responds with the request that it received."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        assert self.path == "/v1/chat/completions" and self.headers["authorization"] == "Bearer key"
        message = {"role": "assistant", "content": f"GOT{body}END"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = json.dumps({"id": "1", "model": "model-that-answered", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()

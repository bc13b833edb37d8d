"""Servers for the tests of network access: HTTP, TLS with good and bad certificates, and other protocols.

Usage: ``servers.py FOLDER``. The folder has the certificates (``NAME.pem`` with the key). It receives
``requests.jsonl`` with a line for each request of HTTP and for each connection to a port that no policy allows. The
ports are printed as JSON; the servers end with standard input.
"""

import json
import socket
import socketserver
import ssl
import sys
import threading
import time
from base64 import b64decode
from pathlib import Path

import http_server

FOLDER = Path(sys.argv[1])


class Log:
    """The file of requests."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def add(self, **fields: object) -> None:
        with self._lock:
            self._file.write(json.dumps(fields) + "\n")
            self._file.flush()


LOG = Log(FOLDER / "requests.jsonl")


class Server(socketserver.ThreadingTCPServer):
    """A server that uses a thread for each connection."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512
    context: ssl.SSLContext | None = None

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores errors: clients of the tests fail on purpose."""

    def finish_request(self, request: socket.socket, client_address: object) -> None:
        if self.context is not None:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        super().shutdown_request(request)


class Server6(Server):
    """A server for IPv6."""

    address_family = socket.AF_INET6


class Echo(socketserver.BaseRequestHandler):
    """Returns each byte, and the number of bytes after the end of the client's stream. The end is recorded."""

    def handle(self) -> None:
        first, count = b"", 0
        try:
            while data := self.request.recv(65536):
                first = first or data[:20]
                count += len(data)
                self.request.sendall(data)
            self.request.sendall(b"[%d]" % count)
        finally:
            LOG.add(ended=first.decode("latin-1"))


class Sink(socketserver.BaseRequestHandler):
    """Reads, and writes nothing."""

    def handle(self) -> None:
        while self.request.recv(65536):
            pass


class Slow(socketserver.BaseRequestHandler):
    """Returns a line half a second after it came."""

    def handle(self) -> None:
        while data := self.request.recv(65536):
            time.sleep(0.5)
            self.request.sendall(data)


class Reset(socketserver.BaseRequestHandler):
    """Resets the connection after the first bytes."""

    def handle(self) -> None:
        self.request.recv(10)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.request.close()


class Canary(socketserver.BaseRequestHandler):
    """Notes that a connection came that no policy allows."""

    def handle(self) -> None:
        LOG.add(canary=self.server.server_address[1])
        self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ncanary")


class Smtp(socketserver.StreamRequestHandler):
    """An SMTP server that accepts mail after STARTTLS and a login."""

    def handle(self) -> None:
        self._say("220 mail.example.com ESMTP")
        encrypted, user = False, ""
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            if verb in ("EHLO", "HELO"):
                features = "AUTH PLAIN" if encrypted else "STARTTLS"
                self._say(f"250-mail.example.com\r\n250 {features}")
            elif verb == "STARTTLS":
                self._say("220 go ahead")
                self.connection = certificate("good").wrap_socket(self.connection, server_side=True)
                self.rfile = self.connection.makefile("rb")
                self.wfile = self.connection.makefile("wb")
                encrypted = True
            elif verb == "AUTH":
                user = b64decode(line.split()[2]).decode().split("\0")[1]
                self._say("235 welcome")
            elif verb == "DATA":
                self._say("354 go on")
                lines = []
                while (line := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                    lines.append(line)
                LOG.add(mail=lines, encrypted=encrypted, user=user)
                self._say("250 accepted")
            elif verb == "QUIT":
                self._say("221 bye")
                break
            else:
                self._say("250 fine")

    def _say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")
        self.wfile.flush()


def certificate(name: str) -> ssl.SSLContext:
    """Returns a context with a certificate of the folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / f"{name}.pem")
    context.set_alpn_protocols(["http/1.1"])
    return context


def start(handler: type, name: str | None = None, host: str = "127.0.0.1") -> int:
    """Starts a server, with TLS if a certificate is named, and returns its port."""
    server = (Server6 if ":" in host else Server)((host, 0), handler)
    server.context = None if name is None else certificate(name)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def unused() -> socket.socket:
    """Returns a socket on whose port nothing listens while it is open: no other socket gets the port."""
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    return probe


def main() -> None:
    http = http_server.handler(LOG.add)
    closed = unused()
    ports = {
        "https": start(http, "good"),
        "other": start(http, "good"),
        "http": start(http),
        "https6": start(http, "good", "::1"),
        "expired": start(http, "expired"),
        "future": start(http, "future"),
        "wrong_name": start(http, "wrong_name"),
        "self_signed": start(http, "self_signed"),
        "unknown": start(http, "unknown"),
        "echo": start(Echo),
        "tls_echo": start(Echo, "good"),
        "silent": start(Sink),
        "silent_tls": start(Sink, "good"),
        "slow": start(Slow),
        "reset": start(Reset),
        "canary": start(Canary),
        "smtp": start(Smtp),
        "closed": closed.getsockname()[1],
    }
    print(json.dumps(ports), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

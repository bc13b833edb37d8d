"""Network access of code by policy, against servers of this process on loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from belljar import ArgumentError, ArgumentTypeError, AsyncSandbox, Connection, Limits, Run, Sandbox, connect
from server import Server

SECRET = "a-secret-of-many-characters"
GET = "import urllib.request\nurllib.request.urlopen(f'http://127.0.0.1:{port}/headers?a=b').read().decode()"


class Handler(BaseHTTPRequestHandler):
    """Responds with the request's headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps(dict(self.headers)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_code_connects_to_what_is_allowed_and_to_nothing_else(port: int) -> None:
    with Sandbox(network=[f"127.0.0.1:{port}"]) as box:
        run = box.run(GET, globals={"port": port}).check()
        assert json.loads(run.value)["Host"] == f"127.0.0.1:{port}"
        (connection,) = run.connections
        assert isinstance(connection, Connection)
        assert (connection.host, connection.port, connection.status) == ("127.0.0.1", port, 200)
        assert (connection.method, connection.path, connection.allowed) == ("GET", "/headers?a=b", True)
        assert connection.bytes_received > len(run.value)

        refused = box.run("import socket\nsocket.create_connection(('api.example.org', 443))")
        assert refused.error is not None
        assert refused.error.name == "PermissionError"
        assert "network access to api.example.org:443 is not allowed" in refused.error.message
        assert f"127.0.0.1:{port}" in refused.error.message
        assert [each.allowed for each in refused.connections] == [False]


def test_limits_bound_connections(port: int) -> None:
    connect = "import socket\nfirst = socket.create_connection(('127.0.0.1', port))\n"
    network = [f"127.0.0.1:{port}"]
    with Sandbox(network=network, limits={"net_connections": 1}) as box:
        second = box.run(f"{connect}socket.create_connection(('127.0.0.1', port))", globals={"port": port})
        assert second.error is not None
        assert "more than 1 connections at once" in second.error.message
    times: list[Limits] = [{"net_idle": 1}, {"net_lifetime": 1}, {"net_time": 1}]
    for limits in times:
        with Sandbox(network=network, limits=limits) as box:
            silent = box.run(f"{connect}first.recv(1)", globals={"port": port})
            assert silent.error is not None
            assert silent.error.name == "TimeoutError", limits
    with Sandbox(network=network, limits={"net_bytes": 100}) as box:
        large = box.run(f"{connect}first.sendall(bytes(1000))\nfirst.recv(1)", globals={"port": port})
        assert large.error is not None
        assert large.error.name == "ConnectionResetError"
    with Sandbox(network=["localhost"], limits={"net_lookups": 1}) as box:
        attempt = "\ntry:\n    socket.create_connection(('localhost', 443))\nexcept OSError:\n    pass"
        run = box.run("import socket" + attempt * 2).check()
        assert run.connections[1].error == "more than 1 look-ups of names"
    with pytest.raises(ArgumentError, match="net_idle"):
        Sandbox(network=network, limits={"net_idle": 0})


def test_runs_and_sessions_narrow_the_network(port: int) -> None:
    with Sandbox(network=["127.0.0.1", f"127.0.0.1:{port}"]) as box:
        ports = {"port": port}
        assert box.run(GET, globals=ports, network=[f"127.0.0.1:{port}"]).ok
        refused = box.run(GET, globals=ports, network=["127.0.0.1:1"])
        assert refused.error is not None
        assert "is not allowed" in refused.error.message
        # Neither can add to the other.
        assert not box.run("import socket; socket.create_connection(('example.org', 443))", network=["*"]).ok

        session = box.session(network=[])
        assert not session.run(GET, globals=ports).ok
        assert not session.fork().run(GET).ok
        assert not box.load(session.dump()).run(GET).ok  # type: ignore[union-attr]
        session.restart()
        assert not session.run(GET, globals=ports).ok
        assert box.session(network={"allow": {f"127.0.0.1:{port}": []}}).run(GET, globals=ports).ok
        assert box.session().run(GET, globals=ports).ok
        for narrow in (box.run, lambda code, network: box.session(network=network)):
            with pytest.raises(ArgumentError, match="network"):
                narrow("1", network={"allow": 7})
            with pytest.raises(ArgumentError, match="certificate authorities"):
                narrow("1", network={"ca": "file.pem"})


def test_runs_and_sessions_narrow_the_network_of_a_server(port: int) -> None:
    server = Server("--toolset", "all", "--allow-net", f"127.0.0.1:{port}")
    try:
        with connect(server.url) as box:
            ports = {"port": port}
            assert box.run(GET, globals=ports).ok
            refused = box.run(GET, globals=ports, network=[])
            assert refused.error is not None
            assert "network access" in refused.error.message
            session = box.session(network=[])
            assert not session.run(GET, globals=ports).ok
            assert not session.fork().run(GET).ok
            assert box.session(network=["*:*"]).run(GET, globals=ports).error is not None
            assert box.session(network=[f"127.0.0.1:{port}"]).run(GET, globals=ports).ok
    finally:
        server.stop()


def test_sandbox_without_a_policy_has_no_network(port: int) -> None:
    with Sandbox() as box:
        run = box.run(GET, globals={"port": port})
        assert run.error is not None
        assert "no network access" in run.error.message
        assert run.connections == []


def test_session_has_the_network_of_its_sandbox(port: int) -> None:
    with Sandbox(network={"allow": [f"127.0.0.1:{port}"]}) as box, box.session() as session:
        connect = f"import http.client\nc = http.client.HTTPConnection('127.0.0.1', {port})\nc.connect()"
        session.run(connect).check()
        request = "c.request('GET', '/')\nresponse = c.getresponse()\nresponse.read()\nresponse.status"
        assert session.run(request).check().value == 200
        # The connection is that of the cell before.
        run = session.run(request).check()
        assert (run.value, len(run.connections)) == (200, 1)
        with session.fork() as fork:
            lost = fork.run("c.request('GET', '/')\nc.getresponse()")
            assert lost.error is not None
            assert lost.error.name == "ConnectionResetError"
            assert fork.run(connect).check().status == "success"
        loaded = box.load(session.dump())
        lost = loaded.run("c.sock.recv(1)")
        assert lost.error is not None
        assert lost.error.name == "ConnectionResetError"


def test_async_requests_run_side_by_side(port: int) -> None:
    code = f"""
import asyncio

async def get():
    reader, writer = await asyncio.open_connection("127.0.0.1", {port})
    writer.write(b"GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nConnection: close\\r\\n\\r\\n")
    return (await reader.read()).startswith(b"HTTP/1.1 200")

sum(await asyncio.gather(*(get() for _ in range(50))))
"""

    async def run() -> Run:
        async with AsyncSandbox(network=[f"127.0.0.1:{port}"]) as box:
            return (await box.run(code)).check()

    result = asyncio.run(run())
    assert (result.value, len(result.connections)) == (50, 50)


def test_secret_is_a_placeholder_that_is_not_replaced_without_tls(port: int) -> None:
    policy = {"allow": [f"api.example.com:{port}"], "resolve": {"api.example.com": "127.0.0.1"}}
    with Sandbox(network=policy, secrets={f"TOKEN@api.example.com:{port}": SECRET}) as box:
        code = f"""
import os, urllib.request
request = urllib.request.Request("http://api.example.com:{port}/", headers={{"X-Token": os.environ["TOKEN"]}})
received = urllib.request.urlopen(request).read().decode()
os.environ["TOKEN"] in received, {SECRET[:10]!r} + {SECRET[10:]!r}
"""
        for run in (box.run(code), box.session().run(code)):
            assert run.check().value == (True, "*" * len(SECRET))


def test_large_values_and_arguments_of_functions_are_without_secrets(port: int) -> None:
    received: list[object] = []

    def take(value: object) -> None:
        received.append(value)

    # What takes more than 4096 bytes crosses as a buffer.
    code = f"""
secret = {SECRET[:10]!r} + {SECRET[10:]!r}
large = ("." * 5000 + secret).encode()
await take(secret)
await take([large])
large, {{"a": bytearray(large)}}
"""
    masked = b"." * 5000 + b"*" * len(SECRET)
    policy = [f"api.example.com:{port}"]
    with Sandbox(network=policy, secrets={f"TOKEN@api.example.com:{port}": SECRET}, tools=[take]) as box:
        for run in (box.run(code), box.session().run(code)):
            assert run.check().value == (masked, {"a": masked})
    assert received == ["*" * len(SECRET), [masked]] * 2


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"network": ["http://example.com"]}, ArgumentError, "http://example.com"),
        ({"network": {"alow": []}}, ArgumentError, "alow"),
        ({"network": "example.com"}, ArgumentTypeError, "neither a policy nor a list"),
        ({"network": ["a.example"], "secrets": {"TOKEN": SECRET}}, ArgumentError, "NAME@HOST"),
        ({"network": ["a.example"], "secrets": {"TOKEN@b.example": SECRET}}, ArgumentError, "b.example"),
        ({"network": ["a.example"], "secrets": {"TOKEN@a.example": "short"}}, ArgumentError, "TOKEN"),
        ({"network": {"allow": [], "ca": "/does/not/exist"}}, ArgumentError, "/does/not/exist"),
    ],
)
def test_wrong_options_name_the_argument(options: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match="network|secrets") as raised:
        Sandbox(**options)
    assert text in str(raised.value)
    assert SECRET not in str(raised.value)

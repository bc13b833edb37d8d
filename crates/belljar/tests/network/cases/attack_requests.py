# Ways to send requests that the rules do not allow. `rules.example.com` allows GET /hello, and POST /request?kind=good
# with the header `X-Team: a`. Ports with rules or secrets carry HTTP only.
import re
import socket
import ssl

HOST = "rules.example.com"


def exchange(data, host=HOST, port=PORT_https, secure=True, parts=1, time_limit=60):
    """Sends bytes and returns what comes back."""
    plain = socket.create_connection((host, port), timeout=60)
    if secure:
        plain = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    with plain:
        try:
            size = -(-len(data) // parts)
            for start in range(0, len(data), size):
                plain.sendall(data[start : start + size])
            received = b""
            plain.settimeout(time_limit)
            while part := plain.recv(65536):
                received += part
        except OSError as error:
            return type(error).__name__.encode()
    return received


def attempt(data, **options):
    """Prints the statuses that come back, or the error."""
    if isinstance(data, str):
        data = data.replace("\n", "\r\n").encode("latin-1")
    received = exchange(data, **options)
    statuses = re.findall(r"HTTP/1.. ([0-9]+) ", received.decode("latin-1"))
    print(*statuses or [received.decode("latin-1")])


CLOSE = f"Host: {HOST}\nConnection: close\n"

# %% The rules hold, as a check of these programs
attempt(f"GET /hello HTTP/1.1\n{CLOSE}\n")
attempt(f"GET /headers HTTP/1.1\n{CLOSE}\n")
#> 200
#> 403
# %% A path that another path hides: dots
for path in ("/hello/../headers", "/./headers", "/hello/%2e%2e/headers", "//headers", "/hello/..%2fheaders"):
    attempt(f"GET {path} HTTP/1.1\n{CLOSE}\n")
#> 403
#> 403
#> 403
#> 403
#> 403
# %% A path in other spellings
for path in (
    "/%68eaders",
    "/HEADERS",
    "/headers#/hello",
    "/hello;/headers",
    "/hello%00",
    "/hello\\..\\headers",
):
    attempt(f"GET {path} HTTP/1.1\n{CLOSE}\n")
#> 403
#> 403
#> …
#> 403
#> …
#> …
# %% Another method in other spellings
for method in ("DELETE", "get", "GET\t", "POST", "PATCH", "TRACE", "CONNECT"):
    attempt(f"{method} /hello HTTP/1.1\n{CLOSE}Content-Length: 0\n\n")
#> 403
#> 403
#> ConnectionResetError
#> 403
#> 403
#> 403
#> ConnectionResetError
# %% A path in characters that servers map to dots and slashes
for path in (
    "/hello/%ef%bc%8e%ef%bc%8e/headers",
    "/hello/%e2%80%a5/headers",
    "/hello%ef%bc%8fx",
    "/hello/%c0%ae%c0%ae/headers",
    "/hello/%u002e%u002e/headers",
    "/hello/..%20/headers",
    "/hello/.../headers",
):
    attempt(f"GET {path} HTTP/1.1\n{CLOSE}\n")
#> 403
#> 403
#> 403
#> 403
#> 403
#> 403
#> 403
# %% A path in absolute form, with dots and another case
for path in (
    f"https://{HOST}:PORT_https/headers",
    f"HTTPS://{HOST.upper()}/hello/../headers",
    f"https://{HOST}//headers",
):
    attempt(f"GET {path} HTTP/1.1\n{CLOSE}\n")
#> 403
#> 403
#> 403
# %% Another method by a header
for header in (
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    "X_HTTP_Method_Override",
    "x-original-method",
):
    attempt(f"GET /hello HTTP/1.1\n{CLOSE}{header}: DELETE\n\n")
#> 403
#> 403
#> 403
#> 403
#> 403
# %% Another method by a parameter
for query in ("_method=DELETE", "_METHOD=DELETE", "%5Fmethod=DELETE", "a=b&_method=DELETE"):
    attempt(f"GET /hello?{query} HTTP/1.1\n{CLOSE}\n")
#> 403
#> 403
#> 403
#> 403
# %% Another path or host by a header
for header in (
    "X-Original-URL: /headers",
    "X-Rewrite-URL: /headers",
    "X-Forwarded-Uri: /headers",
    "X-Forwarded-Host: www.example.com",
    "Forwarded: host=www.example.com",
):
    attempt(f"GET /hello HTTP/1.1\n{CLOSE}{header}\n\n")
#> 403
#> 403
#> 403
#> 403
#> 403
# %% A second request in the body of the first, by two framings
body = f"0\n\nGET /headers HTTP/1.1\n{CLOSE}\n"
length = len(body.replace("\n", "\r\n"))
attempt(f"GET /hello HTTP/1.1\nHost: {HOST}\nContent-Length: {length}\nTransfer-Encoding: chunked\n\n{body}")
#> ConnectionResetError
# %% Framings that servers read differently
for framing in (
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding: chunked\nTransfer-Encoding: chunked",
    "Transfer-Encoding : chunked",
    "Content-Length: 5\nContent-Length: 6",
    "Content-Length: +5",
    "Content-Length: 0x5",
    "Content-Length: 5, 5, 6",
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
):
    attempt(f"POST /request?kind=good HTTP/1.1\n{CLOSE}X-Team: a\n{framing}\n\n12345")
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
# %% Chunks that servers read differently
for chunk in (
    "5;ext\n12345\n0\n\n",
    "5\n123456\n0\n\n",
    "0x5\n12345\n0\n\n",
    "-5\n12345\n0\n\n",
    "5 \n12345\n0\n\n",
):
    attempt(f"POST /request?kind=good HTTP/1.1\n{CLOSE}X-Team: a\nTransfer-Encoding: chunked\n\n{chunk}")
#> 200
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> …
# %% A second request after the first, which the rules do not allow
attempt(f"GET /hello HTTP/1.1\nHost: {HOST}\n\nGET /headers HTTP/1.1\n{CLOSE}\n")
#> 200 403
# %% Requests of several kinds in one write, of which one is not allowed
attempt(
    f"POST /request?kind=good HTTP/1.1\nHost: {HOST}\nX-Team: a\nContent-Length: 2\n\nab"
    f"GET /hello HTTP/1.1\nHost: {HOST}\n\nDELETE /hello HTTP/1.1\nHost: {HOST}\n\nGET /hello HTTP/1.1\n{CLOSE}\n"
)
#> 200 200 403
# %% A request in single bytes
attempt(f"GET /headers HTTP/1.1\n{CLOSE}\n", parts=60)
#> 403
# %% Headers by line breaks that servers may accept
for line_break in (b"\n", b"\r", b"\r\n ", b"\x85", b"\x0b", b"\0"):
    attempt(b"GET /hello HTTP/1.1\r\nHost: rules.example.com\r\nConnection: close\r\nX: a" + line_break + b"X-Team: a\r\n\r\n")
#> …
#> ConnectionResetError
#> ConnectionResetError
#> …
#> ConnectionResetError
#> ConnectionResetError
# %% A header that a rule needs, twice or with another spelling
for header in (
    "X-Team: b\nX-Team: a",
    "X-Team: a\nX-Team: b",
    "X_Team: a",
    "X-Team : a",
    "X-Team: A",
    "X-Team: a, b",
):
    attempt(f"POST /request?kind=good HTTP/1.1\n{CLOSE}{header}\nContent-Length: 0\n\n")
#> 403
#> 403
#> 403
#> ConnectionResetError
#> 403
#> 403
# %% A header that a rule needs, and a second one that servers read as the same
for header in ("X-Team: a\nX_Team: b", "X_TEAM: b\nX-Team: a", "X_Team: b\nX-TEAM: a"):
    attempt(f"POST /request?kind=good HTTP/1.1\n{CLOSE}{header}\nContent-Length: 0\n\n")
#> 403
#> 403
#> 403
# %% A header that a rule needs, continued in the next line
for second in (" b", "\tb", " \n b"):
    attempt(f"POST /request?kind=good HTTP/1.1\n{CLOSE}X-Team: a\n{second}\nContent-Length: 0\n\n")
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
# %% A header that a rule needs, which is removed on its way
attempt(f"POST /request?kind=good HTTP/1.1\nHost: {HOST}\nConnection: close, x-team\nX-Team: a\nContent-Length: 0\n\n")
#> 200
# %% A parameter that a rule needs, twice
for query in ("kind=bad&kind=good", "kind=good&kind=bad", "kind=good;kind=bad", "KIND=good", "kind[]=good"):
    attempt(f"POST /request?{query} HTTP/1.1\n{CLOSE}X-Team: a\nContent-Length: 0\n\n")
#> 403
#> 403
#> 403
#> 403
#> 403
# %% A parameter that a rule needs, and a second one that servers read as the same
for query in (
    "kind=good&KIND=bad",
    "kind=good&kind[]=bad",
    "kind=good&%20kind=bad",
    "kind=good&kind%00=bad",
    "kind=good&kin%u0064=bad",
):
    attempt(f"POST /request?{query} HTTP/1.1\n{CLOSE}X-Team: a\nContent-Length: 0\n\n")
#> 403
#> 403
#> 403
#> 403
#> 403
# %% A parameter that a rule needs, behind a second question mark or an encoded one
for target in (
    "/request%3Fkind=good",
    "/request?x?kind=good",
    "/request?kind%3Dgood",
    "/request?%26kind=good",
):
    attempt(f"POST {target} HTTP/1.1\n{CLOSE}X-Team: a\nContent-Length: 0\n\n")
#> 403
#> 403
#> 403
#> 403
# %% A Host unlike the connection
for host in (
    "www.example.com",
    "api.example.com",
    "rules.example.com:1",
    "rules.example.com@evil",
    "",
    "127.0.0.1",
):
    attempt(f"GET /hello HTTP/1.1\nHost: {host}\nConnection: close\n\n")
attempt("GET /hello HTTP/1.1\nConnection: close\n\n")
attempt(f"GET /hello HTTP/1.1\nHost: www.example.com\n{CLOSE}\n")
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
# %% A target on another host
for target in (
    "https://www.example.com/hello",
    "http://rules.example.com/hello",
    "www.example.com:443",
    "hello",
):
    attempt(f"GET {target} HTTP/1.1\n{CLOSE}\n")
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
#> ConnectionResetError
# %% Another name in TLS than that of the connection
plain = socket.create_connection((HOST, PORT_https), timeout=60)
try:
    secure = ssl.create_default_context().wrap_socket(plain, server_hostname="keys.example.com")
    secure.sendall(b"GET /headers HTTP/1.1\r\nHost: keys.example.com\r\nConnection: close\r\n\r\n")
    print(secure.recv(1000)[:12])
except OSError as error:
    print(type(error).__name__)
#> …
# %% Other protocols by TLS: HTTP/2
context = ssl.create_default_context()
context.set_alpn_protocols(["h2", "http/1.1"])
plain = socket.create_connection((HOST, PORT_https), timeout=60)
with context.wrap_socket(plain, server_hostname=HOST) as secure:
    print(secure.selected_alpn_protocol())
attempt(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(50))
#> http/1.1
#> ConnectionResetError
# %% Other protocols by an upgrade: HTTP/2 and others
for protocol in ("h2c", "TLS/1.0", "other"):
    data = f"GET /hello HTTP/1.1\nHost: {HOST}\nConnection: Upgrade, HTTP2-Settings\nUpgrade: {protocol}\n"
    attempt(f"{data}HTTP2-Settings: AAMAAABk\n\nGET /headers HTTP/1.1\n{CLOSE}\n")
#> 200 403
#> 200 403
#> 200 403
# %% A WebSocket that the server does not agree to
key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\n"
attempt(
    f"GET /hello HTTP/1.1\nHost: {HOST}\nConnection: Upgrade\nUpgrade: websocket\n{key}\n"
    f"GET /headers HTTP/1.1\n{CLOSE}\n"
)
#> 200 403
# %% A protocol that is not HTTP on a port with rules
attempt(b"*1\r\n$4\r\nPING\r\n")
attempt(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))
attempt(b"SSH-2.0-client\r\n", time_limit=0.5)
attempt(b"SSH-2.0-client\r\n\r\n")
#> ConnectionResetError
#> ConnectionResetError
#> TimeoutError
#> ConnectionResetError
# %% TLS that the host does not make
attempt(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), secure=False)
#> ConnectionResetError
# %% HTTP/0.9, HTTP/1.0 and versions that do not exist
attempt(b"GET /headers\r\n", time_limit=0.5)
attempt(b"GET /headers\r\n\r\n")
attempt(f"GET /headers HTTP/1.0\n{CLOSE}\n")
attempt(f"GET /headers HTTP/1.2\n{CLOSE}\n")
attempt(f"GET /headers HTTP/3\n{CLOSE}\n")
#> TimeoutError
#> ConnectionResetError
#> 403
#> ConnectionResetError
#> ConnectionResetError
# %% Heads that grow without end
attempt(b"GET /hello HTTP/1.1\r\nHost: rules.example.com\r\n" + b"X: " + b"y" * 1_000_000)
attempt(b"GET /" + b"h" * 1_000_000)
#> ConnectionResetError
#> ConnectionResetError
# %% Requests before TLS, and TLS within TLS
plain = socket.create_connection((HOST, PORT_https), timeout=60)
plain.sendall(b"GET /hello HTTP/1.1\r\n")
try:
    ssl.create_default_context().wrap_socket(plain, server_hostname=HOST)
    print("TLS")
except OSError as error:
    print("refused")
plain = socket.create_connection((HOST, PORT_https), timeout=60)
secure = ssl.create_default_context().wrap_socket(plain, server_hostname=HOST)
again = socket.socket(fileno=secure.detach())
again.settimeout(60)
try:
    ssl.create_default_context().wrap_socket(again, server_hostname="www.example.com")
    print("TLS")
except OSError as error:
    print("refused")
#> refused
#> refused
# %% Trailers of chunks that become headers
attempt(
    f"POST /request?kind=good HTTP/1.1\n{CLOSE}X-Team: a\nTransfer-Encoding: chunked\nTrailer: X-Team\n\n"
    "0\nX-Team: b\nHost: evil.example\n\n"
)
#> 200

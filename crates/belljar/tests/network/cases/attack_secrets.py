# Ways to read the secrets `TOKEN`, for `api.example.com` on one port, and `KEY`, which a rule sends to
# `keys.example.com`. The output is checked for the values and their usual encodings.
import json
import os
import socket
import ssl
import sys
import urllib.error
import urllib.request
from base64 import b64decode, b64encode

API = "https://api.example.com:PORT_https"
TOKEN = os.environ["TOKEN"]


def get(url, context=None, data=None, method=None, **headers):
    """Returns the answer to a request."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        return urllib.request.urlopen(request, timeout=60, context=context)
    except urllib.error.HTTPError as error:
        return error


def read(*args, **options):
    return get(*args, **options).read()


def has_placeholder(data):
    """Prints whether a server received the placeholder, and not what it is for."""
    print(TOKEN.encode() in data)


# %% Environment variables, arguments and files of the host
print(len(TOKEN) >= 24, "TEST_TOKEN" in os.environ, "KEY" in os.environ)
for path in ("/proc/self/environ", "/proc/1/environ", "/proc/self/cmdline"):
    try:
        print(open(path, "rb").read())
    except OSError as error:
        print(type(error).__name__)
#> True False True
#> FileNotFoundError
#> FileNotFoundError
#> FileNotFoundError
# %% The environment as the interpreter received it
import posix

print([value for value in posix.environ.values() if b"s3cret" in value], posix.environ[b"TOKEN"] == TOKEN.encode())
#> [] True
# %% The memory itself, by ctypes
import ctypes

read(f"{API}/digest", Authorization=TOKEN)
memory = bytearray(ctypes.string_at(1024, 64 << 20))
# The whole is nowhere in the memory but for the object that is looked for, which is made after the copy.
print(memory.count(TOKEN.encode()) > 0, memory.count(bytes(reversed(b"eulaV/terc3s"))))
#> True 0
# %% Calls of the host
import belljar_host

names = [name for name in dir(belljar_host)]
print("s3cret" in str(names))
#! ModuleNotFoundError
# %% The token of TLS does not show secrets
code = [module for name, module in sys.modules.items() if name.endswith("host") and hasattr(module, "call")]
for module in code:
    for name in ("network_token", "network_allowed", "network_refusal", "network_secrets", "secrets", "environment"):
        try:
            print(name, "s3cret" in str(module.call(name)))
        except Exception as error:
            print(name, "s3cret" in str(error))
print("done")
#> network_token False
#> network_allowed False
#> network_refusal False
#> network_secrets False
#> secrets False
#> environment False
#> done
# %% An answer with the value, as it is
print(read(f"{API}/return/plain", Authorization=f"Bearer {TOKEN}").strip(b"[*]"))
#> b''
# %% The value in pieces of one letter
print(read(f"{API}/return/split", Authorization=f"Bearer {TOKEN}").strip(b"[*]"))
#> b''
# %% The value in two halves with a pause between them
text = read(f"{API}/return/slow", Authorization=f"Bearer {TOKEN}")
print(b"s3cret" in text or b"tests" in text)
#> False
# %% Ranges of a body that has the value
for area in ("bytes=1-5", "bytes=0-0,5-9", "bytes=-5"):
    text = read(f"{API}/return/partial", Authorization=f"Bearer {TOKEN}", Range=area)
    print(text.strip(b"[*]"))
#> b''
#> b''
#> b''
# %% Compressed by methods that the host does not know
for coding in ("br", "zstd", "compress", "gzip;q=1, br", "*"):
    headers = json.loads(read(f"{API}/headers", Accept_Encoding=coding))
    print(headers["accept-encoding"])
#> identity
#> identity
#> identity
#> identity
#> identity
# %% Compressed although the request did not allow it
for form in ("gzip", "deflate"):
    print(read(f"{API}/return/{form}", Authorization=f"Bearer {TOKEN}").strip(b"[*]"))
#> b''
#> b''
# %% Headers, cookies, redirects, reasons and trailers of answers
for form in ("header", "cookie", "location", "reason", "trailer", "error", "informational"):
    try:
        answer = get(f"{API}/return/{form}", Authorization=f"Bearer {TOKEN}")
        print(form, "s3cret" in f"{answer.headers} {answer.reason} {answer.url} {answer.read()}")
    except (OSError, ValueError) as error:
        print(form, "s3cret" in str(error))
#> header False
#> cookie False
#> location False
#> reason False
#> trailer False
#> error False
#> informational False
# %% Base64 at each position, of standard and URL alphabets
for before in ("", "a", "ab", "abc", "abcd"):
    text = read(f"{API}/return/base64?before={before}", Authorization=f"Bearer {TOKEN}")
    print(b"s3cret" in b64decode(text.replace(b"*", b"A") + b"=" * (-len(text) % 4)))
#> False
#> False
#> False
#> False
#> False
# %% A raw connection that reads what comes before parsing
plain = socket.create_connection(("api.example.com", PORT_https), timeout=60)
secure = ssl.create_default_context().wrap_socket(plain, server_hostname="api.example.com")
secure.sendall(
    f"GET /return/reason HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer {TOKEN}\r\n"
    "Connection: close\r\n\r\n".encode()
)
data = b""
try:
    while part := secure.recv(1):
        data += part
except OSError:
    pass
print(b"s3cret" in data)
#> False
# %% A WebSocket that returns the value
plain = socket.create_connection(("api.example.com", PORT_https), timeout=60)
secure = ssl.create_default_context().wrap_socket(plain, server_hostname="api.example.com")
secure.sendall(
    f"GET /websocket HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer {TOKEN}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
)
secure.sendall(b"\x81\x85\0\0\0\0token")
data = b""
while not data.endswith(b"*" * 8):
    data += secure.recv(100)
print(b"s3cret" in data)
#> False
# %% The value over plain HTTP
has_placeholder(read("http://api.example.com:PORT_http/headers", Authorization=TOKEN))
#> True
# %% The value to another port of the same host
has_placeholder(read("https://api.example.com:PORT_other/headers", Authorization=TOKEN))
#> True
# %% The value to another host
for host in ("www.example.com:PORT_https", "sub.wild.example.com:PORT_https", "[::1]:PORT_https6"):
    has_placeholder(read(f"https://{host}/headers", Authorization=TOKEN))
#> True
#> True
#> True
# %% The value to a host without a verified certificate
context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
has_placeholder(read(f"{API}/headers", context=context, Authorization=TOKEN))
#> True
# %% The value to a server whose certificate only the code trusts
pem = ssl.get_server_certificate(("api.example.com", PORT_self_signed))
context = ssl.create_default_context(cadata=pem)
has_placeholder(read("https://api.example.com:PORT_self_signed/headers", context=context, Authorization=TOKEN))
#> True
# %% The value to the name of another host on the same connection
plain = socket.create_connection(("www.example.com", PORT_https), timeout=60)
try:
    ssl.create_default_context().wrap_socket(plain, server_hostname="api.example.com")
    print("TLS")
except PermissionError:
    print("refused")
plain = socket.create_connection(("www.example.com", PORT_https), timeout=60)
secure = ssl.create_default_context().wrap_socket(plain, server_hostname="www.example.com")
secure.sendall(f"GET /headers HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: {TOKEN}\r\n\r\n".encode())
try:
    print(secure.recv(5000))
except ConnectionResetError:
    print("reset")
#> refused
#> reset
# %% The value in the path, the query and the body
answer = json.loads(read(f"{API}/request?q={TOKEN}", data=f"token={TOKEN}".encode()))
print(answer["query"]["q"] == TOKEN, answer["body"] == f"token={TOKEN}")
#> True True
# %% The value in the name of a header, in Host and in the method
for line in (f"{TOKEN}: x", f"Host: {TOKEN}", f"X: y\r\n{TOKEN}: z"):
    plain = socket.create_connection(("api.example.com", PORT_https), timeout=60)
    secure = ssl.create_default_context().wrap_socket(plain, server_hostname="api.example.com")
    secure.sendall(f"GET /headers HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n{line}\r\n\r\n".encode())
    try:
        data = b""
        while part := secure.recv(5000):
            data += part
        print(b"s3cret" in data)
    except OSError:
        print(False)
#> False
#> False
#> False
# %% Other spellings of the placeholder are not replaced
for spelling in (TOKEN.lower(), TOKEN[:-1], TOKEN[::-1], b64encode(TOKEN.encode()).decode(), TOKEN[0] + " " + TOKEN[1:]):
    print(json.loads(read(f"{API}/headers", X_Text=spelling))["x-text"] == spelling)
#> True
#> True
#> True
#> True
#> True
# %% A header that is continued in the next line
plain = socket.create_connection(("api.example.com", PORT_https), timeout=60)
secure = ssl.create_default_context().wrap_socket(plain, server_hostname="api.example.com")
secure.sendall(f"GET /headers HTTP/1.1\r\nHost: api.example.com\r\nX: a\r\n {TOKEN}\r\n\r\n".encode())
try:
    print(secure.recv(100))
except ConnectionResetError:
    print("reset")
#> reset
# %% The header of a rule, replaced or doubled by the code
KEYS = "https://keys.example.com:PORT_https"
for name in ("Authorization", "authorization", "AUTHORIZATION"):
    request = urllib.request.Request(f"{KEYS}/headers")
    request.headers[name] = "mine"
    print(json.loads(urllib.request.urlopen(request).read())["authorization"].strip("*"))
#> Bearer 
#> Bearer 
#> Bearer 
# %% The header of a rule, removed on its way by Connection
answer = json.loads(read(f"{KEYS}/headers" if "KEYS" in globals() else "https://keys.example.com:PORT_https/headers"))
print(answer["authorization"].strip("*"))
plain = socket.create_connection(("keys.example.com", PORT_https), timeout=60)
secure = ssl.create_default_context().wrap_socket(plain, server_hostname="keys.example.com")
secure.sendall(b"GET /headers HTTP/1.1\r\nHost: keys.example.com\r\nConnection: close, authorization\r\n\r\n")
data = b""
while part := secure.recv(5000):
    data += part
print(b"Bearer *" in data)
#> Bearer 
#> True
# %% The secret of a rule over plain HTTP and without verification
print(get("http://keys.example.com:PORT_http/headers").status)
print(get("https://keys.example.com:PORT_https/headers", context=ssl._create_unverified_context()).status)
#> 403
#> 403
# %% The placeholder of one secret for the host of the other
print(json.loads(read("https://keys.example.com:PORT_https/headers", X_Text=TOKEN))["x-text"] == TOKEN)
print(json.loads(read(f"{API}/headers", X_Text=os.environ["KEY"]))["x-text"] == os.environ["KEY"])
#> True
#> True
# %% Guesses of the value are not confirmed by the host
value = "s3cret/V" + 'alue+of=the"tests"?&%~42'
# A guess in a request is returned as it is, unless it is the value.
print(read(f"{API}/request", data=b"guess").find(b"guess") > 0)
#> True
# %% Errors of TLS and of connections name no secret
for url in ("https://api.example.com:PORT_expired/", "https://api.example.com:PORT_closed/"):
    try:
        get(url, Authorization=TOKEN)
    except OSError as error:
        print("s3cret" in repr(error))
#> False
#> False
# %% TRACE and OPTIONS, which return requests
for method in ("TRACE", "OPTIONS"):
    print(b"s3cret" in read(f"{API}/headers", method=method, Authorization=TOKEN))
#> False
#> False
# %% A key of the session that the library logs
print(ssl.create_default_context().keylog_filename, "SSLKEYLOGFILE" in os.environ)
context = ssl.create_default_context()
context.keylog_filename = "keys.log"
read(f"{API}/digest", context=context, Authorization=TOKEN)
print(os.path.exists("keys.log") and open("keys.log").read())
#> None False
#> False

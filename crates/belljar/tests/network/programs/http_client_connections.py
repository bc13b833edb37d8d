"""http.client: kept connections, chunks in both directions, and answers that are cut off."""

import hashlib
import http.client
import json

connection = http.client.HTTPSConnection("api.example.com", PORT_https, timeout=120)
clients = set()
for _ in range(5):
    connection.request("GET", "/hello")
    clients.add(json.load(connection.getresponse())["client"])
assert len(clients) == 1, clients

connection.request("GET", "/chunks?count=100")
response = connection.getresponse()
assert response.headers["Transfer-Encoding"] == "chunked"
assert response.read().count(b"\n") == 100

parts = [bytes([index]) * 1000 for index in range(50)]
connection.request("POST", "/upload", body=iter(parts), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
answer = json.load(connection.getresponse())
assert answer == {"count": 50_000, "digest": hashlib.sha256(b"".join(parts)).hexdigest()}

connection.request("HEAD", "/csv")
response = connection.getresponse()
assert response.read() == b"" and response.headers["Content-Length"] == "19"
connection.request("OPTIONS", "/status/204")
assert connection.getresponse().status == 204
connection.close()

connection = http.client.HTTPConnection("api.example.com", PORT_http, timeout=120)
connection.request("GET", "/cut")
try:
    connection.getresponse().read()
    raise AssertionError
except (http.client.IncompleteRead, ConnectionResetError):
    pass

connection = http.client.HTTPConnection("api.example.com", PORT_http, timeout=120)
connection.request("GET", "/hello")
address = connection.sock.getpeername()
assert address[1] == PORT_http and connection.sock.getsockname()[1] > 0
connection.close()

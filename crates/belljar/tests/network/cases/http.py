import gzip
import hashlib
import http.client
import socket
import urllib.error
import urllib.request

BASE = "https://api.example.com:PORT_https"
PLAIN = "http://api.example.com:PORT_http"
OTHER = "https://api.example.com:PORT_other"

# %% A large download has the right bytes
for base in (BASE, OTHER, PLAIN):
    with urllib.request.urlopen(f"{base}/bytes?count=20000000") as response:
        print(hashlib.file_digest(response, "sha256").hexdigest() == response.headers["X-Digest"])
#> True
#> True
#> True
# %% A large upload has the right bytes
import json

data = bytes(range(256)) * 40_000
for base in (BASE, OTHER, PLAIN):
    with urllib.request.urlopen(f"{base}/upload", data=data) as response:
        print(json.load(response)["digest"] == hashlib.sha256(data).hexdigest())
#> True
#> True
#> True
# %% Compressed answers
for base in (BASE, OTHER):
    request = urllib.request.Request(f"{base}/gzip", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request) as response:
        data = response.read()
        if response.headers["Content-Encoding"] == "gzip":
            data = gzip.decompress(data)
        print(data[:10], len(data))
#> b'compressed' 1600
#> b'compressed' 1600
# %% Endless headers end in an error
for base in (BASE, PLAIN):
    try:
        urllib.request.urlopen(f"{base}/endless-headers", timeout=120)
    except (OSError, http.client.HTTPException) as error:
        print("error")
#> error
#> error
# %% A compressed answer that grows without end is refused where secrets are scrubbed
try:
    response = urllib.request.urlopen(f"{BASE}/bomb", timeout=60)
    while len(response.read(1 << 20)):
        pass
    print("end")
except (OSError, http.client.HTTPException) as error:
    print("error")
#> error
# %% An answer that is not HTTP
for base in (BASE, PLAIN):
    try:
        urllib.request.urlopen(f"{base}/garbage", timeout=120)
    except (OSError, http.client.HTTPException) as error:
        print("error")
#> error
#> error
# %% A short answer is an error
for base in (BASE, PLAIN):
    try:
        urllib.request.urlopen(f"{base}/cut", timeout=120).read()
    except (OSError, http.client.IncompleteRead) as error:
        print("error")
#> error
#> error
# %% Several requests in one write
with socket.create_connection(("api.example.com", PORT_http), timeout=120) as plain:
    request = b"GET /csv HTTP/1.1\r\nHost: api.example.com:PORT_http\r\n"
    plain.sendall((request + b"\r\n") * 3 + request + b"Connection: close\r\n\r\n")
    print(plain.makefile("rb").read().count(b"HTTP/1.1 200"))
#> 4
# %% An upload that waits for permission to continue
connection = http.client.HTTPSConnection("api.example.com", PORT_https, timeout=120)
connection.putrequest("POST", "/upload")
connection.putheader("Content-Length", "5")
connection.putheader("Expect", "100-continue")
connection.endheaders()
connection.send(b"12345")
print(connection.getresponse().read()[:11])
#> b'{"count": 5'

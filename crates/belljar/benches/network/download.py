"""Measures a large download over TLS, by `http.client`. Prints its seconds."""

import http.client
import json
import sys
import time
from urllib.parse import urlsplit

url, count = urlsplit(sys.argv[1]), int(sys.argv[2])
connection = http.client.HTTPSConnection(url.hostname, url.port)
begin = time.perf_counter()
connection.request("GET", f"/bytes?count={count}")
response = connection.getresponse()
received = 0
buffer = bytearray(1 << 18)
while size := response.readinto(buffer):
    received += size
seconds = time.perf_counter() - begin
assert received == count, received
print(json.dumps([seconds]))

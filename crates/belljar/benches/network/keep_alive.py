"""Measures GET requests of 1 KB over one connection with TLS, by `requests`. Prints seconds of each."""

import json
import sys
import time

import requests

url, count = sys.argv[1] + "/bytes?count=1024", int(sys.argv[2])
times = []
with requests.Session() as session:
    for _ in range(20):
        session.get(url)
    for _ in range(count):
        begin = time.perf_counter()
        answer = session.get(url)
        times.append(time.perf_counter() - begin)
        assert len(answer.content) == 1024
print(json.dumps(times))

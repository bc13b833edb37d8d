"""urllib3: pools, retries, streams and time limits."""

import urllib3

BASE = "https://api.example.com:PORT_https"
http = urllib3.PoolManager(timeout=120.0)

assert http.request("GET", f"{BASE}/hello").json()["hello"] == "world"
assert len({http.request("GET", f"{BASE}/hello").json()["client"] for _ in range(5)}) == 1
assert http.request("POST", f"{BASE}/request", json={"a": 1}).json()["body"] == '{"a":1}'
assert http.request("GET", "https://www.example.com:PORT_https/gzip").data.startswith(b"compressed text")
response = http.request("GET", f"{BASE}/bytes?count=1000000", preload_content=False)
assert sum(len(chunk) for chunk in response.stream(4096)) == 1_000_000
assert urllib3.request("GET", "http://api.example.com:PORT_http/csv").status == 200

try:
    http.request("GET", f"{BASE}/delay?seconds=5", timeout=urllib3.Timeout(connect=120, read=0.3), retries=False)
    raise AssertionError
except urllib3.exceptions.ReadTimeoutError:
    pass

try:
    http.request("GET", "https://api.example.com:PORT_self_signed/", retries=False)
    raise AssertionError
except urllib3.exceptions.SSLError as error:
    assert "self-signed certificate" in str(error), error

retries = urllib3.Retry(2, backoff_factor=0.01, status_forcelist=[503])
try:
    http.request("GET", f"{BASE}/status/503", retries=retries)
    raise AssertionError
except urllib3.exceptions.MaxRetryError as error:
    assert "503" in str(error.reason), error

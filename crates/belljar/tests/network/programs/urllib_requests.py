"""urllib.request over HTTP and HTTPS: answers, errors, redirects, uploads and cookies."""

import http.cookiejar
import json
import urllib.error
import urllib.parse
import urllib.request

BASE = "https://api.example.com:PORT_https"

with urllib.request.urlopen(f"{BASE}/hello", timeout=120) as response:
    assert response.status == 200 and json.load(response)["hello"] == "world"
    assert response.headers["Content-Type"] == "application/json" and response.url == f"{BASE}/hello"

with urllib.request.urlopen("http://api.example.com:PORT_http/csv") as response:
    assert response.read().splitlines()[0] == b"name,value"

data = urllib.parse.urlencode({"a": "1", "b": "ü"}).encode()
with urllib.request.urlopen(urllib.request.Request(f"{BASE}/request?x=1", data=data, method="PUT")) as response:
    answer = json.load(response)
    assert answer["method"] == "PUT" and answer["query"] == {"x": "1"} and answer["body"] == data.decode(), answer

try:
    urllib.request.urlopen(f"{BASE}/status/404")
    raise AssertionError
except urllib.error.HTTPError as error:
    assert error.code == 404 and json.load(error) == {"status": 404}

with urllib.request.urlopen(f"{BASE}/redirect?to=/csv") as response:
    assert response.url == f"{BASE}/csv"

with urllib.request.urlopen(f"{BASE}/redirect?to=https://www.example.com:PORT_https/hello") as response:
    assert response.url == "https://www.example.com:PORT_https/hello"

opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
assert opener.open(f"{BASE}/cookies").read() == b""
assert opener.open(f"{BASE}/cookies").read() == b"flavour=oat"

try:
    urllib.request.urlopen("https://elsewhere.example.org/")
    raise AssertionError
except urllib.error.URLError as error:
    assert isinstance(error.reason, PermissionError), repr(error.reason)
    assert "elsewhere.example.org:443 is not allowed" in str(error.reason), error.reason

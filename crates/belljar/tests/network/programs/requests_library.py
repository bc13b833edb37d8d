"""requests: sessions, errors, uploads, streams, time limits and threads."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import requests

BASE = "https://api.example.com:PORT_https"

answer = requests.get(f"{BASE}/hello", timeout=120)
assert answer.status_code == 200 and answer.json()["hello"] == "world"

with requests.Session() as session:
    assert len({session.get(f"{BASE}/hello").json()["client"] for _ in range(5)}) == 1
    session.get(f"{BASE}/cookies")
    assert session.get(f"{BASE}/cookies").text == "flavour=oat"

answer = requests.post(f"{BASE}/request", json={"a": [1, 2]}, params={"q": "ä b"}).json()
assert answer["body"] == '{"a": [1, 2]}' and answer["query"] == {"q": "ä b"}, answer

data = bytes(range(256)) * 5000
answer = requests.post(f"{BASE}/upload", files={"file": ("a.bin", data)}).json()
assert answer["count"] > len(data)
assert requests.put(f"{BASE}/upload", data=data).json()["digest"] == hashlib.sha256(data).hexdigest()

with requests.get(f"{BASE}/bytes?count=3000000", stream=True) as answer:
    digest = hashlib.sha256()
    for chunk in answer.iter_content(10_000):
        digest.update(chunk)
assert digest.hexdigest() == answer.headers["X-Digest"]

lines = list(requests.get(f"{BASE}/chunks?count=5", stream=True).iter_lines())
assert lines[-1] == b"chunk 4", lines
assert requests.get("https://www.example.com:PORT_https/gzip").text == "compressed text " * 100

try:
    requests.get(f"{BASE}/status/500").raise_for_status()
    raise AssertionError
except requests.HTTPError as error:
    assert error.response.status_code == 500

answer = requests.get(f"{BASE}/redirect?to=https://www.example.com:PORT_https/hello")
assert answer.url.startswith("https://www.example.com") and len(answer.history) == 1

for limit in (3, (120, 0.3)):
    try:
        requests.get(f"{BASE}/delay?seconds=5", timeout=limit)
        raise AssertionError
    except requests.exceptions.ReadTimeout:
        pass

try:
    requests.get("https://api.example.com:PORT_expired/hello")
    raise AssertionError
except requests.exceptions.SSLError as error:
    assert "certificate has expired" in str(error), error
assert requests.get("https://api.example.com:PORT_expired/hello", verify=False).json()["hello"] == "world"

try:
    requests.get("https://elsewhere.example.org/")
    raise AssertionError
except requests.exceptions.ConnectionError as error:
    assert "network access to elsewhere.example.org:443 is not allowed" in str(error), error

try:
    requests.get("http://api.example.com:PORT_closed/")
    raise AssertionError
except requests.exceptions.ConnectionError as error:
    assert "refused" in str(error), error

with ThreadPoolExecutor(8) as pool:
    answers = list(pool.map(lambda index: requests.get(f"{BASE}/request?i={index}").json()["query"]["i"], range(24)))
assert answers == [str(index) for index in range(24)]

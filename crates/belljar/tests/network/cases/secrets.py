import hashlib
import json
import os
import ssl
import urllib.error
import urllib.request
from base64 import b64encode

BASE = "https://api.example.com:PORT_https"
TOKEN = os.environ["TOKEN"]


def get(url, authorization=f"Bearer {TOKEN}", **headers):
    request = urllib.request.Request(url, headers={"Authorization": authorization, **headers})
    try:
        return urllib.request.urlopen(request, timeout=120)
    except urllib.error.HTTPError as error:
        return error


def returned(form):
    return get(f"{BASE}/return/{form}").read().decode()


def seen(url, authorization=f"Bearer {TOKEN}"):
    """Returns whether the server received the placeholder."""
    return TOKEN in json.load(get(url, authorization))["authorization"]


# %% The placeholder has nothing of the value
print(len(TOKEN) >= 24, TOKEN.replace("_", "a").isalnum(), "s3cret" in TOKEN, "KEY" in os.environ)
#> True True False True
# %% The server receives the value
value = "s3cret/V" + 'alue+of=the"tests"?&%~42'
expected = hashlib.sha256(f"Bearer {value}".encode()).hexdigest()
print(get(f"{BASE}/digest").read().decode() == expected)
print(get(f"{BASE}/digest?header=X-Api-Key", "", **{"X-Api-Key": TOKEN}).read().decode() != expected)
#> True
#> True
# %% The answer masks the value with its length
print(returned("plain"))
#> [********************************]
# %% Basic authentication has the value within base64
value = "s3cret/V" + 'alue+of=the"tests"?&%~42'
basic = "Basic " + b64encode(f"user:{TOKEN}".encode()).decode()
expected = hashlib.sha256(b"Basic " + b64encode(f"user:{value}".encode())).hexdigest()
print(get(f"{BASE}/digest", basic).read().decode() == expected)
#> True
# %% Answers are without the value in its encodings
for form in ("plain", "base64", "base64url", "hex", "url", "json", "gzip", "deflate", "error", "split", "slow", "close"):
    text = returned(form)
    print(form, "s3cret" in text, "*" * 6 in text)
#> plain False True
#> base64 False True
#> base64url False True
#> hex False True
#> url False True
#> json False True
#> gzip False True
#> deflate False True
#> error False True
#> split False True
#> slow False True
#> close False True
# %% Headers of answers are without the value
print(get(f"{BASE}/return/header").headers["X-Token"].strip("*") == "")
print("s3cret" in str(get(f"{BASE}/return/cookie").headers), "s3cret" in str(get(f"{BASE}/return/location").url))
#> True
#> False False
# %% Base64 at any position
for before in ("", "a", "ab", "abc"):
    text = get(f"{BASE}/return/base64?before={before}").read().decode()
    print("*" * 20 in text)
#> True
#> True
#> True
#> True
# %% Plain connections and other hosts have the placeholder
print(seen("http://api.example.com:PORT_http/headers"))
print(seen("https://api.example.com:PORT_other/headers"))
print(seen("https://www.example.com:PORT_https/headers"))
#> True
#> True
#> True
# %% Connections without verification have the placeholder
context = ssl._create_unverified_context()
request = urllib.request.Request(f"{BASE}/headers", headers={"Authorization": TOKEN})
print(json.load(urllib.request.urlopen(request, context=context))["authorization"] == TOKEN)
#> True
# %% Secrets of rules are set over verified TLS only
value = "another-secret" + "-for-the-rule"
expected = hashlib.sha256(f"Bearer {value}".encode()).hexdigest()
KEYS = "https://keys.example.com:PORT_https"
print(get(f"{KEYS}/digest", "wrong").read().decode() == expected)
print(get(f"{KEYS}/return/plain", "wrong").read())
print(get(f"{KEYS}/other").status, get("http://keys.example.com:PORT_http/digest").status)
request = urllib.request.Request(f"{KEYS}/digest")
try:
    urllib.request.urlopen(request, context=ssl._create_unverified_context())
except urllib.error.HTTPError as error:
    print(error.code)
#> True
#> b'[***************************]'
#> 403 403
#> 403
# %% A WebSocket sends the value and masks it
# /// script
# dependencies = ["websockets"]
# ///
import asyncio

import websockets


async def main():
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with websockets.connect("wss://api.example.com:PORT_https/websocket", additional_headers=headers) as socket:
        await socket.send("token")
        print(await socket.recv())


asyncio.run(main())
#> ********************************
# %% requests with a session and with basic authentication
# /// script
# dependencies = ["requests"]
# ///
import requests

with requests.Session() as session:
    session.headers["Authorization"] = f"Bearer {TOKEN}"
    print("s3cret" in session.get(f"{BASE}/return/plain").text)
    redirected = session.get(f"{BASE}/redirect?to=https://www.example.com:PORT_https/headers").json()
    print("authorization" in redirected)
print("s3cret" in requests.get(f"{BASE}/headers", auth=("user", TOKEN)).text)
#> False
#> False
#> False

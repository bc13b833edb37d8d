# /// script
# dependencies = ["httpx[socks]"]
# ///
import httpx
import socksio

try:
    httpx.get("https://example.org")
except httpx.ConnectError as error:
    assert "no network" in str(error), error
else:
    raise AssertionError("there is no network to reach")

"""`pyodide.http`, for programs that were written for Pyodide."""

import asyncio

from pyodide.http import open_url, pyfetch

BASE = "https://api.example.com:PORT_https"
assert open_url(f"{BASE}/csv").readline() == "name,value\n"


async def main():
    answer = await pyfetch(f"{BASE}/hello")
    assert answer.ok and (await answer.json())["hello"] == "world"
    answer = await pyfetch(f"{BASE}/request", method="POST", body="text", headers={"Content-Type": "text/x-test"})
    assert (await answer.json())["type"] == "text/x-test"
    assert (await pyfetch(f"{BASE}/status/404")).status == 404


asyncio.run(main())

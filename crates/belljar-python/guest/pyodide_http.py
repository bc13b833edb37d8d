"""`pyodide.http` for programs that were written for Pyodide: `open_url` and `pyfetch`, over sockets."""

import asyncio
import io
import json
from types import ModuleType
from typing import Any


def fill(module: ModuleType) -> None:
    """Fills the module `pyodide.http`."""
    module.open_url = open_url
    module.pyfetch = pyfetch
    module.FetchResponse = FetchResponse
    module.HttpStatusError = HttpStatusError


class HttpStatusError(OSError):
    """A response with a status that is an error."""

    def __init__(self, status: int, status_text: str, url: str) -> None:
        kind = "Client Error" if status < 500 else "Server Error"
        super().__init__(f"{status} {kind}: {status_text} for url: {url}")
        self.status, self.status_text, self.url = status, status_text, url


class FetchResponse:
    """A response, which has been received completely."""

    def __init__(self, url: str, status: int, status_text: str, headers: dict[str, str], body: bytes) -> None:
        self.url, self.status, self.status_text, self.headers = url, status, status_text, headers
        self._body = body

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def body_used(self) -> bool:
        return False

    def raise_for_status(self) -> None:
        if 400 <= self.status < 600:
            raise HttpStatusError(self.status, self.status_text, self.url)

    def clone(self) -> FetchResponse:
        return FetchResponse(self.url, self.status, self.status_text, self.headers, self._body)

    async def bytes(self) -> bytes:
        return self._body

    async def memoryview(self) -> memoryview:
        return memoryview(self._body)

    async def text(self) -> str:
        return self._body.decode("utf-8", "replace")

    string = text

    async def json(self, **options: Any) -> Any:
        return json.loads(self._body, **options)


async def pyfetch(url: str, **options: Any) -> FetchResponse:
    """Sends a request. The options ``method``, ``headers`` and ``body`` are those of the browser's ``fetch``."""
    return await asyncio.to_thread(_fetch, url, options)


def open_url(url: str) -> io.StringIO:
    """Returns the text at an address."""
    return io.StringIO(_fetch(url, {})._body.decode())


def _fetch(url: str, options: dict[str, Any]) -> FetchResponse:
    import urllib.error
    import urllib.request

    body = options.get("body")
    data = body.encode() if isinstance(body, str) else body
    headers = dict(options.get("headers") or {})
    request = urllib.request.Request(url, data=data, headers=headers, method=options.get("method", "GET").upper())
    try:
        response = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        received = {name.lower(): value for name, value in response.headers.items()}
        return FetchResponse(response.url, response.status, response.reason, received, response.read())

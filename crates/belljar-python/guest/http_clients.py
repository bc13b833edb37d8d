"""HTTP clients that would use the browser: on Emscripten they import Pyodide's ``js``, which does not exist here.

The modules that do so are replaced, so that imports work, and that requests fail as those of other clients do.
"""

import socket
from types import ModuleType
from typing import Any

from . import import_patches


def install() -> None:
    """Registers the replacements."""
    import_patches.replace("urllib3.contrib.emscripten", _fill_urllib3)
    import_patches.replace("httpx2_jsfetch", _fill_httpx2)
    import_patches.when_imported("webbrowser", _remove_browser)


def _fill_urllib3(module: ModuleType) -> None:
    """Keeps urllib3's connections on sockets."""
    module.inject_into_urllib3 = lambda: None


def _remove_browser(module: ModuleType) -> None:
    """Makes ``webbrowser.open`` return False, as it does without any browser. Pyodide's module opens a window."""
    for name in ("open", "open_new", "open_new_tab"):
        setattr(module, name, lambda *args, **options: False)


def _fill_httpx2(module: ModuleType) -> None:
    """Creates transports of httpx2 that connect by sockets, which fails."""
    from httpx2._exceptions import ConnectError
    from httpx2._transports.base import AsyncBaseTransport, BaseTransport

    def connect(request: Any) -> ConnectError:
        try:
            socket.create_connection((request.url.host, request.url.port or 443)).close()
        except OSError as error:
            return ConnectError(str(error), request=request)
        return ConnectError("httpx2 has no transport for sockets here", request=request)

    class JavascriptFetchTransport(BaseTransport):
        def __init__(self, *args: object, **options: object) -> None:
            pass

        def handle_request(self, request: Any) -> Any:
            raise connect(request)

    class AsyncJavascriptFetchTransport(AsyncBaseTransport):
        def __init__(self, *args: object, **options: object) -> None:
            pass

        async def handle_async_request(self, request: Any) -> Any:
            raise connect(request)

    module.JavascriptFetchTransport = JavascriptFetchTransport
    module.AsyncJavascriptFetchTransport = AsyncJavascriptFetchTransport

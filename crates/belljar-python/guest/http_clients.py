"""HTTP clients that would use the browser: on Emscripten they import Pyodide's ``js``, which does not exist here.

The modules that do so are replaced, so that these clients use sockets, as elsewhere.
"""

import ssl
from types import ModuleType

from . import import_patches, network, pyodide_http


def install() -> None:
    """Registers the replacements."""
    import_patches.replace("urllib3.contrib.emscripten", _fill_urllib3)
    import_patches.replace("httpx2_jsfetch", _fill_httpx2)
    import_patches.replace("truststore", _fill_truststore)
    import_patches.when_imported("webbrowser", _remove_browser)
    # Programs look for the package to find out whether a browser runs them, as long as there is no network.
    import_patches.replace("pyodide", _fill_pyodide, network.is_available)
    import_patches.replace("pyodide.http", pyodide_http.fill, network.is_available)


def _fill_urllib3(module: ModuleType) -> None:
    """Keeps urllib3's connections on sockets."""
    module.inject_into_urllib3 = lambda: None


def _fill_httpx2(module: ModuleType) -> None:
    """Offers httpx2's transports for sockets under the names of those for browsers."""
    from httpx2._transports.default import AsyncHTTPTransport, HTTPTransport

    module.JavascriptFetchTransport = HTTPTransport
    module.AsyncJavascriptFetchTransport = AsyncHTTPTransport


def _fill_truststore(module: ModuleType) -> None:
    """Offers truststore's interface. The host verifies certificates with the machine's trust store anyway."""
    module.SSLContext = ssl.SSLContext
    module.inject_into_ssl = module.extract_from_ssl = lambda: None


def _fill_pyodide(module: ModuleType) -> None:
    """Creates the package of `pyodide.http`. Pyodide's other modules do not exist."""
    module.__path__ = []


def _remove_browser(module: ModuleType) -> None:
    """Makes ``webbrowser.open`` return False, as it does without any browser. Pyodide's module opens a window."""
    for name in ("open", "open_new", "open_new_tab"):
        setattr(module, name, lambda *args, **options: False)

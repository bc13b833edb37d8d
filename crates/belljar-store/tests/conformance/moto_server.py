"""Serves moto's S3 at the port that is the argument, with one request at a time.

moto checks the condition of a write and then writes, without a lock, so that of several conditional writes at a time
more than one may be carried out. A store whose conditional writes are atomic carries out one.
"""

import io
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


class SerialApplication:
    """moto's application, which handles one request at a time."""

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Receives the body, which may be late, and then handles the request."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if len(body) < length:
            raise ConnectionAbortedError("the client has left before the end of its request")
        environ["wsgi.input"] = io.BytesIO(body)
        with self._lock:
            return self._application(environ, start_response)


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), SerialApplication(), threaded=True, request_handler=MotoRequestHandler)

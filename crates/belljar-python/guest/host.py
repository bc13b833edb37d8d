"""Calls of the host: a name and a JSON text go out, a JSON text comes back, while the program waits."""

from collections.abc import Callable
from json import dumps, loads
from typing import Any

call_host: Callable[[str], str]
"""The host's function, which it adds to this module while the base image is built."""


class Refused(Exception):
    """The host does not do that; the message says why."""


def call(name: str, **request: Any) -> Any:
    """The host's answer to the call ``name``; `Refused` when it gives none."""
    answer = loads(call_host(dumps({"name": name, "request": request})))
    if "error" in answer:
        raise Refused(answer["error"])
    return answer["answer"]

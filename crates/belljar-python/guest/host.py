"""Calls to the host: the program sends a name and a JSON text, and waits for a JSON text."""

from collections.abc import Callable
from json import dumps, loads
from typing import Any

call_host: Callable[[str], str]
"""The host's function, which the host adds to this module while the base image is built."""


class HostCallError(Exception):
    """The host rejected a call; the message is the reason."""


def call(name: str, **request: Any) -> Any:
    """Returns the host's reply to the call ``name``, or raises `HostCallError`."""
    answer = loads(call_host(dumps({"name": name, "request": request})))  # noqa: F821 - declared above
    if "error" in answer:
        raise HostCallError(answer["error"])
    return answer["answer"]

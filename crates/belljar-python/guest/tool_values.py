"""Values of calls of tools: their results as objects, and their arguments as JSON."""

import sys
from collections.abc import Iterable, Mapping
from json import JSONEncoder, dumps
from json.encoder import encode_basestring_ascii
from types import FrameType
from typing import Any

from . import values
from .tool_calls import Call, NotAwaitedError, Target, ToolError


class File(bytes):
    """The bytes of a file, an image or a sound. Images display themselves."""

    mime_type: str

    def __new__(cls, data: bytes, mime_type: str) -> Any:
        file = super().__new__(cls, data)
        file.mime_type = mime_type
        return file

    def __reduce__(self) -> Any:
        return File, (bytes(self), self.mime_type)

    def __repr__(self) -> str:
        return f"<File of {len(self)} bytes, {self.mime_type}>"

    def _of(self, mime_type: str) -> bytes | None:
        return bytes(self) if self.mime_type == mime_type else None

    def _repr_png_(self) -> bytes | None:
        return self._of("image/png")

    def _repr_jpeg_(self) -> bytes | None:
        return self._of("image/jpeg")

    def _repr_svg_(self) -> str | None:
        return self.decode(errors="replace") if self.mime_type == "image/svg+xml" else None


class Resource:
    """A resource of a server: `read` returns its contents."""

    def __init__(self, server: str, link: dict[str, Any]) -> None:
        self.server = server
        self.uri: str = link["uri"]
        self.name: str = link["name"]
        self.title: str | None = link["title"]
        self.description: str | None = link["description"]
        self.mime_type: str | None = link["mime_type"]
        self.size: int | None = link["size"]

    def read(self) -> Call:
        """Reads the contents: text, or a `File`; a list if there are several."""
        return _read(self.server, self.uri, sys._getframe(1))

    def __repr__(self) -> str:
        return f"<Resource {self.uri!r} of {self.server}>"


class Resources:
    """The resources of a server: ``await github.resources.list()`` and ``await github.resources.read(uri)``."""

    def __init__(self, server: str) -> None:
        self._server = server

    def list(self) -> Call:
        """Lists the server's resources."""
        target = Target(f"{self._server}.resources.list", "resources", self._server, value, has_line=False)
        return Call(target, "", sys._getframe(1))

    def read(self, uri: str) -> Call:
        """Reads a resource: text, or a `File`; a list if it has several contents."""
        return _read(self._server, str(uri), sys._getframe(1))

    def __repr__(self) -> str:
        return f"<resources of {self._server}>"


def _read(server: str, uri: str, frame: FrameType) -> Call:
    return Call(Target(f"{server}.resources.read", "read", server, value), f",{dumps(uri)}", frame)


def value(server: str, reply: Any) -> Any:
    """Returns the value of a reply of the host to a call."""
    try:
        return reply["one"]["value"]
    except _OTHER_REPLIES:
        pass  # It has no part, several parts, or one that is not a value.
    if isinstance(reply, list):  # Resources.
        return [Resource(server, link) for link in reply]
    if "one" in reply:
        return _part(server, reply["one"])
    return [_part(server, part) for part in reply["many"]]


def _part(server: str, part: dict[str, Any]) -> Any:
    if "value" in part:
        return part["value"]
    if "file" in part:
        return File(part["file"], part["mime"])
    return Resource(server, part["link"])


def _plain(given: Any) -> Any:
    """Returns a value that JSON has for one that it does not have, or raises TypeError."""
    for method in ("model_dump", "isoformat", "__fspath__", "tolist", "_asdict"):
        if hasattr(type(given), method):
            return getattr(given, method)()
    if isinstance(given, set | frozenset | Mapping):
        return dict(given) if isinstance(given, Mapping) else list(given)
    if isinstance(given, bytes | bytearray):
        raise TypeError("bytes: encode them as text first, for example with base64")
    if type(given) is Call:
        given.not_awaited()
    if hasattr(given, "__dataclass_fields__"):
        return {name: getattr(given, name) for name in given.__dataclass_fields__}
    if type(given).__module__ in ("decimal", "uuid", "fractions"):
        return str(given)
    if isinstance(given, Iterable) and not isinstance(given, str):
        return list(given)
    raise TypeError(f"{type(given).__name__} is not a type of JSON")


# Named, because the formatter writes `except` clauses as only newer versions of Python have them.
_ENCODING_ERRORS = (TypeError, ValueError, RecursionError)
_OTHER_REPLIES = (KeyError, TypeError)
_encode = JSONEncoder(allow_nan=False, default=_plain, separators=(",", ":")).encode


def to_json(path: str, arguments: dict[str, Any]) -> str:
    """Returns the arguments of the tool with this name as the text of a JSON string, after a comma."""
    try:
        return f",{encode_basestring_ascii(values.dumps(arguments))}"
    except _ENCODING_ERRORS:
        pass  # There are values of other types, or none that can be encoded.
    try:
        return f",{encode_basestring_ascii(_encode(arguments))}"
    except NotAwaitedError:
        raise
    except _ENCODING_ERRORS as error:
        failure = ToolError(f"the arguments of {path} cannot be sent: {error}")
    raise failure

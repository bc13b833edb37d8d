"""Values of this process for the sandbox."""

from __future__ import annotations

import os
from typing import Any

from . import _values
from ._errors import ArgumentTypeError


def encode(value: object) -> tuple[str, list[bytes]]:
    """Returns the text and the buffers of a value for the sandbox. Raises TypeError if it cannot cross."""
    text, buffers = _values.encode(value, _convert)
    return text, [bytes(buffer) for buffer in buffers]


def _convert(value: Any) -> Any:
    """Returns a replacement for an object of a type that the sandbox does not have."""
    kind = type(value)
    if hasattr(kind, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in kind.__dataclass_fields__}
    if callable(dump := getattr(value, "model_dump", None)):
        return dump()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(kind, "__members__") and hasattr(value, "value"):
        return value.value
    raise ArgumentTypeError(f"a value of the type {kind.__module__}.{kind.__qualname__} cannot cross into the sandbox")

"""Checks of arguments, whose errors name the argument."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._errors import ArgumentError, ArgumentTypeError, FileError


def check_seconds(value: object, argument: str) -> None:
    """Checks that a value is a time: a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ArgumentError(f"{argument}: {value!r} is not a positive number of seconds")


def check_text(value: object, argument: str) -> None:
    """Checks that a value is a text, or None."""
    if value is not None and not isinstance(value, str):
        raise ArgumentTypeError(f"{argument}: a text is needed, not {type(value).__name__}")


def check_functions(**arguments: object) -> None:
    """Checks that the values are functions, or None."""
    for argument, value in arguments.items():
        if value is not None and not callable(value):
            raise ArgumentTypeError(f"{argument}: {value!r} is not a function")


def texts(values: Iterable[str], argument: str) -> list[str]:
    """Returns a list of texts."""
    if isinstance(values, str):
        raise ArgumentTypeError(f"{argument}: pass a list of texts, not one text")
    values = list(values)
    for value in values:
        if not isinstance(value, str):
            raise ArgumentTypeError(f"{argument}: {value!r} is not a text")
    return values


def texts_by_name(values: Mapping[str, str] | None, argument: str) -> dict[str, str]:
    """Returns a dictionary of texts."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(f"{argument}: a dictionary is needed, not {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ArgumentTypeError(f"{argument}[{name!r}]: a text is needed")
    return dict(values)


def path(value: Any, argument: str) -> str:
    """Returns a path as a text."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{argument}: a path is needed, not {type(value).__name__}")
    return value


def paths(values: Iterable[str | os.PathLike[str]], argument: str) -> list[str]:
    """Returns a list of paths as texts."""
    if isinstance(values, (str, os.PathLike)):
        raise ArgumentTypeError(f"{argument}: pass a list of paths, not one path")
    return [path(value, argument) for value in values]


def name_of_new_file(value: str | os.PathLike[str]) -> str:
    """Returns the name of a file that is written into the directory of a session."""
    name = path(value, "path")
    if "/" in name:
        raise FileError(
            f"`{name}` is not the name of a file: files are written into the session's directory itself, such as \
`table.csv`. The code can make directories and move files"
        )
    return name

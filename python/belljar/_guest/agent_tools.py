"""Tools of an agent inside of the sandbox. `belljar.smolagents` runs this text there; it is not imported."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable, Iterable
from typing import Any

_IMAGE = "$belljar_image"
_OBJECT = "$belljar_object"
_MAX_DEPTH = 4

answers: list[Any] = []
"""The answer of the code, until the host takes it."""


class FinalAnswerException(BaseException):
    """Ends the code that has called `final_answer`. Code that catches exceptions in general does not catch it."""


class HostObject:
    """An object of the host, which can only be passed to tools."""

    def __init__(self, number: int, text: str) -> None:
        self._number = number
        self._text = text

    def __repr__(self) -> str:
        return f"HostObject({self._text})"


def to_host(value: Any, depth: int = 0) -> Any:
    """Returns a value for the host, with images as the contents of PNG files."""
    if isinstance(value, HostObject):
        return {_OBJECT: value._number}
    image = sys.modules.get("PIL.Image")
    if image is not None and isinstance(value, image.Image):
        file = io.BytesIO()
        value.save(file, format="PNG")
        return {_IMAGE: file.getvalue()}
    if depth < _MAX_DEPTH and type(value) in (list, tuple):
        return type(value)(to_host(each, depth + 1) for each in value)
    if depth < _MAX_DEPTH and type(value) is dict:
        return {key: to_host(each, depth + 1) for key, each in value.items()}
    return value


def from_host(value: Any, depth: int = 0) -> Any:
    """Returns a value of the host for the code. Images are those of Pillow, if that is installed."""
    if depth <= _MAX_DEPTH and type(value) in (list, tuple):
        return type(value)(from_host(each, depth + 1) for each in value)
    if depth > _MAX_DEPTH or type(value) is not dict:
        return value
    if _OBJECT not in value:
        return {key: from_host(each, depth + 1) for key, each in value.items()}
    if _IMAGE in value:
        try:
            image = importlib.import_module("PIL.Image").open(io.BytesIO(value[_IMAGE]))
            image.load()
            return image
        except ImportError:
            pass
    return HostObject(value[_OBJECT], value["text"])


def install(namespace: dict[str, Any], tools: Iterable[tuple[str, str | None, str]], has_answer: bool) -> None:
    """Defines tools: each with its name, the name of the host's function and the description."""

    def wrap(name: str, host_name: str, text: str) -> Callable[..., Any]:
        def tool(*args: Any, **kwargs: Any) -> Any:
            return from_host(namespace[host_name](*to_host(args), **to_host(kwargs)))

        tool.__name__ = tool.__qualname__ = name
        tool.__doc__ = text
        return tool

    def answer(answer: Any) -> Any:
        return answer

    for name, host_name, text in tools:
        namespace[name] = wrap(name, host_name, text) if host_name is not None else answer
    answer_tool = namespace.get("final_answer")
    if not has_answer or answer_tool is None:
        return

    def final_answer(*args: Any, **kwargs: Any) -> None:
        """Ends the task with this answer."""
        answers[:] = [answer_tool(*args, **kwargs)]
        raise FinalAnswerException("the task has been answered")

    namespace["final_answer"] = final_answer


def take_answer() -> Any:
    """Returns the answer for the host, once."""
    return to_host(answers.pop())

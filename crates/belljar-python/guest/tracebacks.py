"""What went wrong, in the words CPython has for it, without our own frames."""

import os
import sys
import traceback
from typing import Any

_OWN_FILES = os.path.dirname(__file__) + os.sep
_MAX_FRAMES = 400
"""Frames printed of one stack; deep mutual recursion would fill megabytes otherwise."""
_MAX_TEXT = 200_000
"""Characters of a traceback, of which the beginning and the end are kept."""
_MAX_MESSAGE = 20_000


def outcome(error: BaseException) -> dict[str, Any]:
    """The outcome of code that ended with ``error``."""
    if isinstance(error, SystemExit):
        return _exit(error)
    try:
        return _error(error)
    except BaseException:
        # Mostly MemoryError: what the frames hold is the likeliest thing that can be given up.
        traceback.clear_frames(error.__traceback__)
        name = type(error).__name__
        return {"kind": "error", "type": name, "message": "", "traceback": f"{name}\n"}


def _error(error: BaseException) -> dict[str, Any]:
    described = traceback.TracebackException.from_exception(error)
    _leave_out_own_frames(described)
    text = "".join(described.format(colorize=False))
    return {
        "kind": "error",
        "type": described.exc_type_str,
        "message": _printable(_shorten(_message(error), _MAX_MESSAGE)),
        "traceback": _printable(_shorten(text, _MAX_TEXT)),
    }


def _exit(error: SystemExit) -> dict[str, Any]:
    """`sys.exit` as Python's command line treats it: nothing, a status, or a message for stderr."""
    code = error.code
    if code is None:
        return {"kind": "exit", "code": 0, "message": None}
    if isinstance(code, int):
        return {"kind": "exit", "code": int(code) & 0xFF, "message": None}
    message = _printable(_message(code))
    try:
        print(message, file=sys.stderr)
    except (AttributeError, OSError, ValueError):
        pass  # stderr is gone or closed: Python drops the message as well.
    return {"kind": "exit", "code": 1, "message": _shorten(message, _MAX_MESSAGE)}


class _Stack(traceback.StackSummary):
    """A stack that prints its two ends when it is too long."""

    def format(self, **options: Any) -> list[str]:
        printed = 0
        previous = None
        for frame in self:
            place = (frame.filename, frame.lineno, frame.name)
            # Repetitions of one line are folded by the standard formatting.
            printed += place != previous
            previous = place
        if printed <= _MAX_FRAMES:
            return super().format(**options)
        half = _MAX_FRAMES // 2
        left_out = f"  [{len(self) - 2 * half} frames left out]\n"
        head, tail = traceback.StackSummary.from_list(self[:half]), traceback.StackSummary.from_list(self[-half:])
        return [*head.format(**options), left_out, *tail.format(**options)]


def _leave_out_own_frames(described: traceback.TracebackException) -> None:
    """Remove the frames of this package everywhere: causes, contexts, members of exception groups."""
    waiting, seen = [described], set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        # An empty stack rather than none, so that the heading "Traceback (most recent call last)" stays.
        one.stack = _Stack(frame for frame in one.stack or () if not frame.filename.startswith(_OWN_FILES))
        waiting += [one.__cause__, one.__context__, *(one.exceptions or ())]


def _message(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"<str() of {type(value).__name__} raised {type(error).__name__}>"


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def _printable(text: str) -> str:
    """Lone surrogates as stderr shows them: UTF-8 has no place for them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()

"""Errors and tracebacks in CPython's format, without the frames of this package."""

import itertools
import os
import sys
import traceback
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import Any

from . import absent_modules, source_cache, value_json

type _Unraisable = sys.UnraisableHookArgs
"""CPython gives this class no name. An alias is evaluated lazily, so that `inspect.signature` can read the hook's."""
_OWN_FILES = os.path.dirname(__file__) + os.sep
_MAX_REPETITIONS = 3
"""The number of identical frames in a row that are printed, as in CPython (`_RECURSIVE_CUTOFF`)."""
_MAX_RUNS = 400
"""The number of places of one stack that are printed; deep mutual recursion would fill megabytes otherwise."""
_MAX_TEXT = 200_000
"""The maximum length of a traceback in characters, of which the beginning and the end are kept."""
_MAX_MESSAGE = 20_000
_MAX_MODULE = 200
"""The maximum length of a module's name, in characters; longer names are not reported."""
_MAX_CAUSES = 10
_NO_SITE = (
    ". Site initialization is disabled, did you forget to add the site-packages directory to sys.path "
    "or to enable your virtual environment?"
)
"""CPython 3.15's advice after a failed import. It is wrong here: the host has done the work of `site`."""


_missing_modules: dict[str, str] = {}
"""The modules that no package provides, with the notes for errors of importing them."""


def set_missing_modules(notes: dict[str, str]) -> None:
    """Sets the modules that no package provides, with the notes for errors of importing them."""
    _missing_modules.clear()
    _missing_modules.update(notes)


def outcome(error: BaseException) -> dict[str, Any]:
    """Returns the outcome of code that ended with ``error``."""
    if isinstance(error, SystemExit):
        return _exit(error)
    try:
        return _error(error)
    except BaseException:
        # Usually MemoryError: clearing the frames is the most likely way to free memory.
        traceback.clear_frames(_traceback_of(error))
        name = type(error).__name__
        return {"kind": "error", "type": name, "message": "", "traceback": f"{name}\n"}


def report_unraisable(unraisable: _Unraisable, /) -> None:
    """Replaces `sys.unraisablehook`: finds the lines of cells, for which CPython's hook would search files."""
    what = unraisable.err_msg or "Exception ignored in"
    shown = "" if unraisable.object is None else f" {value_json.safe_repr(unraisable.object)}"
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(_printable(f"{what}:{shown}\n") + describe(unraisable.exc_value or unraisable.exc_type()))


def describe(error: BaseException) -> str:
    """Returns the error with its traceback, as CPython prints it."""
    return _printable(shorten(_describe(error)[1], _MAX_TEXT))


def _describe(error: BaseException) -> tuple[traceback.TracebackException, str]:
    described = traceback.TracebackException.from_exception(error, lookup_lines=False)
    _remove_own_frames(described)
    return described, "".join(described.format(colorize=False))


def release(errors: list[BaseException]) -> None:
    """Empties ``errors``, and frees the objects that their frames held, as if the line that raised did so."""
    step = _traceback_of(errors[0]) if errors else None
    while step is not None and step.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        step = step.tb_next
    if step is None:
        errors.clear()
        return
    filename, line, step = step.tb_frame.f_code.co_filename, step.tb_lineno, None
    source_cache.release(errors, filename, line)


def _error(error: BaseException) -> dict[str, Any]:
    add_advice(error)
    described, text = _describe(error)
    return {
        "kind": "error",
        "type": _printable(shorten(described.exc_type_str, _MAX_MESSAGE)),
        "message": _printable(shorten(_message(error), _MAX_MESSAGE)),
        "traceback": _printable(shorten(text, _MAX_TEXT)),
        "missing_module": missing_module(error),
    }


def missing_module(error: BaseException) -> str | None:
    """Returns the module without which the code failed: that of an import error, or of the error that caused it.

    Packages import their optional dependencies where they use them, and often raise an import error of their own.
    """
    with suppress(Exception):
        for _ in range(_MAX_CAUSES):
            if not isinstance(error, ImportError):
                return None
            if isinstance(error, ModuleNotFoundError) and isinstance(error.name, str):
                return error.name if error.name.isprintable() and len(error.name) <= _MAX_MODULE else None
            error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return None


def remove_last_own_frames(error: BaseException) -> None:
    """Removes the frames of this package at the end of an error's traceback: the error was raised on behalf of the
    function above, such as `threading.Event.wait`."""
    steps = []
    step = _traceback_of(error)
    while step is not None:
        steps.append(step)
        step = step.tb_next
    while steps and steps[-1].tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        steps.pop()
    kept = None
    for step in reversed(steps):
        kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    error.__traceback__ = kept


def add_advice(error: BaseException) -> None:
    """Adds a note to errors whose message does not say what to do here."""
    if isinstance(error, ModuleNotFoundError) and isinstance(error.name, str):
        notes = [why for module, why in _missing_modules.items() if f"{module}.".startswith(f"{error.name}.")]
        if (advice := absent_modules.advice(error.name)) is not None:
            notes.append(advice)
    elif isinstance(error, AttributeError | ImportError) and (advice := _advice_for_attribute(error)) is not None:
        notes = [advice]
    elif type(error) is EOFError and error.args == ("EOF when reading a line",):
        notes = ["There is no more standard input: set the value in the code instead of asking for it"]
    else:
        return
    for note in notes:
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def _advice_for_attribute(error: AttributeError | ImportError) -> str | None:
    """Returns the advice for ``module.name`` and ``from module import name``."""
    match error:
        case AttributeError(obj=ModuleType(__name__=str(module)), name=str(name)):
            return absent_modules.advice_for_attribute(module, name)
        case ImportError(name=str(module), name_from=str(name)):
            return absent_modules.advice_for_attribute(module, name)
    return None


def _exit(error: SystemExit) -> dict[str, Any]:
    """Handles `sys.exit` as Python's command line does: no argument, a status, or a message for stderr."""
    code = error.code
    if code is None:
        return {"kind": "exit", "code": 0, "message": None}
    if isinstance(code, int):
        return {"kind": "exit", "code": int(code) & 0xFF, "message": None}
    message = _printable(_message(code))
    # If stderr is missing or closed, Python drops the message as well.
    with suppress(AttributeError, OSError, ValueError):
        print(message, file=sys.stderr)
    return {"kind": "exit", "code": 1, "message": shorten(message, _MAX_MESSAGE)}


def _traceback_of(error: BaseException) -> TracebackType | None:
    """Returns the traceback, even if the exception's class overrides the attribute."""
    return BaseException.__traceback__.__get__(error)


class _Stack(traceback.StackSummary):
    """A stack that formats only the frames it prints: repetitions are folded, and the middle of a long one is omitted.

    The standard implementation formats every frame before it folds, which takes seconds for a deep recursion. The
    heading is printed even if the stack contained only frames of this package.
    """

    def __bool__(self) -> bool:
        return True

    def format(self, **options: Any) -> list[str]:
        runs = [
            list(run) for _, run in itertools.groupby(self, lambda frame: (frame.filename, frame.lineno, frame.name))
        ]
        left_out = len(runs) - _MAX_RUNS
        if left_out <= 0:
            return _format_runs(runs, options)
        half = _MAX_RUNS // 2
        count = sum(map(len, runs[half:-half]))
        return [
            *_format_runs(runs[:half], options),
            f"  [{count} frames left out]\n",
            *_format_runs(runs[-half:], options),
        ]


def _format_runs(runs: list[list[traceback.FrameSummary]], options: dict[str, Any]) -> list[str]:
    """Formats frames at the same place in a row, folded as CPython folds them."""
    lines = []
    for run in runs:
        lines += traceback.StackSummary.from_list(run[:_MAX_REPETITIONS]).format(**options)
        if (more := len(run) - _MAX_REPETITIONS) > 0:
            lines.append(f"  [Previous line repeated {more} more time{'s' if more > 1 else ''}]\n")
    return lines


def _remove_own_frames(described: traceback.TracebackException) -> None:
    """Removes the frames of this package from an error and its causes, contexts and group members."""
    waiting, seen = [described], set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if one.stack:
            one.stack = _Stack(frame for frame in one.stack if not frame.filename.startswith(_OWN_FILES))
        one._str = one._str.removesuffix(_NO_SITE)
        waiting += [one.__cause__, one.__context__, *(one.exceptions or ())]


def _message(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} object, whose str() raised {type(error).__name__}>"


def shorten(text: str, limit: int) -> str:
    """Omits the middle of a text that has more than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def _printable(text: str) -> str:
    """Escapes lone surrogates as stderr does: UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()

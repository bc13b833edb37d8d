"""The source text of code, for tracebacks and warnings.

Cells of a session share a file name, and a function of an earlier cell may fail in a later one. `linecache` stores one
text for each name, the latest; this module stores the text of each function.
"""

import linecache
import traceback
from types import CodeType
from weakref import WeakKeyDictionary

_lines: WeakKeyDictionary[CodeType, list[str]] = WeakKeyDictionary()


def normalise(code: str) -> str:
    """Normalizes newlines as Python's tokenizer does, and removes a byte order mark."""
    return code.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def register_source(source: str, filename: str) -> None:
    """Makes the text that is about to run available to warnings, `inspect` and errors of the compiler."""
    # An entry without a modification time makes linecache skip the check for a file of that name.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def attach_source(code: CodeType, filename: str) -> None:
    """Stores the registered text for the functions and classes in ``code``, as long as they exist."""
    waiting = [code]
    while waiting:
        for constant in waiting.pop().co_consts:
            if isinstance(constant, CodeType):
                # Equal code of an earlier cell would stay the key, and its removal would remove the entry.
                _lines.pop(constant, None)
                _lines[constant] = linecache.cache[filename][2]
                waiting.append(constant)


_set_lines = traceback.FrameSummary._set_lines


def _set_own_lines(self: traceback.FrameSummary) -> None:
    """Finds a frame's lines for `traceback`: the function's own text takes precedence over the file name's."""
    # Programs also create summaries from objects that only resemble code.
    lines = _lines.get(self._code) if self._lines is None and isinstance(self._code, CodeType) else None
    if lines is not None and self.lineno is not None:
        self._lines = "".join(lines[self.lineno - 1 : self.end_lineno])
    _set_lines(self)


def install() -> None:
    """Provides the correct lines to all tracebacks, including those that the program or `logging` prints."""
    traceback.FrameSummary._set_lines = _set_own_lines


def release(held: list[object], filename: str, line: int) -> None:
    """Empties ``held`` in code that counts as the cell's, so that resulting warnings refer to that place.

    Python warns of a coroutine that was never awaited when it is freed, and reports the place where that happened.
    """
    code = compile("\n" * (line - 1) + "held.clear()", filename, "exec", dont_inherit=True)
    exec(code, {"held": held})

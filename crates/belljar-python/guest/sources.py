"""The text that code was compiled from, for tracebacks and warnings.

Cells of a session share a file name, and a function of an earlier cell may fail in a later one. `linecache` knows
one text for a name, the latest; here each function remembers its own.
"""

import linecache
import traceback
from types import CodeType
from weakref import WeakKeyDictionary

_lines: WeakKeyDictionary[CodeType, list[str]] = WeakKeyDictionary()


def normalise(code: str) -> str:
    """Newlines as Python's tokenizer reads them, and no byte order mark."""
    return code.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def announce(source: str, filename: str) -> None:
    """Let warnings, `inspect` and errors of the compiler find the text that is about to run."""
    # Without a modification time linecache never looks for a file of that name.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def remember(code: CodeType, filename: str) -> None:
    """Keep the announced text for the functions and classes in ``code``, as long as they live."""
    waiting = [code]
    while waiting:
        for constant in waiting.pop().co_consts:
            if isinstance(constant, CodeType):
                # Equal code of an earlier cell would stay the key, and take the entry with it when it goes.
                _lines.pop(constant, None)
                _lines[constant] = linecache.cache[filename][2]
                waiting.append(constant)


_set_lines = traceback.FrameSummary._set_lines


def _set_own_lines(self: traceback.FrameSummary) -> None:
    """What `traceback` calls to find a frame's lines: the function's own text comes before the file name's."""
    # Programs make summaries of what only resembles code, too.
    lines = _lines.get(self._code) if self._lines is None and isinstance(self._code, CodeType) else None
    if lines is not None and self.lineno is not None:
        self._lines = "".join(lines[self.lineno - 1 : self.end_lineno])
    _set_lines(self)


def install() -> None:
    """Let all tracebacks have the right lines, those that the program or `logging` prints too."""
    traceback.FrameSummary._set_lines = _set_own_lines


def release(held: list[object], filename: str, line: int) -> None:
    """Empty ``held`` in code that counts as the cell's: a warning that comes of it names that place.

    Python warns of a coroutine that nobody awaited when it goes, and says where that was.
    """
    code = compile("\n" * (line - 1) + "held.clear()", filename, "exec", dont_inherit=True)
    exec(code, {"held": held})

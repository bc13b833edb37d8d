"""Lines of notebook syntax in a cell: ``%pip install x``, ``!pip install x``, ``%matplotlib inline``, ``%time f()``.

Other lines of this kind remain syntax errors. See `shell` for cells of sessions, where IPython handles all of them.
"""

import ast
import re
import time
from collections.abc import Callable

_CALL = (
    r"(?:uv\s+)?pip(?:3(?:\.\d+)?)?|(?:python(?:3(?:\.\d+)?)?|\{sys\.executable\}|\"\{sys\.executable\}\")\s+-m\s+pip"
)
_LINE = re.compile(
    rf"^(?P<indent>[ \t]*)(?:[%!][ \t]*(?P<pip>(?:{_CALL})\b[^\n]*)"
    r"|(?P<ignored>%[ \t]*(?:autoreload|config|load_ext|matplotlib|reload_ext)\b[^\n]*)"
    r"|(?P<cell_time>%%time[ \t]*)"
    r"|%[ \t]*time[ \t]+(?P<timed>[^\n]+))$",
    re.MULTILINE,
)
_OWN = "__import__('sys').modules['_belljar.magics']"

_began: list[float] = []
"""The times at which the cell and a statement of it began, if their duration is to be printed."""


def translate(source: str) -> str:
    """Returns the cell with its magics replaced by calls, or the source itself if it has none."""
    _began.clear()
    if _LINE.search(source) is None:
        return source
    lines = source.split("\n")
    for _ in lines:
        try:
            compile("\n".join(lines), "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            # A line inside a string is not a magic; a line that causes a syntax error is.
            at = (error.lineno or 0) - 1
            if not (0 <= at < len(lines) and (found := _LINE.fullmatch(lines[at]))):
                # The tokenizer may report a quote in a magic line further down.
                return _LINE.sub(_translated, "\n".join(lines))
            lines[at] = _translated(found)
        except ValueError:
            break
        else:
            break
    return "\n".join(lines)


def _translated(found: re.Match[str]) -> str:
    return found["indent"] + _call(found)


def _call(found: re.Match[str]) -> str:
    """Returns the statements that do the work of a magic, in one line."""
    if found["pip"] is not None:
        return f"__import__('sys').modules['_belljar.pip'].magic({found['pip']!r})"
    if found["ignored"] is not None:
        return "pass"
    if found["cell_time"] is not None:
        return f"{_OWN}.begin()"
    timed = found["timed"].rstrip()
    try:
        compile(timed, "<cell>", "eval")
    except SyntaxError:
        return f"{_OWN}.begin(); {timed}; {_OWN}.end()"
    return f"{_OWN}.timed(lambda: ({timed}))"


def timed[T](function: Callable[[], T]) -> T:
    """Implements ``%time EXPRESSION``."""
    began = time.perf_counter()
    result = function()
    _print_time(time.perf_counter() - began)
    return result


def begin() -> None:
    """Begins what `end` ends."""
    _began.append(time.perf_counter())


def end() -> None:
    """Prints the time since the last `begin`, if there was one. The cell's end is the end of ``%%time``."""
    if _began:
        _print_time(time.perf_counter() - _began.pop())


def _print_time(seconds: float) -> None:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            print(f"Wall time: {seconds * factor:.3g} {unit}")
            return
    print(f"Wall time: {seconds * 1e6:.3g} µs")

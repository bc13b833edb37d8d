"""Notebook syntax in a cell: ``%pip``, ``!pip``, ``%matplotlib``, ``%time``, ``%timeit``, and ``%%capture``.

Other lines of this kind remain syntax errors. See `shell` for cells of sessions, where IPython handles all of them.
"""

import ast
import io
import re
import sys
import time
from collections.abc import Callable
from typing import TextIO

_CALL = (
    r"(?:uv\s+)?pip(?:3(?:\.\d+)?)?|(?:python(?:3(?:\.\d+)?)?|\{sys\.executable\}|\"\{sys\.executable\}\")\s+-m\s+pip"
)
_LINE = re.compile(
    rf"^(?P<indent>[ \t]*)(?:%[ \t]*(?P<pip>(?:{_CALL})\b[^\n]*)"
    rf"|![ \t]*(?P<shell_pip>(?:{_CALL})\b[^\n]*)"
    r"|(?P<ignored>%[ \t]*(?:autoreload|config|load_ext|matplotlib|reload_ext)\b[^\n]*)"
    r"|(?P<cell_time>%%time[ \t]*)"
    r"|%%capture\b(?P<captured>[^\n]*)"
    r"|%[ \t]*timeit[ \t]+(?P<repeated>[^\n]+)"
    r"|%[ \t]*time[ \t]+(?P<timed>[^\n]+))$",
    re.MULTILINE,
)
_CELL_TIMEIT = re.compile(r"\s*%%timeit\b(?P<line>[^\n]*)\n(?P<body>.*)", re.DOTALL)
_TIMEIT_OPTION = re.compile(r"[ \t]*-(?:(?P<name>[nrp])[ \t]*(?P<value>\d+)|[tc])(?=\s|$)")
_RUNS = 7
"""The number of measurements of ``%timeit``, as in IPython."""
_MIN_SECONDS = 0.2
"""The minimum duration of one measurement."""
_MAX_LOOPS = 10**9
_OWN = "__import__('sys').modules['_belljar.magics']"

_began: list[float] = []
"""The times at which the cell and a statement of it began, if their duration is to be printed."""


def translate(source: str) -> str:
    """Returns the cell with its magics replaced by calls, or the source itself if it has none."""
    _began.clear()
    if (cell := _CELL_TIMEIT.fullmatch(source)) is not None:
        return f"{_OWN}.time_repeatedly({cell['line']!r}, {cell['body']!r})"
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
    if found["shell_pip"] is not None:
        return f"__import__('sys').modules['_belljar.pip'].shell({found['shell_pip']!r})"
    if found["captured"] is not None:
        return f"{_OWN}.begin_capture({found['captured']!r})"
    if found["repeated"] is not None:
        return f"{_OWN}.time_repeatedly({found['repeated']!r})"
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
    print(f"Wall time: {_duration(seconds)}")


def _duration(seconds: float, precision: int = 3) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.{precision}g} {unit}"
    return f"{seconds * 1e9:.{precision}g} ns"


def time_repeatedly(line: str, cell: str | None = None) -> None:
    """Implements ``%timeit [-n LOOPS] [-r RUNS] [-p DIGITS] STATEMENT``, and ``%%timeit`` with the rest of a cell."""
    import statistics
    import timeit

    options: dict[str, int] = {}
    while (option := _TIMEIT_OPTION.match(line)) is not None:
        if option["name"] is not None:
            options[option["name"]] = int(option["value"])
        line = line[option.end() :]
    statement, setup = (line.strip(), "pass") if cell is None else (cell, line.strip() or "pass")
    timer = timeit.Timer(statement, setup, globals=sys.modules["__main__"].__dict__)
    loops, runs = options.get("n", 0), max(1, options.get("r", _RUNS))
    if loops < 1:
        loops = 1
        while loops < _MAX_LOOPS and timer.timeit(loops) < _MIN_SECONDS:
            loops *= 10
    times = [seconds / loops for seconds in timer.repeat(runs, loops)]
    precision = options.get("p", 3)
    mean, deviation = _duration(statistics.fmean(times), precision), _duration(statistics.pstdev(times), precision)
    runs_text = f"{runs} run{'' if runs == 1 else 's'}"
    loops_text = f"{loops:,} loop{'' if loops == 1 else 's'} each"
    print(f"{mean} ± {deviation} per loop (mean ± std. dev. of {runs_text}, {loops_text})")


class CapturedOutput:
    """The output of a cell under ``%%capture NAME``, with IPython's attributes."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err
        self.outputs: list[object] = []
        """The displays of the cell, which are not captured here."""

    @property
    def stdout(self) -> str:
        """The text on standard output."""
        return self._out.getvalue()

    @property
    def stderr(self) -> str:
        """The text on standard error."""
        return self._err.getvalue()

    def show(self) -> None:
        """Writes the text to the standard streams."""
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    __call__ = show

    def __str__(self) -> str:
        return self.stdout


_captured: list[tuple[TextIO, TextIO]] = []
"""The standard streams before ``%%capture``."""


def begin_capture(arguments: str) -> None:
    """Implements ``%%capture [--no-stdout] [--no-stderr] [--no-display] [NAME]`` up to the cell's end."""
    words = arguments.split()
    names = [word for word in words if not word.startswith("-")]
    _captured.append((sys.stdout, sys.stderr))
    out, err = io.StringIO(), io.StringIO()
    if "--no-stdout" not in words:
        sys.stdout = out
    if "--no-stderr" not in words:
        sys.stderr = err
    for name in names[:1]:
        sys.modules["__main__"].__dict__[name] = CapturedOutput(out, err)


def end_capture() -> bool:
    """Restores the standard streams. Returns whether the cell was captured."""
    if not _captured:
        return False
    sys.stdout, sys.stderr = _captured[0]
    _captured.clear()
    return True

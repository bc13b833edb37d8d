"""Running of cells, with top-level ``await`` and the value of the last expression."""

import __future__

import ast
import linecache
import sys
from collections.abc import Generator
from types import CodeType
from typing import Any

from . import display, event_loop, exchange, magics, source_cache, tools, value_json

FILENAME = "main.py"
MAX_VALUE_BYTES = 16 * 1024 * 1024
"""The maximum size of a value's JSON if the host does not set one."""

_IS_COROUTINE = 0x80  # inspect.CO_COROUTINE
_FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag

main = sys.modules["__main__"]
"""The module that cells run in. Kept here because user code may replace the entry in `sys.modules`."""


class Compiler:
    """A compiler of cells. A ``from __future__ import`` applies to the cells after it, as at Python's prompt."""

    def __init__(self) -> None:
        self.flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def parse(self, source: str, filename: str, shown: str | None = None) -> ast.Module:
        """Returns the cell's syntax tree, or raises what `compile` raises. Tracebacks show ``shown`` if it is set."""
        source_cache.register_source(source if shown is None else shown, filename)
        return compile(source, filename, "exec", self.flags | ast.PyCF_ONLY_AST, dont_inherit=True)

    def compile(self, tree: ast.AST, filename: str, mode: str) -> CodeType:
        """Returns the code of a part of the cell that was parsed last."""
        try:
            code = compile(tree, filename, mode, self.flags, dont_inherit=True)
        except SyntaxError as error:
            # Errors of the second pass, such as a `return` outside of a function, do not include the line's text.
            if error.text is None and error.filename == filename:
                error.text = linecache.getline(filename, error.lineno or 0)
            raise
        self.flags |= code.co_flags & _FUTURE_FLAGS
        source_cache.attach_source(code, filename)
        return code


compiler = Compiler()


def run(request: dict[str, Any]) -> dict[str, Any] | Generator[float | None, None, dict[str, Any]]:
    """Runs the cell of ``request``, and raises what the cell raises.

    Returns the outcome; or the steps of a cell that awaits, if the request is ``stepped``: see `event_loop.steps`.
    """
    filename = request.get("filename", FILENAME)
    code = source_cache.normalise(request["code"])
    source = magics.translate(code)
    set_globals(request.get("globals"))
    if (exchanged := request.get("exchange")) is not None:
        main.__dict__.update(exchange.receive(exchanged))
    if request.get("tools"):
        tools.install()
    tree = compiler.parse(source, filename, code)
    last = _take_last_expression(tree, source)
    parts = [compiler.compile(tree, filename, "exec")] if tree.body else []
    if last is not None:
        parts.append(compiler.compile(ast.Expression(last), filename, "eval"))
    if request.get("stepped") and _awaits(parts):
        return _steps(request, parts, last, filename)
    try:
        held = [execute(parts)]
        if last is not None:
            tools.check_value(held[0])
    finally:
        is_captured = _end()
    return _outcome(request, held, last, filename, is_captured)


def _steps(
    request: dict[str, Any], parts: list[CodeType], last: ast.expr | None, filename: str
) -> Generator[float | None, None, dict[str, Any]]:
    # Code that does not await is not run in a generator, which would change StopIteration.
    try:
        held = [(yield from event_loop.steps(_await_parts(parts)))]
        if last is not None:
            tools.check_value(held[0])
    finally:
        is_captured = _end()
    return _outcome(request, held, last, filename, is_captured)


def _end() -> bool:
    """Ends the code's run. Returns whether its output was captured."""
    is_captured = magics.end_capture()
    tools.report_never_awaited()
    return is_captured


def _outcome(
    request: dict[str, Any], held: list[Any], last: ast.expr | None, filename: str, is_captured: bool
) -> dict[str, Any]:
    """Shows what code has left, and returns its outcome. ``held`` contains the value of the last expression."""
    magics.end()
    if is_captured:
        return {"kind": "value", "value": None, "text": None}
    if last is None:
        display.show_figures()
        return {"kind": "value", "value": None, "text": None}
    if not display.show(held[0]):
        display.show_figures()
    limit = request.get("max_value_bytes", MAX_VALUE_BYTES)
    if request.get("exchange") is None:
        fields = value_json.render(held[0], limit)
    else:
        # None without a value, too.
        fields = {"value": exchange.send(held[0], limit) if held[0] is not None else None, "text": None}
    if hasattr(held[0], "cr_await"):
        source_cache.release(held, filename, last.lineno)
    return {"kind": "value"} | fields


def set_globals(names: dict[str, Any] | None) -> None:
    """Sets variables that the host passes, and resets the warning registry of the previous cell."""
    # A warning is shown again even if an earlier cell raised it at the same line.
    main.__dict__.pop("__warningregistry__", None)
    if names:
        main.__dict__.update(names)


def execute(parts: list[CodeType]) -> Any:
    """Runs the parts of a cell in ``__main__``, on the event loop if one of them awaits, and returns the last value."""
    if _awaits(parts):
        return event_loop.run(_await_parts(parts))
    value = None
    for code in parts:
        value = eval(code, main.__dict__)
    return value


def _awaits(parts: list[CodeType]) -> bool:
    return any(code.co_flags & _IS_COROUTINE for code in parts)


async def _await_parts(parts: list[CodeType]) -> Any:
    value = None
    for code in parts:
        value = eval(code, main.__dict__)
        if code.co_flags & _IS_COROUTINE:
            value = await value
    return value


def _take_last_expression(tree: ast.Module, source: str) -> ast.expr | None:
    """Removes the cell's last statement from ``tree`` and returns it, if it is an expression with a value to show."""
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        return None
    statement = tree.body[-1]
    lines = source.encode().split(b"\n")
    tail = [lines[statement.end_lineno - 1][statement.end_col_offset :], *lines[statement.end_lineno :]]
    # Only a semicolon, a comment or white space can follow a statement.
    if b"\n".join(tail).lstrip(b" \t\f\\\n").startswith(b";"):
        return None
    tree.body.pop()
    return statement.value

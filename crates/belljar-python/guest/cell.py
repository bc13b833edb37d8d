"""Run a cell: top-level ``await``, the value of the last expression."""

import __future__

import ast
import linecache
import sys
from types import CodeType
from typing import Any

from . import display, event_loop, magics, sources, values

FILENAME = "main.py"
MAX_VALUE_BYTES = 16 * 1024 * 1024
"""How large a value's JSON may get when the host names no bound."""

_IS_COROUTINE = 0x80  # inspect.CO_COROUTINE
_FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag

main = sys.modules["__main__"]
"""Where cells run. Kept here because the user's code may replace the entry in `sys.modules`."""


class Compiler:
    """Compiles cells; a ``from __future__ import`` holds for the cells after it, as at Python's prompt."""

    def __init__(self) -> None:
        self.flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def parse(self, source: str, filename: str, shown: str | None = None) -> ast.Module:
        """The cell's syntax tree; raises what `compile` raises. ``shown`` is what tracebacks are to show instead."""
        sources.announce(source if shown is None else shown, filename)
        return compile(source, filename, "exec", self.flags | ast.PyCF_ONLY_AST, dont_inherit=True)

    def compile(self, tree: ast.AST, filename: str, mode: str) -> CodeType:
        """Code for a part of the cell that was parsed last."""
        try:
            code = compile(tree, filename, mode, self.flags, dont_inherit=True)
        except SyntaxError as error:
            # Errors that only the second pass finds, such as a `return` outside of a function, come without text.
            if error.text is None and error.filename == filename:
                error.text = linecache.getline(filename, error.lineno or 0)
            raise
        self.flags |= code.co_flags & _FUTURE_FLAGS
        sources.remember(code, filename)
        return code


compiler = Compiler()


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run the cell of ``request``; raises what the cell raises."""
    filename = request.get("filename", FILENAME)
    code = sources.normalise(request["code"])
    source = magics.translate(code)
    set_globals(request.get("globals"))
    tree = compiler.parse(source, filename, code)
    last = _take_last_expression(tree, source)
    parts = [compiler.compile(tree, filename, "exec")] if tree.body else []
    if last is None:
        execute(parts)
        display.show_figures()
        return {"kind": "value", "value": None, "text": None}
    parts.append(compiler.compile(ast.Expression(last), filename, "eval"))
    held = [execute(parts)]
    if not display.show(held[0]):
        display.show_figures()
    fields = values.render(held[0], request.get("max_value_bytes", MAX_VALUE_BYTES))
    if hasattr(held[0], "cr_await"):
        sources.release(held, filename, last.lineno)
    return {"kind": "value"} | fields


def set_globals(names: dict[str, Any] | None) -> None:
    """Set variables that the host passes, and forget what only concerned the cell before."""
    # A warning that an earlier cell raised at the same line is news again.
    main.__dict__.pop("__warningregistry__", None)
    if names:
        main.__dict__.update(names)


def execute(parts: list[CodeType]) -> Any:
    """Run parts of one cell in ``__main__``, all on the event loop if one of them awaits; answer the last's value."""
    if any(code.co_flags & _IS_COROUTINE for code in parts):
        return event_loop.run(_await_parts(parts))
    value = None
    for code in parts:
        value = eval(code, main.__dict__)
    return value


async def _await_parts(parts: list[CodeType]) -> Any:
    value = None
    for code in parts:
        value = eval(code, main.__dict__)
        if code.co_flags & _IS_COROUTINE:
            value = await value
    return value


def _take_last_expression(tree: ast.Module, source: str) -> ast.expr | None:
    """Remove the cell's last statement from ``tree`` if it is an expression with a value to show."""
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        return None
    statement = tree.body[-1]
    lines = source.encode().split(b"\n")
    tail = [lines[statement.end_lineno - 1][statement.end_col_offset :], *lines[statement.end_lineno :]]
    # All that can follow a statement is a semicolon, a comment, or blank space.
    if b"\n".join(tail).lstrip(b" \t\f\\\n").startswith(b";"):
        return None
    tree.body.pop()
    return statement.value

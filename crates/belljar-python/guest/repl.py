"""Python's prompt: runs statements one by one, prints each expression's value and keeps it in ``_``."""

import ast
import codeop
import importlib
import re
import sys
from typing import Any

from . import cell, magics, scheduler, source_cache

_MAX_COMPLETIONS = 1000
_WORD = re.compile(r"[\w.]*\Z")
_IMPORTED_MODULE = re.compile(r"\s*(?:import\s+(?:[\w.]+\s*(?:as\s+\w+\s*)?,\s*)*|from\s+)\w*\Z")
"""A line whose last word is the name of a module."""


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Runs the input, and raises what it raises."""
    filename = request.get("filename", "<stdin>")
    cell.set_globals(request.get("globals"))
    try:
        code = source_cache.normalise(request["code"])
        try:
            for statement in cell.compiler.parse(magics.translate(code), filename, code).body:
                # "single" prints the argument of `sys.displayhook`: every expression's value that is not None.
                cell.execute([cell.compiler.compile(ast.Interactive([statement]), filename, "single")])
        finally:
            magics.end_capture()
        magics.end()
        scheduler.run_started()
    except Exception as error:
        sys.last_exc = error  # For `pdb.pm()`.
        raise
    return {"kind": "value", "value": None, "text": None}


def status(code: str) -> str:
    """Returns whether the input is "complete", "incomplete" or "invalid"."""
    code = magics.translate(code)
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= cell.compiler.flags
    try:
        # "single" requires the blank line that ends an indented block.
        return "incomplete" if compiler(code, "<stdin>", "single") is None else "complete"
    except SyntaxError, ValueError, OverflowError:
        pass
    # Several statements pasted at once are not valid as "single", but they run.
    try:
        if compiler(code, "<stdin>", "exec") is None:
            return "incomplete"
    except SyntaxError, ValueError, OverflowError:
        return "invalid"
    last_line = code.rpartition("\n")[2]
    return "incomplete" if last_line[:1].isspace() else "complete"


def complete(code: str) -> dict[str, Any]:
    """Returns the completions of the last word of ``code``: see `_belljar.complete`."""
    line = code.rpartition("\n")[2]
    word = found[0] if (found := _WORD.search(line)) else ""
    if _IMPORTED_MODULE.match(line):
        installed = importlib.import_module("pkgutil").iter_modules()
        names = {*sys.stdlib_module_names, *(module.name for module in installed)}
        matches = sorted(name for name in names if name.startswith(word) and (word or not name.startswith("_")))
    else:
        completer = importlib.import_module("rlcompleter").Completer(cell.main.__dict__)
        matches = (completer.attr_matches if "." in word else completer.global_matches)(word) if word else []
    return {"start": len(code) - len(word), "matches": list(dict.fromkeys(matches))[:_MAX_COMPLETIONS]}

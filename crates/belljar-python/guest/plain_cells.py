"""Cells that are plain Python, for which IPython need not look for its own syntax.

IPython tokenizes each cell with a module in Python, looks for magics, help and shell commands in the tokens, and
compiles the cell once more to find out whether it awaits something. For a short cell this takes longer than running it.
A search for the characters with which such syntax begins leads to the same result. If it finds any, or if the session
has changed IPython's transformations, IPython does its own work.
"""

import re
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

_SYNTAX = re.compile(
    r"[?\r\f\v\x1c-\x1e\x85\u2028\u2029]"  # Help, and ends of lines of unusual kinds.
    r"|>>>|In ?\["  # Prompts that were copied with the code.
    r"|=[ \t\\\n]*[%!]"  # x = %magic, x = !command
    r"|^[ \t]*(?:[%!,;/]|\.\.\.)"  # %magic, !command, calls without parentheses, prompts
    r"|^[ \t]+$",  # Lines of spaces, of which IPython removes some.
    re.MULTILINE,
)
"""A line that may be IPython's own syntax, or text that it removes."""


class Transformers(TransformerManager):
    """IPython's transformations of a cell, which plain cells skip."""

    def __init__(self) -> None:
        super().__init__()
        self._initial = self._lists()

    def transform_cell(self, cell: str) -> str:
        if not cell[:1].isspace() and _SYNTAX.search(cell) is None and self._lists() == self._initial:
            return cell if cell.endswith("\n") else f"{cell}\n"
        return super().transform_cell(cell)

    def _lists(self) -> list[list[Any]]:
        return [[*self.cleanup_transforms], [*self.line_transforms], [*self.token_transformers]]


def may_await(cell: str) -> bool:
    """Returns whether a cell contains a word without which it awaits nothing."""
    return "await" in cell or "async" in cell

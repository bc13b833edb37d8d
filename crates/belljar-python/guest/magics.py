"""Lines of notebook syntax in a cell: ``%pip install x`` and ``!pip install x``.

Only lines that call pip are translated. Other lines of this kind remain syntax errors.
"""

import ast
import re

_CALL = (
    r"(?:uv\s+)?pip(?:3(?:\.\d+)?)?|(?:python(?:3(?:\.\d+)?)?|\{sys\.executable\}|\"\{sys\.executable\}\")\s+-m\s+pip"
)
_LINE = re.compile(rf"^(?P<indent>[ \t]*)[%!][ \t]*(?P<command>(?:{_CALL})\b[^\n]*)$", re.MULTILINE)


def translate(source: str) -> str:
    """Returns the cell with its pip lines replaced by calls of `pip.magic`, or the source itself if it has none."""
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
    return f"{found['indent']}__import__('sys').modules['_belljar.pip'].magic({found['command']!r})"

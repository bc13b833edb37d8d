"""The tool that runs code, as models see it: its name, its description and its arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TOOL_NAME = "run_python"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The code to run."}},
    "required": ["code"],
    "additionalProperties": False,
}

_DESCRIPTION = (
    "Runs Python in a sandbox and returns what it prints, and the value of its last line if that is an expression."
    " `await` works outside of functions."
)
_IMAGES = " Figures are shown as images."
_STATEFUL = "Variables, imports and files stay for later calls."
_STATELESS = "Each call starts a new interpreter: variables and files of earlier calls do not exist."
_FUNCTIONS = (
    "The code can call these functions, without importing them. They run outside of the sandbox, and their results are"
    " Python values. Those with `async` are awaited: `await name(argument=value)`, or several at once with"
    " `asyncio.gather`. Errors are exceptions."
)


def describe(stubs: str, text: str | None = None, *, is_stateful: bool = True, shows_images: bool = True) -> str:
    """Returns the description of the tool.

    Args:
        stubs: The functions that the code can call, as Python stubs.
        text: The caller's text, instead of the standard one about the code, its variables and its images.
        is_stateful: If false, each call has an interpreter of its own.
        shows_images: If false, the model receives text only.
    """
    if text is None:
        text = f"{_DESCRIPTION}{_IMAGES if shows_images else ''}\n\n{_STATEFUL if is_stateful else _STATELESS}"
    return f"{text}\n\n{_FUNCTIONS}\n\n{stubs}" if stubs else text


def code_of(arguments: object) -> object:
    """Returns the code in the arguments of a call, which a model has written: a text unless the model is wrong."""
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return None
    return parsed.get("code") if isinstance(parsed, Mapping) else None


def why_not_code(code: object) -> str | None:
    """Returns the reason why a value that a model has written cannot be run, or None."""
    if code is None:
        return "the code is missing"
    if not isinstance(code, str):
        return f"the code is not a text but {type(code).__name__}"
    try:
        code.encode()
    except UnicodeEncodeError as error:
        return f"the code contains a character that is not valid Unicode: {code[error.start]!a}"
    return None

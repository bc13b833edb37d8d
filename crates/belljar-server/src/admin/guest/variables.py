"""Lists the variables of a session for operators: evaluated in the session, while no cell runs."""

import builtins
import json
import reprlib
import sys
import types
from typing import Any

# The most variables in the list, and the most characters of a name, a type and a value.
MAX_VARIABLES = 500
MAX_NAME = 80
MAX_TEXT = 160


class Listing:
    """Text whose representation is the text itself."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def describe(name: str, value: Any) -> dict[str, Any]:
    """Returns the row of a variable. Runs code of the value's type, which may do anything."""
    kind = type(value)
    row: dict[str, Any] = {"name": name[:MAX_NAME], "type": kind.__qualname__[:MAX_NAME]}
    if kind.__module__ != "builtins":
        row["type"] = f"{kind.__module__}.{kind.__qualname__}"[:MAX_NAME]
    try:
        row["size"] = int(getattr(value, "nbytes", 0)) or sys.getsizeof(value)
    except Exception:
        row["size"] = None
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            row["value"] = "shape " + " × ".join(str(int(length)) for length in shape[:8])
        else:
            short = reprlib.Repr(maxstring=MAX_TEXT, maxother=MAX_TEXT)
            row["value"] = short.repr(value)[:MAX_TEXT]
    except Exception as error:
        row["value"] = f"({type(error).__name__} in repr())"
    return row


def listing(namespace: dict[str, Any]) -> Listing:
    """Returns the variables that the code has set, as JSON."""
    hidden: Any = ()
    shell = namespace.get("get_ipython")
    if callable(shell):
        hidden = getattr(shell(), "user_ns_hidden", ())
    rows: list[dict[str, Any]] = []
    omitted = 0
    for name, value in sorted(namespace.items()):
        if name.startswith("_") or (name in hidden and hidden[name] is value) or hasattr(builtins, name):
            continue
        if isinstance(value, types.ModuleType):
            continue
        if len(rows) == MAX_VARIABLES:
            omitted += 1
            continue
        rows.append(describe(name, value))
    return Listing(json.dumps({"variables": rows, "omitted": omitted}))

"""The helper cells of the host in a kernel that runs one piece of code: missing packages, variables, the value.

The host runs each function as a cell that is not recorded, and reads the result from the display data of the MIME type
`_RESULT_TYPE`. The host does not trust the result, since the code can change it.
"""

import json
import sys
from collections.abc import Iterable
from importlib import metadata, util
from typing import Any

from IPython import get_ipython
from IPython.display import display

from . import value_json

_RESULT_TYPE = "application/vnd.belljar.result+json"
_MAX_CAUSES = 10


def missing_packages(pairs: Iterable[tuple[str, str]]) -> None:
    """Displays the packages of ``(package, module)`` pairs that are not installed."""
    _display({"missing": [package for package, module in pairs if _is_missing(package, module)]})


def _is_missing(package: str, module: str) -> bool:
    try:
        spec = util.find_spec(module.partition(".")[0])
        # The parts of a namespace package are separate packages, so the namespace alone does not suffice.
        if spec is not None and spec.origin is None:
            metadata.version(package)
    except (ImportError, ValueError):
        return True
    return spec is None


def set_globals(text: str) -> None:
    """Sets the variables of a JSON object."""
    get_ipython().user_ns.update(json.loads(text))


def render_value(execution_count: int, max_bytes: int) -> None:
    """Displays the value of a cell as JSON: see `value_json.render`."""
    _display(value_json.render(get_ipython().user_ns["Out"][execution_count], max_bytes))


def missing_module() -> None:
    """Displays the module without which the code failed: that of an import error, or of the error that caused it.

    Packages import their optional dependencies where they use them, and often raise an import error of their own.
    """
    error = getattr(sys, "last_value", None)
    for _ in range(_MAX_CAUSES):
        if not isinstance(error, ImportError) or isinstance(error, ModuleNotFoundError) and error.name:
            break
        error = error.__cause__ or error.__context__
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    _display({"module": name if isinstance(name, str) else None})


def exit_status() -> None:
    """Displays the status with which a program would end that raised the last exception, an exit.

    Displays null if the exit has a text or another object, which the program would print.
    """
    error = getattr(sys, "last_value", None)
    code = error.code if isinstance(error, SystemExit) else error
    if code is None:
        code = 0
    # The system keeps eight bits. CPython ends with -1 if the number is too large for C.
    fits = isinstance(code, int) and -(2**63) <= code < 2**63
    _display({"status": (code if fits else -1) & 0xFF if isinstance(code, int) else None})


def _display(result: dict[str, Any]) -> None:
    display({_RESULT_TYPE: result}, raw=True)

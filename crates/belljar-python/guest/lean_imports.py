"""Modules that IPython imports and that no cell needs: they are left out of the image of sessions.

jedi completes code by parsing the sources of libraries, which is switched off here, and `IPython.terminal` needs
prompt_toolkit. They are more than half of what IPython imports. Importing this module prepares the import of IPython,
and `end` lets programs import them again.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

_JEDI = "jedi"
_EMBED = "IPython.terminal.embed"


def embed(**options: Any) -> None:
    """Starts IPython in a terminal: see `IPython.terminal.embed.embed`."""
    importlib.import_module(_EMBED).embed(**options)


def end() -> None:
    """Lets programs import the modules."""
    for name in (_JEDI, _EMBED):
        sys.modules.pop(name, None)


def _begin() -> None:
    sys.modules[_JEDI] = None  # type: ignore[assignment]  # Importing it fails, for which IPython is prepared.
    module = ModuleType(_EMBED)
    module.embed = embed  # type: ignore[attr-defined]
    sys.modules[_EMBED] = module


_begin()

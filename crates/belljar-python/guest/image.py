"""Make an interpreter ready to be copied: imports, patches, and a clean ``__main__``."""

import importlib
import importlib.util
import os
import sys

from . import cell, collector, display, event_loop, immortals, interrupts, micropip, pip, processes, recursion, refusals
from . import sources, tracebacks

PRELOAD = (
    "ast",
    "asyncio",
    "base64",
    "bisect",
    "codeop",
    "collections",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "inspect",
    "io",
    "itertools",
    "json",
    "linecache",
    "logging",
    "math",
    "operator",
    "os",
    "pathlib",
    "pprint",
    "random",
    "re",
    "statistics",
    "string",
    "tempfile",
    "textwrap",
    "time",
    "traceback",
    "types",
    "typing",
    "urllib.parse",
    "uuid",
)
"""Modules of the base image: what typical programs import, so that the import costs them nothing."""

_prepared = False


def prepare() -> None:
    """The first time, import modules and install what every interpreter has."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    event_loop.install()
    refusals.install()
    processes.install()
    # Programs import these as if they were installed.
    sys.modules["micropip"] = micropip
    sys.modules["pip"] = sys.modules["pip._internal"] = pip
    recursion.install()
    interrupts.install()
    sources.install()
    display.install()
    sys.unraisablehook = tracebacks.report_unraisable
    _add_site_builtins()
    # This package is imported whole by now; from here on the path is the program's. As at Python's prompt,
    # modules in the working directory come first.
    own = os.path.dirname(os.path.dirname(__file__))
    sys.path[:] = ["", *(entry for entry in sys.path if entry not in ("", own))]
    for name in PRELOAD:
        importlib.import_module(name)


def preload(name: str) -> None:
    """Import a module of a package, with the layers that were added since the last image."""
    collector.pause()
    importlib.invalidate_caches()
    importlib.import_module(name)


def preload_attributes(name: str) -> None:
    """Look up the names in ``__all__`` of a module that finds them by ``__getattr__`` (PEP 562), as pydantic does.

    Not those of submodules: packages that offer these so do it because nobody needs all of them.
    """
    module = sys.modules[name]
    if "__getattr__" not in vars(module):
        return
    for attribute in getattr(module, "__all__", ()):
        if attribute not in vars(module) and importlib.util.find_spec(f"{name}.{attribute}") is None:
            getattr(module, attribute)


def settle() -> list[int]:
    """Leave ``__main__`` as a new program finds it, and keep the collector off what all copies share.

    The answer is the addresses of the objects that the host is to make immortal.
    """
    names = cell.main.__dict__
    for name in list(names):
        if name not in ("__builtins__", "__name__"):
            del names[name]
    event_loop.close()
    # The shell has variables of its own in there.
    if (shell := sys.modules.get(f"{__package__}.shell")) is not None:
        shell.begin()
    addresses = immortals.find()
    collector.freeze()
    return addresses


def _add_site_builtins() -> None:
    """``exit``, ``help`` and the like. The host starts CPython without `site`, which would look for more."""
    import site

    site.setquit()
    site.setcopyright()
    site.sethelper()

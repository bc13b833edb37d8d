"""Preparation of an interpreter for being copied: imports, patches, and a clean ``__main__``."""

import importlib
import importlib.util
import os
import sys

from . import (
    cell,
    display,
    event_loop,
    gc_freeze,
    hashing,
    http_clients,
    immortals,
    import_patches,
    import_readings,
    micropip,
    network,
    pip,
    pools,
    processes,
    recursion,
    scheduler,
    source_cache,
    subprocess_shim,
    threads,
    time_zones,
    tls,
    tracebacks,
    unsupported,
)
from .import_readings import Readings

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
"""The modules of the base image: typical programs import them, which costs no time then."""

_prepared = False


def prepare() -> None:
    """Imports modules and installs the patches of every interpreter. Later calls do nothing."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    import_patches.install()
    event_loop.install()
    threads.install()
    pools.install()
    processes.install()
    hashing.install()
    network.install()
    tls.install()
    http_clients.install()
    time_zones.install()
    unsupported.install()
    subprocess_shim.install()
    # Programs import these as if they were installed.
    sys.modules["micropip"] = micropip
    sys.modules["pip"] = sys.modules["pip._internal"] = pip
    recursion.install()
    source_cache.install()
    display.install()
    sys.unraisablehook = tracebacks.report_unraisable
    _add_site_builtins()
    # All modules of this package have been imported; from here on the path belongs to the program. As at Python's
    # prompt, modules in the working directory come first.
    own = os.path.dirname(os.path.dirname(__file__))
    sys.path[:] = ["", *(entry for entry in sys.path if entry not in ("", own))]
    with import_readings.observed() as readings:
        for name in PRELOAD:
            importlib.import_module(name)
    check(readings)


def preload(names: list[str]) -> Readings:
    """Imports modules of packages, from the layers that were added to the previous image.

    If a module reads random numbers or the time, the image must not contain it.
    """
    gc_freeze.pause()
    importlib.invalidate_caches()
    with scheduler.refused(), import_readings.observed() as readings:
        for name in names:
            importlib.import_module(name)
    return readings


def preload_attributes(name: str) -> Readings | None:
    """Looks up the names in ``__all__`` of a module that resolves them by ``__getattr__`` (PEP 562), as pydantic does.

    Submodules are not looked up: packages offer these lazily because most programs do not need all of them. Returns the
    same as `preload`, or None if there is nothing to look up.
    """
    module = sys.modules[name]
    if "__getattr__" not in vars(module):
        return None
    with scheduler.refused(), import_readings.observed() as readings:
        for attribute in getattr(module, "__all__", ()):
            if attribute not in vars(module) and importlib.util.find_spec(f"{name}.{attribute}") is None:
                getattr(module, attribute)
    return readings


def check(readings: Readings) -> None:
    """Raises an error if modules of the image itself have read random numbers or the time."""
    if readings.readers:
        raise RuntimeError(f"modules of the image read what must differ in each copy: {', '.join(readings.readers)}")


def finalize() -> list[int]:
    """Resets ``__main__`` to the state of a new program, and excludes the shared objects from collections.

    Returns the addresses of the objects that the host makes immortal.
    """
    names = cell.main.__dict__
    for name in list(names):
        if name not in ("__builtins__", "__name__"):
            del names[name]
    event_loop.close()
    # The shell keeps variables of its own in there.
    if (shell := sys.modules.get(f"{__package__}.shell")) is not None:
        shell.reset_session()
    addresses = immortals.find()
    gc_freeze.freeze()
    return addresses


def _add_site_builtins() -> None:
    """Adds ``exit``, ``help`` and the like. The host starts CPython without `site`, which would search for more."""
    import site

    site.setquit()
    site.setcopyright()
    site.sethelper()

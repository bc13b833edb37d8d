"""Precompile CPython's standard library. Runs once, while the runtime is prepared; no image contains it.

The library comes as a zip of sources, which Python would compile at every import. The new zip has bytecode beside
every source (tracebacks show source lines) and is stored, not deflated, so that the host can map it.
"""

import json
import warnings
import zipfile

from .bytecode import compile_source

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip can say: the same input gives the same bytes."""
_LEFT_OUT = ("_pyodide/", "pyodide/")
"""Pyodide's bridge to JavaScript, which is not there to be bridged to."""


def compile_zip(request: str) -> str:
    """Write the zip at ``target`` from the one at ``source``; answers ``{"compiled": n, "skipped": [name, …]}``."""
    paths = json.loads(request)
    compiled, skipped = 0, []
    with (
        zipfile.ZipFile(paths["source"], metadata_encoding="utf-8") as source,
        zipfile.ZipFile(paths["target"], "w", zipfile.ZIP_STORED) as target,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        for name in sorted(source.namelist()):
            if name.startswith(_LEFT_OUT):
                continue
            data = source.read(name)
            target.writestr(zipfile.ZipInfo(name, _EPOCH), data)
            if not name.endswith(".py"):
                continue
            # What a traceback shows, and what the importer would set by itself.
            path = f"{paths.get('installed', paths['source'])}/{name}"
            try:
                bytecode = compile_source(data, path)
            except SyntaxError, ValueError:
                skipped.append(name)
                continue
            target.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), bytecode)
            compiled += 1
    return json.dumps({"compiled": compiled, "skipped": skipped})

"""Compilation of CPython's standard library to bytecode. Runs once, while the runtime is prepared; no image contains
it.

The library's archive contains only sources, which Python would compile at every import. The new archive also contains
their bytecode, keeps the sources for tracebacks, and is not compressed, so that the host can map it.
"""

import json
import warnings
import zipfile

from .bytecode import compile_source

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest timestamp of the zip format: the same input results in the same bytes."""
_EXCLUDED = ("_pyodide/", "pyodide/")
"""Pyodide's bridge to JavaScript, which does not exist here."""


def compile_zip(request: str) -> str:
    """Writes the archive ``target`` from ``source``; returns ``{"compiled": n, "skipped": [name, …]}``."""
    paths = json.loads(request)
    compiled, skipped = 0, []
    with (
        zipfile.ZipFile(paths["source"], metadata_encoding="utf-8") as source,
        zipfile.ZipFile(paths["target"], "w", zipfile.ZIP_STORED) as target,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        for name in sorted(source.namelist()):
            if name.startswith(_EXCLUDED):
                continue
            data = source.read(name)
            target.writestr(zipfile.ZipInfo(name, _EPOCH), data)
            if not name.endswith(".py"):
                continue
            # The path that tracebacks show, and that the importer would set.
            path = f"{paths.get('installed', paths['source'])}/{name}"
            try:
                bytecode = compile_source(data, path)
            except SyntaxError, ValueError:
                skipped.append(name)
                continue
            target.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), bytecode)
            compiled += 1
    return json.dumps({"compiled": compiled, "skipped": skipped})

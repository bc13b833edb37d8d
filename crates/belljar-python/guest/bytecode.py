"""Compilation to bytecode that is never checked against its source: sources are in read-only layers."""

import gc
import importlib.util
import json
import marshal
import warnings


def compile_files(request: str) -> str:
    """Compiles ``files`` and writes the bytecode of all of them, concatenated, to ``target``.

    Returns ``{"compiled": [[path, length], …]}``: the path of each bytecode file, and its length. Files that fail to
    compile are omitted; importing them raises the error.
    """
    asked = json.loads(request)
    compiled = []
    gc.disable()  # Compiling creates no cycles, and a collection would traverse the whole image.
    with open(asked["target"], "wb") as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in asked["files"]:
            try:
                with open(path, "rb") as file:
                    bytecode = compile_source(file.read(), path)
            except SyntaxError, ValueError, RecursionError, MemoryError, OSError:
                continue
            target.write(bytecode)
            compiled.append((importlib.util.cache_from_source(path), len(bytecode)))
    return json.dumps({"compiled": compiled})


def compile_source(source: bytes, path: str) -> bytes:
    """Returns the content of a `.pyc` whose source is never checked (PEP 552)."""
    code = compile(source, path, "exec", dont_inherit=True)
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
    return header + importlib.util.source_hash(source) + marshal.dumps(code)

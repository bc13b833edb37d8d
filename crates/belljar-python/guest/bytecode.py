"""Bytecode that is never compared with its source again: the sources lie in layers that nobody can change."""

import gc
import importlib.util
import json
import marshal
import warnings


def compile_files(request: str) -> str:
    """Compile ``files`` and write the bytecode of all, one after the other, to ``target``.

    Answers ``{"compiled": [[path, length], …]}``: where each belongs, and how long it is. What does not compile is left
    out; importing it says why.
    """
    asked = json.loads(request)
    compiled = []
    gc.disable()  # Compiling makes no cycles: the collector would look through the whole image in vain.
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
    """The bytes of a `.pyc` whose source is never checked again (PEP 552)."""
    code = compile(source, path, "exec", dont_inherit=True)
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
    return header + importlib.util.source_hash(source) + marshal.dumps(code)

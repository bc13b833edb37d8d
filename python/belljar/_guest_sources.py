"""The Python of the integrations that runs inside of sandboxes, in the files of ``_guest``."""

from __future__ import annotations

from pathlib import Path


def guest_source(name: str) -> str:
    """Returns the source of a module that a session executes."""
    return Path(__file__).with_name("_guest").joinpath(f"{name}.py").read_text(encoding="utf-8")


def module_cell(module: str, name: str, then: str) -> str:
    """Returns the code of a cell that makes a module of a source, unless the interpreter has it, and then goes on.

    Args:
        module: The name of the module in ``sys.modules``.
        name: The name of the source.
        then: The code that follows. All variables of the cell are those of this code.
    """
    # Tracebacks leave out the frames of the files of `_belljar`.
    code = f"""import sys, types
if {module!r} not in sys.modules:
    module = sys.modules[{module!r}] = types.ModuleType({module!r})
    file = getattr(sys.modules.get("_belljar"), "__file__", "<{module}>")
    exec(compile({guest_source(name)!r}, file, "exec"), module.__dict__)
"""
    return f"exec({code!r}, {{}})\n{then}"

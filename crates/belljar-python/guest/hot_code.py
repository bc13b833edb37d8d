"""The code of functions that first cells run, moved together in an image.

CPython writes to the bytecode of functions that run: to counters of instructions that could be specialized, and to the
history of branches. A copy of an image gets a private copy of each page that it writes to, and in the heap the code
of functions that run lies between code that does not. So the code objects that first cells run are created again, one
after the other, after the host has filled the heap's holes (`heap.rs`).
"""

import gc
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType

_TOOL = 4
"""An identifier of `sys.monitoring` that no kind of tool is assigned to."""

_ran: dict[int, CodeType] = {}
"""The code that has run while `record` observed it and that `move` has not moved yet, by identity."""
_moved: dict[int, CodeType] = {}
"""The code that has been moved, in this image or in the one that it is based on."""


def move() -> None:
    """Moves the code that has been recorded."""
    moved: dict[int, CodeType] = {}
    for code in _ran.values():
        _copy(code, moved)
    gc.unfreeze()  # Objects are not listed while they are frozen.
    for function in gc.get_objects():
        if type(function) is FunctionType and (code := moved.get(id(function.__code__))) is not None:
            function.__code__ = code
    _moved.update((id(code), code) for code in moved.values())
    _ran.clear()


def record(act: Callable[[], None], *modules: ModuleType) -> None:
    """Records the code that ``act`` runs, in the order of the first calls, and the functions of ``modules``."""
    monitoring = sys.monitoring

    def note(code: CodeType, offset: int = 0) -> object:
        if id(code) not in _moved:
            _ran[id(code)] = code
        return monitoring.DISABLE

    started = (monitoring.events.PY_START, monitoring.events.PY_RESUME)
    monitoring.use_tool_id(_TOOL, "belljar")
    try:
        for event in started:
            monitoring.register_callback(_TOOL, event, note)
        monitoring.set_events(_TOOL, started[0] | started[1])
        act()
    finally:
        monitoring.set_events(_TOOL, monitoring.events.NO_EVENTS)
        monitoring.free_tool_id(_TOOL)
    for module in modules:
        for function in vars(module).values():
            if type(function) is FunctionType and function.__module__ == module.__name__:
                note(function.__code__)


def _copy(code: CodeType, moved: dict[int, CodeType]) -> CodeType:
    """Returns the copy of ``code``, in which functions that ran are copies as well."""
    if (copied := moved.get(id(code))) is None:
        constants = tuple(
            _copy(each, moved) if type(each) is CodeType and id(each) in _ran else each for each in code.co_consts
        )
        copied = moved[id(code)] = code.replace(co_consts=constants)
    return copied

"""Objects that live as long as the interpreter, so that nobody need count the references to them.

Counting writes to an object, and a page of the image that is written to is a page that each copy has to itself.
CPython does not count references to immortal objects (PEP 683); there is no function to make one, so that the host
does it: it writes the count, the first field of a `PyObject`, while an image is built.
"""

import gc
import sys
from types import CodeType
from typing import Any

_IMMORTAL = 1 << 30
"""Counts from here on mean that the object is immortal (`_Py_IMMORTAL_MINIMUM_REFCNT` where pointers have 32 bits)."""

_found: list[Any] = []
"""Keeps the objects alive until the host has made them immortal."""


def find() -> list[int]:
    """Addresses of all objects that there are and that are still mortal."""
    gc.unfreeze()  # Objects of the image that this one began with are not listed while they are frozen.
    todo, seen = gc.get_objects(), {id(_found)}
    while todo:
        found = todo.pop()
        # A buffer that is dropped must be freed: one of them is the reserve that `memory` keeps.
        if id(found) in seen or isinstance(found, bytearray):
            continue
        seen.add(id(found))
        todo += gc.get_referents(found)
        if isinstance(found, CodeType):  # The collector has no part in these: they cannot be in a cycle.
            todo += (found.co_consts, found.co_names, found.co_filename, found.co_name, found.co_qualname)
            todo += (found.co_linetable, found.co_exceptiontable)
        if sys.getrefcount(found) < _IMMORTAL:
            _found.append(found)
    return list(map(id, _found))

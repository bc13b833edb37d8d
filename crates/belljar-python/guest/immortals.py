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
    """Addresses of the objects that are still mortal.

    What is behind an object that is immortal already is not looked at: when that one was found, it was found too. What
    has been put there since, the collector lists, but for an atom here and there.
    """
    _found.clear()  # When this image is made of another one: these are immortal.
    gc.unfreeze()  # Objects are not listed while they are frozen.
    seen: dict[int, Any] = {}
    todo = gc.get_objects()
    while todo:
        # Whole levels at a time: a call for each object takes several times as long.
        new = {id(found): found for found in todo if sys.getrefcount(found) < _IMMORTAL and id(found) not in seen}
        seen |= new
        todo = gc.get_referents(*new.values())
        for found in new.values():
            if type(found) is CodeType:  # The collector has no part in these: they cannot be in a cycle.
                todo += (found.co_consts, found.co_names, found.co_filename, found.co_name, found.co_qualname)
                todo += (found.co_linetable, found.co_exceptiontable)
    # A buffer that is dropped must be freed: one of them is the reserve that `memory` keeps.
    _found.extend(found for found in seen.values() if type(found) is not bytearray)
    return list(map(id, _found))

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

_AT_ONCE = 1000
"""Objects that are followed together."""

_found: list[Any] = []
"""Keeps the objects alive until the host has made them immortal."""


def find() -> list[int]:
    """Addresses of the objects that are still mortal.

    What is behind an object that is immortal already is not looked at: when that one was found, it was found too. What
    has been put there since, the collector lists, but for an atom here and there.
    """
    _found.clear()  # When this image is made of another one: these are immortal.
    gc.unfreeze()  # Objects are not listed while they are frozen.
    todo, seen = gc.get_objects(), {id(_found)}
    while todo:
        # Many at a time: a call for each object takes several times as long. Not all, which takes more memory than the
        # rest of the image, and a copy can use what was freed, but not give it back.
        some = todo[-_AT_ONCE:]
        del todo[-_AT_ONCE:]
        new = {id(found): found for found in some if sys.getrefcount(found) < _IMMORTAL and id(found) not in seen}
        seen.update(new)
        todo += gc.get_referents(*new.values())
        for found in new.values():
            if type(found) is CodeType:  # The collector has no part in these: they cannot be in a cycle.
                todo += (found.co_consts, found.co_names, found.co_filename, found.co_name, found.co_qualname)
                todo += (found.co_linetable, found.co_exceptiontable)
            if type(found) is not bytearray:  # When it is dropped it must be freed: one is the reserve of `memory`.
                _found.append(found)
    del seen
    return list(map(id, _found))

"""Objects that exist as long as the interpreter, and whose references need not be counted.

Counting writes to the object, and each copy of the image gets a private copy of every page that it writes to. CPython
does not count references to immortal objects (PEP 683), but it offers no function to make an object immortal. So the
host writes the count, the first field of a `PyObject`, while an image is built.
"""

import gc
import sys
from types import CodeType
from typing import Any

_IMMORTAL_REFCOUNT = 1 << 30
"""The minimum reference count of an immortal object (`_Py_IMMORTAL_MINIMUM_REFCNT` for 32-bit pointers)."""

_BATCH_SIZE = 1000
"""The number of objects whose references are followed at once."""

_found: list[Any] = []
"""References that keep the objects alive until the host has made them immortal."""


def find() -> list[int]:
    """Returns the addresses of all objects that are still mortal.

    References of immortal objects are not followed: they were followed when the object was found. The collector lists
    the objects that were added since, with few exceptions of atomic type.
    """
    _found.clear()  # If this image is based on another one, these objects are already immortal.
    gc.unfreeze()  # Objects are not listed while they are frozen.
    todo, seen = gc.get_objects(), {id(_found)}
    while todo:
        # One call for many objects is several times as fast as a call for each. A call for all objects would take more
        # memory than the rest of the image, which a copy can reuse but not return.
        some = todo[-_BATCH_SIZE:]
        del todo[-_BATCH_SIZE:]
        new = {
            id(found): found for found in some if sys.getrefcount(found) < _IMMORTAL_REFCOUNT and id(found) not in seen
        }
        seen.update(new)
        todo += gc.get_referents(*new.values())
        for found in new.values():
            if type(found) is CodeType:  # The collector does not traverse these: they cannot be part of a cycle.
                todo += (found.co_consts, found.co_names, found.co_filename, found.co_name, found.co_qualname)
                todo += (found.co_linetable, found.co_exceptiontable)
            # A bytearray may be the one of `memory_reserve`, which must be freed when it is released.
            if type(found) is not bytearray:
                _found.append(found)
    del seen
    return list(map(id, _found))

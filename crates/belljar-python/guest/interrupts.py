"""Delivery of signals that arrive while CPython does not check for them.

The host cannot interrupt running code: CPython polls for signals now and then while it executes bytecode. A signal that
arrives while C code sleeps would be noticed some lines later, outside of the ``try`` that should catch it, or in this
package after the program's end.
"""

import time

_sleep = time.sleep


def raise_pending() -> None:
    """Raises the exception of a pending signal, if any."""
    repr(None)  # `PyObject_Repr` begins with `PyErr_CheckSignals`.


def sleep(seconds: float) -> None:
    """Sleeps, and raises the exception of a signal that interrupted the sleep."""
    _sleep(seconds)
    raise_pending()

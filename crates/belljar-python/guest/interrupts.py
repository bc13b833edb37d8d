"""Signals that arrive while nothing looks for them.

The host has no way to break into running code: CPython asks it, once in a while as it executes bytecode, whether a
signal has come. One that comes while C code sleeps would be noticed some lines later, outside of the
``try`` that was meant to catch it, or in our own code after the program's end.
"""

import functools
import time

_sleep = time.sleep


def deliver() -> None:
    """Raise what a signal that has come raises, here and now."""
    repr(None)  # `PyObject_Repr` begins with `PyErr_CheckSignals`.


@functools.wraps(_sleep)
def _sleep_and_deliver(seconds: float, /) -> None:
    _sleep(seconds)
    deliver()


def install() -> None:
    """Make `time.sleep` notice the signal that ended it early."""
    time.sleep = _sleep_and_deliver

"""Delivery of signals that arrive while CPython does not check for them.

The host cannot interrupt running code: CPython polls for signals now and then while it executes bytecode. A signal that
arrives while C code sleeps would be noticed some lines later, outside of the ``try`` that should catch it, or in this
package after the program's end.
"""

import select
import signal
import time

_sleep = time.sleep
_nothing = select.poll()
_MAX_POLL = 1e6
"""The longest sleep, in seconds, that fits into the timeout of `poll`."""


def raise_pending() -> None:
    """Raises the exception of a pending signal, if any."""
    repr(None)  # `PyObject_Repr` begins with `PyErr_CheckSignals`.


def sleep(seconds: float) -> None:
    """Sleeps, and raises the exception of a signal that interrupted the sleep.

    libc sleeps by reading the clock until the time is up, of which the host knows no end: it wakes up hundreds of times
    in each sleep. `poll` tells the host how long it waits, in whole milliseconds. It goes on after a signal whose
    handler raises nothing, where libc's sleep ends early, which programs under `asyncio.run` need in order to stop.
    """
    if type(seconds) in (int, float) and 0 < seconds < _MAX_POLL and _sigint_raises():
        end = time.monotonic() + seconds
        while (milliseconds := int(seconds * 1000 + 1e-6)) > 0:
            _nothing.poll(milliseconds)
            seconds = end - time.monotonic()
        if seconds <= 0:
            raise_pending()
            return
    _sleep(seconds)
    raise_pending()


def _sigint_raises() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler

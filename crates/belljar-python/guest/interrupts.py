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

    libc sleeps by reading the clock until the time is up, so that the host does not know for how long, and wakes up
    hundreds of times. `poll` tells it the time, in whole milliseconds; libc sleeps the rest. After a signal whose
    handler raises nothing, `poll` would wait on, while libc's sleep ends: coroutines of `asyncio.run`, which has such a
    handler, can be interrupted in it.
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

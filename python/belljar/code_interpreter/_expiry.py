"""The thread that ends sandboxes whose timeout has passed."""

from __future__ import annotations

import heapq
import os
import threading
import time
import weakref
from itertools import count
from typing import Protocol


class Expiring(Protocol):
    """Something that ends at a time of `time.monotonic`."""

    deadline: float

    def expire(self) -> None:
        """Ends it if its deadline, which may have changed, has passed."""


_changed = threading.Condition()
_waiting: list[tuple[float, int, weakref.ref[Expiring]]] = []
_numbers = count()
_thread: threading.Thread | None = None


def schedule(expiring: Expiring) -> None:
    """Ends something at its deadline. Has to be called again when the deadline changes."""
    global _thread
    with _changed:
        heapq.heappush(_waiting, (expiring.deadline, next(_numbers), weakref.ref(expiring)))
        if _thread is None:
            _thread = threading.Thread(target=_run, name="belljar-expiry", daemon=True)
            _thread.start()
        _changed.notify()


def _run() -> None:
    """Waits for the deadlines, and ends after the last."""
    global _thread
    while True:
        with _changed:
            if not _waiting:
                _thread = None
                return
            deadline, _, reference = _waiting[0]
            if reference() is not None and (left := deadline - time.monotonic()) > 0:
                _changed.wait(left)
                continue
            heapq.heappop(_waiting)
        expiring = reference()
        if expiring is not None:
            # Code that does not stop at once would delay the others.
            threading.Thread(target=expiring.expire, name="belljar-expire", daemon=True).start()
        del expiring


def _forget() -> None:
    global _thread, _changed
    _thread, _changed = None, threading.Condition()
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""The end of a program, in CPython's order."""

import atexit
import sys

from . import cell, event_loop, gc_freeze, scheduler, tools


def finish() -> None:
    """Waits for threads, cancels pending tasks, runs atexit callbacks, then releases the program's objects.

    `Py_FinalizeEx` uses the same order: threads, atexit, then the names of ``__main__``, whose destructors may print.
    The interpreter itself is not finalized: the host drops it as a whole.
    """
    scheduler.finish()
    event_loop.close()
    atexit._run_exitfuncs()
    sys.last_exc = None
    names = cell.main.__dict__
    # Names with one leading underscore go first, as in `_PyModule_ClearDict`.
    for private in (True, False):
        for name in list(names):
            is_private = name.startswith("_") and not name.startswith("__")
            if is_private is private and name not in ("__builtins__", "__name__"):
                names[name] = None
    tools.report_never_awaited()
    gc_freeze.collect_at_end()

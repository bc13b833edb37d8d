"""The part of Belljar that runs inside the sandboxed CPython.

The host calls the functions below; each takes one JSON text and returns one JSON text.

    preload      while an image with packages is built: import one of their modules
    preload_attributes   then, for modules that import what they offer when it is first used: use it
    prepare      once an image has all: patch, warm up; make the shell of sessions
    run          run a cell (or what a user typed at the prompt), answer its outcome
    execute      run a cell of a session, in IPython's shell
    ask          answer a question of a frontend about a cell that is being written
    is_complete  would the prompt's text run, or is more to come?
    finish       the end of a program: pending tasks, atexit callbacks, destructors

None of them raises because of what the user's code did: whatever happens is an outcome.
"""

import importlib
import sys
from collections.abc import Callable
from json import dumps, loads
from types import ModuleType
from typing import Any

from . import cell, ending, image, interactive, interrupts, memory, restored, streams, tracebacks

type Request = dict[str, Any]
type Outcome = dict[str, Any]


def _error(kind: str, message: str) -> str:
    text = f"{kind}: {message}\n" if message else f"{kind}\n"
    return dumps({"kind": "error", "type": kind, "message": message, "traceback": text})


_INTERRUPTED = _error("KeyboardInterrupt", "")
_BROKEN = _error("RuntimeError", "the code left too little memory, or changed what Python itself needs")
_NO_VALUE = {"kind": "value", "value": None, "text": None}
_WARM_UPS = 20


def prepare(request: str) -> str:
    """Make this interpreter ready to be copied; the first time, import the base image's modules (`image.PRELOAD`).

    Request: ``shell``, whether cells are going to be run in IPython's shell.

    Outcome, if all went well: ``immortals``, the addresses of objects whose reference count need not be kept.
    """
    return _answer(lambda: _prepare(loads(request)))


def preload(request: str) -> str:
    """Import ``module``. The outcome has no value, or is the error that the import raised."""
    return _answer(lambda: _preload(loads(request)))


def preload_attributes(request: str) -> str:
    """Look up what ``module`` offers. The outcome has no value, or is the error that this raised."""
    return _answer(lambda: _preload_attributes(loads(request)))


def run(request: str) -> str:
    """Run one cell.

    Request: ``code``; ``filename`` ("main.py"); ``mode`` ("cell", or "interactive", which echoes every
    statement's value as Python's prompt does); ``globals`` (names to set first); ``argv``; ``env``; ``file``
    (becomes ``__file__``); ``absent`` (what to say, by module, to code that fails for want of it); ``fresh`` (true for
    the first call after a restore); ``max_value_bytes``.

    Outcome, by ``kind``:

    * "value": ``value`` (JSON text), ``text`` (a string as it is, anything else as JSON text); both null when
      there is none. ``strict`` is there when ``value`` is not what strict JSON parsers take.
    * "error": ``type``, ``message``, ``traceback``.
    * "exit": ``code`` as the shell would see it, and ``message``, which has been written to stderr already.
    """
    return _answer(lambda: _run(loads(request)))


def execute(request: str) -> str:
    """Run one cell of a session. What it shows, its value among it, is passed to the host's call ``show``.

    Request: ``code``; ``installed``, whether the host has installed something; ``silent``, ``off_record`` and
    ``payloads``, as the host's `CellRequest` has them; for the first call after a restore ``fresh``, and ``color``,
    whether tracebacks have colours.

    Outcome: ``kind`` "cell"; ``count``, the number of the cell; ``error`` and ``traceback``, which is a list. The kinds
    "error" and "exit" are those of `run`: something left the shell itself.
    """
    return _answer(lambda: _execute(loads(request)))


def ask(request: str) -> str:
    """Answer a frontend's question in a session, without running a cell.

    Request: ``question``, which is one of these, and what it takes; ``fresh`` as for `execute`.

    * "complete": ``code`` and ``cursor``, in code points.
    * "inspect": the same, and ``detail``, 0 or 1.
    * "is_complete": ``code``.
    * "aftermath": ``expressions`` by name, to be evaluated after a cell; what the cell left for the frontend.

    Outcome: ``kind`` "answer"; ``content``, of the reply that Jupyter's messages have for the question. The kinds
    "error" and "exit" are those of `run`.
    """
    return _answer(lambda: _the_shell().ask(loads(request)))


def is_complete(request: str) -> str:
    """Say whether ``code`` is "complete", "incomplete" or "invalid" as input to the prompt."""
    return dumps({"status": interactive.status(loads(request)["code"])})


def finish(request: str) -> str:
    """Do what Python does at the end of a program; the outcome has the shape of `run`'s."""
    del request  # Nothing to say yet; the host passes "{}".
    return _answer(_finish)


def _prepare(request: Request) -> Outcome:
    image.prepare()
    # What a first cell needs, so that its lazily made state is part of the image; so often that the interpreter has
    # specialised its bytecode and does not write to it any more.
    for code in ("1 + 1", "1 / 0", "def", "await __import__('asyncio').sleep(0)") * _WARM_UPS:
        run(dumps({"code": code, "fresh": True}))
    interactive.status("1")
    if request.get("shell"):
        _the_shell().install()
        _the_shell().warm_up(_WARM_UPS)
    return {"kind": "value", "immortals": image.settle(), "standard_library": sorted(sys.stdlib_module_names)}


def _preload(request: Request) -> Outcome:
    image.preload(request["module"])
    return _NO_VALUE


def _preload_attributes(request: Request) -> Outcome:
    image.preload_attributes(request["module"])
    return _NO_VALUE


def _run(request: Request) -> Outcome:
    if request.get("fresh"):
        restored.refresh()
    restored.set_process(request.get("argv"), request.get("env"), request.get("file"))
    tracebacks.set_absent(request.get("absent", {}))
    runner = interactive.run if request.get("mode") == "interactive" else cell.run
    return runner(request)


def _execute(request: Request) -> Outcome:
    return _the_shell().execute(request)


def _the_shell() -> ModuleType:
    """The module `shell`, which stands on IPython: most images have no IPython."""
    return importlib.import_module(f"{__name__}.shell")


def _finish() -> Outcome:
    ending.finish()
    return _NO_VALUE


def _answer(act: Callable[[], Outcome]) -> str:
    try:
        with streams.guarded():
            errors = []
            try:
                memory.keep()
                outcome = act()
                interrupts.deliver()
            except BaseException as error:
                if isinstance(error, MemoryError):
                    memory.give_up()
                outcome = tracebacks.outcome(error)
                errors.append(error)
            tracebacks.release(errors)
        return dumps(outcome)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException:
        return _BROKEN

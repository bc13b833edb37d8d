"""The part of Belljar that runs inside the sandboxed CPython.

The host calls the functions below. Each takes one JSON text and returns one JSON text.

    preload              imports modules, while an image with packages is built
    preload_attributes   looks up the attributes of a module that imports its contents on first use
    prepare              begins to complete an image: modules, patches, the shell of sessions
    arrange              completes an image: moves code, and runs warm-up code
    run                  runs a cell, or input of the prompt, and returns its outcome
    execute              runs a cell of a session in IPython's shell
    resume               continues the cell that waits
    ask                  answers a frontend's request about a cell that is being written
    is_complete          returns whether input of the prompt is complete
    complete             returns the completions of input of the prompt
    finish               ends the program: pending tasks, atexit callbacks, destructors

Exceptions of the user's code do not leave these functions: they are part of the outcome.
"""

import importlib
import sys
from collections.abc import Callable, Generator
from functools import partial
from json import dumps, loads
from types import ModuleType
from typing import Any

from . import (
    after_restore,
    cell,
    event_loop,
    gc_freeze,
    hot_code,
    import_readings,
    interrupts,
    memory_reserve,
    repl,
    shutdown,
    snapshot,
    streams,
    tracebacks,
)

type Request = dict[str, Any]
type Outcome = dict[str, Any]
type Steps = Generator[float | None, None, Outcome]
"""A request that is handled in steps: see `event_loop.steps`."""


def _error(kind: str, message: str) -> str:
    text = f"{kind}: {message}\n" if message else f"{kind}\n"
    return dumps({"kind": "error", "type": kind, "message": message, "traceback": text})


_INTERRUPTED = _error("KeyboardInterrupt", "")
_INTERNAL_ERROR = _error("RuntimeError", "the code left too little memory, or changed what Python itself needs")
_NO_VALUE = {"kind": "value", "value": None, "text": None}
_WARM_UPS = 20
_waiting: Steps | None = None
"""The request that waits."""


def prepare(request: str) -> str:
    """Prepares this interpreter for being copied. The first call imports the base image's modules (`snapshot.PRELOAD`).

    Request: ``shell``, true if cells will run in IPython's shell.

    Outcome on success: ``standard_library``, the names of the standard library's modules, and ``readers``, what the
    shell's modules have read that should differ in each copy.
    """
    return _answer(lambda: _prepare(loads(request)))


def arrange(request: str) -> str:
    """Completes the image that `prepare` has begun, after the host has filled the holes of the heap.

    Request: as for `prepare`. Outcome on success: ``immortals``, the addresses of the objects that the host makes
    immortal.
    """
    return _answer(lambda: _arrange(loads(request)))


def preload(request: str) -> str:
    """Imports ``modules``. The outcome has the following lists, or is the error that an import raised.

    * ``readers``: what modules have read that the image must not contain, see `import_readings`.
    * ``dependencies``: if there are readers, the imported modules that do not depend on them.
    """
    return _answer(lambda: _preload(loads(request)))


def preload_attributes(request: str) -> str:
    """Looks up the attributes that ``module`` offers. The outcome is that of `preload`."""
    return _answer(lambda: _preload_attributes(loads(request)))


def is_complete(request: str) -> str:
    """Returns whether ``code`` is "complete", "incomplete" or "invalid" as input of the prompt."""
    return dumps({"status": repl.status(loads(request)["code"])})


def _calls(begin: Callable[[Request], Outcome | Steps]) -> Generator[str, str, None]:
    """Answers the host's calls, whose texts are sent, with ``begin``.

    A function that the host calls cannot catch an interrupt that arrived before: it is raised before the first line of
    the function. A generator goes on inside of its ``try``. One that arrives after the answer was made changes nothing,
    unless the code waits.
    """
    reply, is_answered = "", True
    interrupts_before: list[KeyboardInterrupt] = []
    while True:
        try:
            while True:
                if interrupts_before:
                    interrupt = interrupts_before.pop()
                    if _is_waiting():
                        reply = _answer(lambda: _resume({}, interrupt))
                    elif not is_answered:
                        reply = _INTERRUPTED
                    del interrupt
                is_answered = False
                # Neither text is kept between two calls: it would be in the snapshots of the session.
                request = yield (reply, reply := "")[0]
                reply = _answer(lambda: _advance(begin(loads(request))))
                is_answered = True
                del request
        except KeyboardInterrupt as error:
            interrupts_before.append(error)


def _entry(begin: Callable[[Request], Outcome | Steps]) -> Callable[[str], str]:
    """Returns the function that the host calls, which an interrupt from before the call does not leave."""
    calls = _calls(begin)
    next(calls)
    return calls.send


def _prepare(request: Request) -> Outcome:
    snapshot.prepare()
    readers: list[str] = []
    if request.get("shell"):
        with import_readings.observed() as readings:
            _shell_module().install()
        readers = readings.readers
    hot_code.record(lambda: _warm_up(request, 1), after_restore, gc_freeze, shutdown)
    return {"kind": "value", "standard_library": sorted(sys.stdlib_module_names), "readers": readers}


def _arrange(request: Request) -> Outcome:
    hot_code.move()
    _warm_up(request, _WARM_UPS)
    return {"kind": "value", "immortals": snapshot.finalize()}


def _warm_up(request: Request, times: int) -> None:
    """Runs code that first cells run, so that lazily created state is part of the image.

    It runs often enough for the interpreter to specialize its bytecode, which is not written to later.
    """
    waiting = "await __import__('asyncio').sleep(0)"
    for code in ("1 + 1", "1 / 0", "def", waiting) * times:
        run(dumps({"code": code, "renewal": "all", "stepped": True}))
    # Once: each wait with its thread leaves objects in the image.
    run(dumps({"code": waiting, "renewal": "all"}))
    repl.status("1")
    if request.get("shell"):
        _shell_module().warm_up(times)


def _preload(request: Request) -> Outcome:
    return _preloaded(snapshot.preload(request["modules"]))


def _preload_attributes(request: Request) -> Outcome:
    return _preloaded(snapshot.preload_attributes(request["module"]))


def _preloaded(readings: import_readings.Readings | None) -> Outcome:
    if readings is None or not readings.readers:
        return {"kind": "value", "readers": [], "dependencies": []}
    return {"kind": "value", "readers": readings.readers, "dependencies": readings.dependencies()}


def _run(request: Request) -> Outcome | Steps:
    if request.get("installed"):
        importlib.invalidate_caches()
    after_restore.renew(request.get("renewal"))
    after_restore.set_environment(request.get("environment"))
    after_restore.set_process(request.get("argv"), request.get("env"), request.get("file"))
    tracebacks.set_missing_modules(request.get("absent", {}))
    runner = repl.run if request.get("mode") == "interactive" else cell.run
    return runner(request)


def _execute(request: Request) -> Steps:
    after_restore.set_environment(request.get("environment"))
    runner = _shell_module() if request.get("monty") is None else importlib.import_module(f"{__name__}.monty")
    return runner.execute(request)


def _ask(request: Request) -> Outcome:
    return _shell_module().ask(request)


def _complete(request: Request) -> Outcome:
    return {"kind": "answer", "content": repl.complete(request["code"])}


def _resume(request: Request, interrupt: KeyboardInterrupt | None = None) -> Outcome:
    if _waiting is None:
        raise RuntimeError("no cell waits")
    if (renewal := request.get("renewal")) is not None:
        after_restore.renew(renewal)
    after_restore.set_environment(request.get("environment"))
    return _advance(_waiting, interrupt)


def _advance(steps: Outcome | Steps, interrupt: KeyboardInterrupt | None = None) -> Outcome:
    """Runs a request until it ends or waits. ``interrupt`` is raised where it waits."""
    global _waiting
    if isinstance(steps, dict):
        return steps
    # An interrupt that arrives here, before the code goes on, still finds that it waits.
    _waiting = steps
    try:
        timer = next(steps) if interrupt is None else steps.throw(interrupt)
    except StopIteration as end:
        return end.value
    return {"kind": "waiting", "timer": timer, "host": event_loop.waits_for_host()}


def _interruptible(act: Callable[[], Outcome]) -> Outcome:
    """Calls ``act``. An interrupt that arrives outside of the code which it continues is raised in that code.

    If the code waits afterwards, its output is flushed here, where an interrupt is not lost.
    """
    while True:
        try:
            outcome = act()
            if outcome["kind"] == "waiting":
                streams.flush()
            return outcome
        except KeyboardInterrupt as interrupt:
            if not _is_waiting():
                raise
            act = partial(_advance, _waiting, interrupt)


def _is_waiting() -> bool:
    """Returns whether a request waits, and its code is not running."""
    return _waiting is not None and _waiting.gi_suspended


def _shell_module() -> ModuleType:
    """Returns the module `shell`, which requires IPython: most images do not contain IPython."""
    return importlib.import_module(f"{__name__}.shell")


def _finish(request: Request) -> Outcome:
    del request  # Not used yet; the host passes "{}".
    shutdown.finish()
    return _NO_VALUE


def _answer(act: Callable[[], Outcome]) -> str:
    # One function, since each frame below the code counts against its recursion limit.
    try:
        while True:
            try:
                with streams.Guard() as guard:
                    errors = []
                    try:
                        memory_reserve.reserve()
                        outcome = _interruptible(act)
                        if outcome["kind"] == "waiting":
                            guard.leaves_streams = True
                        else:
                            interrupts.raise_pending()
                    except BaseException as error:
                        if isinstance(error, KeyboardInterrupt) and _is_waiting():
                            guard.leaves_streams = True
                            raise
                        if isinstance(error, MemoryError):
                            memory_reserve.release()
                        outcome = tracebacks.outcome(error)
                        errors.append(error)
                    tracebacks.release(errors)
                return dumps(outcome)
            except KeyboardInterrupt as interrupt:
                # It arrived after the code had begun to wait.
                if not _is_waiting():
                    raise
                act = partial(_advance, _waiting, interrupt)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException:
        return _INTERNAL_ERROR


run = _entry(_run)
"""Runs one cell.

Request: ``code``; ``filename`` ("main.py"); ``mode`` ("cell", or "interactive", which echoes every statement's
value as Python's prompt does); ``globals`` (variables to set first); ``argv``; ``env``; ``file`` (the value of
``__file__``); ``absent`` (by module, the notes for errors of importing modules that no package provides);
``exchange`` (``variables`` and ``functions`` of the host, see the module `exchange`);
``tools``, true if the code can import the module `tools`; ``stepped``, as for `execute`;
``renewal`` (see `after_restore.renew`); ``installed``, true if the host has installed packages;
``max_value_bytes``.

Outcome, by ``kind``:

* "value": ``value`` (JSON text) and ``text`` (a string itself, JSON text of other values); both are null without a
  value. ``strict`` is present if ``value`` is not valid for strict JSON parsers. With ``exchange``, ``value`` is
  the text that `values` describes, and ``text`` is null.
* "error": ``type``, ``message``, ``traceback``, and ``missing_module``, the name of the module without which the
  code failed, or null.
* "exit": ``code``, the exit status, and ``message``, which has already been written to stderr.
"""

execute = _entry(_execute)
"""Runs one cell of a session. Its displayed output, including its value, is passed to the host call ``show``.

Request: ``code``; ``installed``, true if the host has installed packages; ``silent``, ``store_history``
and ``collect_payloads``, as in the host's `CellRequest`; ``exchange``, ``tools`` and ``max_value_bytes``, as for
`run`; ``renewal``, as for `run`, and with "all" ``color``, true for tracebacks with colours.

With ``monty`` in the request, the module `monty` runs the cell instead.

Outcome: ``kind`` "cell"; ``count``, the number of the cell; ``error``, which is None or has ``name``,
``message``, the list ``traceback`` and ``missing_module`` as for `run`; with ``exchange`` and a value, ``value``,
its text. The kinds "error" and "exit" are those of `run`: an exception left the shell itself.

With ``stepped`` in the request, a cell that awaits returns whenever it has nothing to do. The outcome is then of
the kind "waiting", with ``timer``: the seconds until it has, or null if only a reply of the host can end the wait;
and ``host``, true if it waits for one. `resume` continues the cell.
"""

resume = _entry(_resume)
"""Continues the cell that waits. The outcome is that of `run` or `execute`.

Request: ``renewal``, as for `run`, if the interpreter is a copy of the one in which the cell began to wait.
"""

ask = _entry(_ask)
"""Answers a frontend's request in a session, without running a cell.

Request: ``request``, one of the following with its arguments; ``renewal`` as for `run`.

* "complete": ``code`` and ``cursor``, in code points.
* "inspect": the same, and ``detail``, 0 or 1.
* "is_complete": ``code``.
* "user_expressions": ``expressions`` by name, evaluated after a cell. The reply includes the cell's payloads.

Outcome: ``kind`` "answer"; ``content``, the content of the Jupyter reply message. The kinds "error" and "exit" are
those of `run`.
"""

complete = _entry(_complete)
"""Returns the completions of ``code``, input of the prompt up to the cursor.

Outcome: ``kind`` "answer"; ``content`` with ``start``, the number of characters before the completed word, and
``matches``, the words that can replace it. The kinds "error" and "exit" are those of `run`.
"""

finish = _entry(_finish)
"""Ends the program as Python does; the outcome has the form of `run`'s."""

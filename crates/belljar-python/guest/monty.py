"""Sessions of Monty's worker protocol: feeds that share a namespace, without IPython.

A feed may await at the top level, and its value is that of its last expression. Names that are not defined are those of
the parent. The outcome is an event of the protocol, for the host: ``complete`` or ``error``.
"""

import ast
import importlib
import linecache
import sys
import traceback
from collections.abc import Generator
from json import dumps
from types import CodeType, TracebackType
from typing import Any

from . import (
    after_restore,
    cell,
    event_loop,
    exchange,
    host,
    interrupts,
    monty_calls,
    monty_clock,
    monty_files,
    monty_names,
    monty_system,
    pip,
    scheduler,
    source_cache,
)
from .monty_awaits import insert_awaits
from .monty_calls import Builtins, FeedAborted
from .monty_decoding import decode
from .monty_encoding import Encoder
from .monty_objects import exception_parts, printable

_MAX_VALUE = 64 << 20
"""The maximum size of the text of a value, in characters."""
_MAX_FRAMES = 1000
_IS_COROUTINE = 0x80  # inspect.CO_COROUTINE
_HIDDEN = (__file__.rpartition("/")[0], "<frozen importlib")
"""The files whose frames tracebacks do not show."""

_session: _Session | None = None


def execute(request: dict[str, Any]) -> Generator[float | None, None, dict[str, Any]]:
    """Runs one feed, and yields when it waits: see `_belljar.execute`.

    Request: ``code``; ``monty`` with ``session``, the settings of the session, and of the feed ``number``, ``inputs``
    as names with indexes, ``values``, and ``cwd``; or with ``install``, a list of requirements.
    """
    global _session
    if request.get("installed"):
        importlib.invalidate_caches()
    after_restore.renew(request.get("renewal"))
    feed = request["monty"]
    # A session that was saved by one client may be loaded by another.
    monty_names.choose(feed["session"]["client"])
    if _session is None:
        _session = _Session(feed["session"])
    outcome: dict[str, Any] = {"kind": "cell", "count": feed["number"] + 1, "error": None}
    try:
        text = yield from _session.run(request["code"], feed)
        outcome["value"] = text
    except KeyboardInterrupt as error:
        # The host knows if this was a limit of time.
        outcome["error"] = {"name": "KeyboardInterrupt", "message": str(error), "traceback": []}
    finally:
        exchange.abandon()
    return outcome


class _Session:
    """The namespace of a session's feeds: that of ``__main__``."""

    def __init__(self, settings: dict[str, Any]) -> None:
        namespace = cell.main.__dict__
        namespace.clear()
        monty_files.install()
        policy = settings.get("policy") or {}
        monty_system.install(namespace, policy)
        monty_clock.install(namespace, policy)
        builtin_names = vars(sys.modules["builtins"])
        self.builtins = Builtins({**builtin_names, **_AWAITS}, namespace)
        self.builtins["__belljar_function__"] = self.builtins.function
        name = settings["script_name"].rpartition("/")[2] or "main.py"
        namespace.update(__name__="__main__", __doc__=None, __builtins__=self.builtins, __file__=f"/{name}")
        self._compiler = cell.Compiler()
        if (depth := settings.get("max_recursion_depth")) is not None:
            sys.setrecursionlimit(max(100, min(depth, 100_000)))

    def run(self, code: str, feed: dict[str, Any]) -> Generator[float | None, None, str]:
        """Runs a feed and returns the text of its outcome."""
        monty_calls.aborted = None
        self.builtins.is_open = True
        filename = f"<python-input-{feed['number']}>"
        try:
            monty_files.begin_feed(feed["cwd"])
            monty_system.begin_feed()
            if (requirements := feed.get("install")) is not None:
                if requirements:
                    pip.install(requirements)
                return _complete(None)
            monty_clock.begin_feed(code)
            values = decode(feed.get("values"))
            for given in feed["inputs"]:
                cell.main.__dict__[given["name"]] = values[given["value"]]
            parts = self._compile(source_cache.normalise(code), filename)
            if any(part.co_flags & _IS_COROUTINE for part in parts):
                value = yield from event_loop.steps(_await_parts(parts))
            else:
                value = None
                for part in parts:
                    value = eval(part, cell.main.__dict__)
            interrupts.raise_pending()
            scheduler.run_started()
            if monty_calls.aborted is not None:
                raise monty_calls.aborted
            return _complete(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failure = error if monty_calls.aborted is None else monty_calls.aborted
            return dumps({"error": {"exception": _describe(failure)}})
        finally:
            self.builtins.is_open = False

    def _compile(self, code: str, filename: str) -> list[CodeType]:
        tree = self._compiler.parse(code, filename)
        last = tree.body.pop().value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        known = {**self.builtins, **cell.main.__dict__}
        if last is not None:
            last = insert_awaits(last, tree, known)
        tree = insert_awaits(tree, last, known)
        parts = [self._compiler.compile(tree, filename, "exec")] if tree.body else []
        if last is not None:
            parts.append(self._compiler.compile(ast.Expression(last), filename, "eval"))
        return parts


_AWAITS = {"__belljar_call__": monty_calls.call_later, "__belljar_await__": monty_calls.call_and_await}


async def _await_parts(parts: list[CodeType]) -> Any:
    value = None
    for part in parts:
        value = eval(part, cell.main.__dict__)
        if part.co_flags & _IS_COROUTINE:
            value = await value
    return value


def _complete(value: Any) -> str:
    encoder = Encoder()
    index = encoder.add(value)
    text = dumps({"complete": {"value": index, "values": encoder.arena()}})
    if len(text) > _MAX_VALUE:
        raise MemoryError(f"the value takes {len(text)} bytes, and at most {_MAX_VALUE} are returned")
    return text


def _describe(error: BaseException) -> dict[str, Any]:
    """Returns an exception with its traceback, as the protocol has it."""
    if isinstance(error, FeedAborted):
        return error.exception
    if isinstance(error, host.HostCallError):
        return {"exc_type": "RuntimeError", "message": printable(str(error)), "traceback": []}
    name, text = exception_parts(error)
    exception: dict[str, Any] = {"exc_type": name, "message": text}
    frames = _frames(error.__traceback__)
    if isinstance(error, SyntaxError):
        message = printable(str(error.msg))
        exception["message"] = message if type(error) is SyntaxError else f"{type(error).__name__}: {message}"
        if error.filename is not None and error.lineno is not None:
            frames = [_syntax_frame(error)]
    return exception | {"traceback": frames}


def _syntax_frame(error: SyntaxError) -> dict[str, Any]:
    line, column = error.lineno or 1, max(error.offset or 1, 1)
    # The end of some errors, such as those of indentation, is -1.
    end_line, end_column = max(error.end_lineno or line, line), error.end_offset or 0
    if end_line == line:
        end_column = max(end_column, column + 1)
    return {
        "filename": printable(str(error.filename)),
        "start": [line, column],
        "end": [end_line, max(end_column, 1)],
        "preview_line": printable((error.text or "").rstrip("\n")),
        "hide_frame_name": True,
    }


def _frames(start: TracebackType | None) -> list[dict[str, Any]]:
    """Returns the frames from that of a feed on, without those of this package."""
    frames: list[dict[str, Any]] = []
    for frame, line in traceback.walk_tb(start):
        code = frame.f_code
        if code.co_filename.startswith(_HIDDEN) or not (frames or code.co_filename.startswith("<python-input-")):
            continue
        frames.append({"code": code, "line": line})
        if len(frames) > _MAX_FRAMES:
            del frames[_MAX_FRAMES // 2]
    positions = _positions(start)
    return [_frame(each["code"], each["line"], positions.get((id(each["code"]), each["line"]))) for each in frames]


def _positions(start: TracebackType | None) -> dict[tuple[int, int], Any]:
    positions = {}
    while start is not None:
        code = start.tb_frame.f_code
        key = (id(code), start.tb_lineno)
        if key not in positions and start.tb_lasti >= 0:
            positions[key] = traceback._get_code_position(code, start.tb_lasti)
        start = start.tb_next
    return positions


def _frame(code: CodeType, line: int, position: Any) -> dict[str, Any]:
    text = _line(code, line)
    _, end_line, column, end_column = position or (None, None, None, None)
    end_line = end_line or line
    start = _character(text, column) if column is not None else 1
    end = _character(_line(code, end_line), end_column) if end_column is not None else len(text) + 1
    shown = text.strip()
    is_whole_line = end_line == line and text[start - 1 : end - 1].strip() == shown
    return {
        "filename": printable(code.co_filename),
        "start": [line, start],
        "end": [end_line, end],
        "frame_name": printable(code.co_name),
        "preview_line": printable(text) or None,
        "hide_caret": is_whole_line and shown.startswith(("raise", "import", "from", "assert")),
    }


def _line(code: CodeType, line: int) -> str:
    lines = source_cache._lines.get(code)
    text = lines[line - 1] if lines is not None and line <= len(lines) else linecache.getline(code.co_filename, line)
    return text.rstrip("\n")


def _character(text: str, byte: int) -> int:
    """Returns the number of the character at an offset in UTF-8, from 1 on."""
    return (byte if text.isascii() else len(text.encode()[:byte].decode(errors="replace"))) + 1

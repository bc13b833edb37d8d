"""IPython's shell, which runs the cells of a session.

It is IPython's own interactive shell, so that magics, ``_`` and ``Out``, rich representations and tracebacks are
IPython's. Only input and output differ: rich output is passed to the host (`host.call`), requests for input go to the
host, and a few command lines run in this process (`shell_commands`).
"""

import builtins
import getpass
import importlib
import os
import sys
import warnings
from base64 import b64encode
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

from IPython.core import page
from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError, UsageError
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell
from IPython.core.magics.script import ScriptMagics
from IPython.utils.text import LSString, SList
from IPython.utils.tokenutil import token_at_cursor
from traitlets import Instance, Type

from . import (
    after_restore,
    cell,
    display,
    event_loop,
    exchange,
    host,
    import_patches,
    interrupts,
    lean_imports,
    memory_reserve,
    pip,
    plain_cells,
    scheduler,
    shell_commands,
    tools,
    tracebacks,
    value_json,
)
from .tracebacks import shorten

_DIRECTORY = "/var/lib/ipython"
"""IPython's directory: outside of the home directory, which belongs to the session."""
_MAX_DISPLAY = 12 * 1024 * 1024
"""The maximum size in characters of one display, in all its representations; larger ones are omitted."""
_MAX_FRAMES = 60
"""The number of frames at the beginning and at the end of a traceback that are kept."""
_MAX_TRACEBACK = 1_000_000
"""The maximum length in characters of an error and of a traceback, of which the beginning and the end are kept."""
_MAX_COMPLETIONS = 1000


class _History(HistoryManager):
    """A history in memory: IPython's history uses a database and a thread."""

    enabled = False


class _DisplayPublisher(DisplayPublisher):
    """A publisher that passes display data to the host."""

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *args: Any,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **options: Any,
    ) -> None:
        del args, options
        _publish("update" if update else "display", data, metadata, (transient or {}).get("display_id"))

    def clear_output(self, wait: bool = False) -> None:
        # Only a frontend that renders output while the cell runs can clear it.
        with suppress(host.HostCallError):
            host.call("show", kind="clear", wait=bool(wait))


class _DisplayHook(DisplayHook):
    """A display hook that passes the value of a cell's last line to the host."""

    def __call__(self, result: Any = None) -> None:
        tools.check_value(result)
        super().__call__(result)

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:
        _publish("result", format_dict, md_dict)

    def finish_displayhook(self) -> None:
        self._is_active = False


class Shell(InteractiveShell):
    """The shell of one session."""

    displayhook_class = Type(_DisplayHook)
    display_pub_class = Type(_DisplayPublisher)
    input_transformer_manager = Instance(plain_cells.Transformers, ())

    def __init__(self, **options: Any) -> None:
        self.traceback_lines: list[str] = []
        super().__init__(**options)

    def init_history(self) -> None:
        self.history_manager = _History(shell=self, parent=self)
        self.configurables.append(self.history_manager)

    def init_virtualenv(self) -> None:
        pass

    def should_run_async(self, raw_cell: str, *, transformed_cell: str | None = None, **options: Any) -> bool:
        if transformed_cell is not None and not plain_cells.may_await(transformed_cell):
            return False
        return super().should_run_async(raw_cell, transformed_cell=transformed_cell, **options)

    def showtraceback(self, *args: Any, **options: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, MemoryError):
            memory_reserve.release()
        if error is not None:
            tracebacks.add_advice(error)
            _remove_frames_before_cell(error)
            tracebacks.remove_last_own_frames(error)
        super().showtraceback(*args, **options)

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        del etype
        if isinstance(evalue, pip.PipError):
            stb = [f"{type(evalue).__name__}: {evalue}"]
        self.traceback_lines = list(map(_printable, stb))

    def system(self, cmd: str) -> None:
        """Implements ``!cmd``."""
        line = self.var_expand(cmd, depth=1)
        self.user_ns["_exit_code"] = _or_usage_error(lambda: shell_commands.run(line, sys.stdout, sys.stderr))

    system_piped = system_raw = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """Implements ``x = !cmd``."""
        line = self.var_expand(cmd, depth=depth + 1)
        text = _or_usage_error(lambda: shell_commands.output(line))
        return SList(text.splitlines()) if split else LSString(text)

    def set_next_input(self, text: str, replace: bool = False) -> None:
        """Implements the effect of ``%load`` and ``%recall``."""
        if _payloads:
            self.payload_manager.write_payload({"source": "set_next_input", "text": text, "replace": bool(replace)})
        else:
            super().set_next_input(text, replace)

    def ask_exit(self) -> None:
        """Handles ``exit`` and ``quit``, which do not end the session."""
        if _payloads:
            print("exit() does not end the kernel; shut it down or restart it in the frontend.", file=sys.stderr)
            return
        print("exit() does not end the session.", file=sys.stderr)

    def enable_matplotlib(self, gui: str | None = None) -> Any:
        """Implements ``%matplotlib``. Figures are always shown; matplotlib may be installed later."""
        try:
            return super().enable_matplotlib(gui)
        except ModuleNotFoundError as error:
            if error.name != "matplotlib":
                raise
            return gui, gui

    def enable_gui(self, gui: str | None = None) -> None:
        """Does nothing: there are no windows, and so no GUI event loop."""


_shell: Shell | None = None
_formats: set[str] = set()
"""The formats that the shell has from the beginning."""
_payloads = False
"""True if the running cell has a frontend with a pager and with further cells."""


def install() -> None:
    """Creates the shell, while an image is built."""
    global _shell
    lean_imports.end()
    os.makedirs(_DIRECTORY, exist_ok=True)
    ScriptMagics.shebang = _run_script
    _shell = Shell.instance(ipython_dir=_DIRECTORY, user_module=cell.main, user_ns=cell.main.__dict__)
    _shell.loop_runner = event_loop.run
    # jedi would parse library sources for seconds, and write a cache into the session's directory.
    _shell.Completer.use_jedi = False
    # Help and source code are displayed like other output.
    _shell.set_hook("show_in_pager", page.as_hook(_show_page), 90)
    _formats.update(_shell.display_formatter.formatters)
    # Registered by type, since IPython would otherwise try each representation.
    figures = _shell.display_formatter.ipython_display_formatter
    figures.for_type_by_name("matplotlib.figure", "Figure", _show_figure)
    figures.for_type_by_name("plotly.basedatatypes", "BaseFigure", _show_plotly)
    import_patches.when_imported("plotly.basedatatypes", _patch_plotly)
    # IPython's own magics run pip as a program, whose failure is not an error of the cell.
    _shell.register_magic_function(_pip, "line", "pip")
    _shell.register_magic_function(_uv, "line", "uv")
    # The message names keys that cannot be pressed here.
    warnings.filterwarnings("ignore", message="To exit: use 'exit'")
    builtins.input = _input
    getpass.getpass = _getpass


def _run_script(magics: ScriptMagics, line: str, script: str) -> None:
    """Runs ``%%bash``, ``%%python`` and all other magics that pass a cell to a program."""
    program, _, _ = line.strip().partition(" ")
    run = lambda: shell_commands.run_script(program, script, sys.stdout, sys.stderr)  # noqa: E731
    magics.shell.user_ns["_exit_code"] = _or_usage_error(run)


def _pip(line: str) -> None:
    """Install packages: ``%pip install NAME``."""
    pip.magic(f"pip {line}")


def _uv(line: str) -> None:
    """Install packages: ``%uv pip install NAME``."""
    pip.magic(f"uv {line}")


def _or_usage_error[T](run: Callable[[], T]) -> T:
    """Runs commands. The error for those that require a process has no traceback."""
    try:
        return run()
    except shell_commands.CommandError as error:
        raise UsageError(str(error)) from None


def warm_up(times: int) -> None:
    """Runs code that first cells run, so that lazily created state is part of the image."""
    shell = _current_shell()
    for code in ("x = 1\nx + 1", "1 / 0", "def", "%who", "!pwd", "await __import__('asyncio').sleep(0)") * times:
        _run_at_once({"code": code, "stepped": True})
    _run_at_once({"code": "await __import__('asyncio').sleep(0)"})
    shell.colors = "nocolor"
    _run_at_once({"code": "1 / 0"})
    shell.colors = "neutral"


def reset_session() -> None:
    """Resets the shell to the state of a new session."""
    shell = _current_shell()
    shell.reset(new_session=True)
    shell.traceback_lines = []
    sys.last_type = sys.last_value = sys.last_traceback = sys.last_exc = None


def execute(request: dict[str, Any]) -> Generator[float | None, None, dict[str, Any]]:
    """Runs one cell, and yields when it waits: see `_belljar.execute` and `event_loop.steps`."""
    if request.get("installed"):
        importlib.invalidate_caches()
    after_restore.renew(request.get("renewal"))
    if request.get("renewal") == "all":
        _current_shell().colors = "neutral" if request.get("color", True) else "nocolor"
    if request.get("tools"):
        tools.install()
    if (exchanged := request.get("exchange")) is not None:
        try:
            _current_shell().push(exchange.receive(exchanged))
        except Exception as error:
            count = _current_shell().execution_count
            lines = [f"{type(error).__name__}: {_message(error)}"]
            return {"kind": "cell", "count": count, "error": _error(error, lines)}
    try:
        return (yield from _execute(request))
    finally:
        exchange.abandon()
        tools.report_never_awaited()


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Answers a frontend's request: see `_belljar.ask`."""
    after_restore.renew(request.get("renewal"))
    handlers = {
        "complete": _complete,
        "inspect": _inspect,
        "is_complete": _is_complete,
        "user_expressions": _user_expressions,
    }
    return {"kind": "answer", "content": _to_json(handlers[request["request"]](_current_shell(), request))}


def _to_json(value: Any) -> Any:
    """Converts a value that the session's code may have created to JSON types."""
    match value:
        case dict():
            return {_printable(str(name)): _to_json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_to_json(inner) for inner in value]
        case bytes() | bytearray():
            return b64encode(value).decode()
        case str():
            return _printable(value)
        case None | bool() | int():
            return value
        case _:
            return _printable(value_json.safe_repr(value))


def _complete(shell: Shell, request: dict[str, Any]) -> dict[str, Any]:
    code, cursor = request["code"], min(request["cursor"], len(request["code"]))
    with provisionalcompleter():
        found = list(rectify_completions(code, shell.Completer.completions(code, cursor)))[:_MAX_COMPLETIONS]
    start, end = (found[0].start, found[0].end) if found else (cursor, cursor)
    # Frontends read the types of completions from this field.
    kinds = [{"start": it.start, "end": it.end, "text": it.text, "type": it.type} for it in found]
    return {
        "status": "ok",
        "matches": [it.text for it in found],
        "cursor_start": start,
        "cursor_end": end,
        "metadata": {"_jupyter_types_experimental": kinds},
    }


def _inspect(shell: Shell, request: dict[str, Any]) -> dict[str, Any]:
    name = token_at_cursor(request["code"], request["cursor"])
    try:
        forms = shell.object_inspect_mime(name, detail_level=request["detail"])
    except KeyError:
        return {"status": "ok", "found": False, "data": {}, "metadata": {}}
    # IPython renders it for its terminal pager.
    forms.pop("text/html", None)
    return {"status": "ok", "found": True, "data": forms, "metadata": {}}


def _is_complete(shell: Shell, request: dict[str, Any]) -> dict[str, Any]:
    status, spaces = shell.input_transformer_manager.check_complete(request["code"])
    return {"status": status, "indent": " " * (spaces or 0)}


def _user_expressions(shell: Shell, request: dict[str, Any]) -> dict[str, Any]:
    payloads = shell.payload_manager.read_payload()
    shell.payload_manager.clear_payload()
    return {"payload": payloads, "user_expressions": shell.user_expressions(request["expressions"])}


def _run_at_once(request: dict[str, Any]) -> dict[str, Any]:
    """Runs a cell that does not wait."""
    running = _execute(request)
    while True:
        try:
            next(running)
        except StopIteration as end:
            return end.value


def _execute(request: dict[str, Any]) -> Generator[float | None, None, dict[str, Any]]:
    global _payloads
    shell = _current_shell()
    shell.traceback_lines = []
    _payloads = bool(request.get("collect_payloads"))
    shell.payload_manager.clear_payload()
    silent = bool(request.get("silent"))
    store_history = not silent and request.get("store_history", True)
    if request.get("stepped"):
        result = yield from _run_cell(shell, request["code"], store_history, silent)
    else:
        result = shell.run_cell(request["code"], store_history=store_history, silent=silent)
    interrupts.raise_pending()
    if not isinstance(result.error_in_exec, KeyboardInterrupt):
        scheduler.run_started()
    display.show_open_figures(_show_figure)
    error = result.error_before_exec or result.error_in_exec
    outcome = {"kind": "cell", "count": shell.execution_count - 1, "error": None}
    if error is not None:
        outcome["error"] = _error(error, _shorten_traceback(shell.traceback_lines))
    elif request.get("exchange") is not None and result.result is not None:
        outcome["value"] = exchange.send(result.result, request["max_value_bytes"])
    # The result holds the value and the error, and with it the frames.
    del result, error
    return outcome


def _run_cell(
    shell: Shell, code: str, store_history: bool, silent: bool
) -> Generator[float | None, None, ExecutionResult]:
    """Does what `InteractiveShell.run_cell` does, but yields when the cell's coroutine waits.

    IPython passes the coroutine of a cell that awaits to its loop runner, and runs other cells without a loop.
    """
    waiting: list[Coroutine[Any, Any, ExecutionResult]] = []
    result = None
    shell.loop_runner = waiting.append
    try:
        try:
            # Newer releases of IPython have another argument behind that of the cell's ID.
            unset = (None,) * (InteractiveShell._run_cell.__code__.co_argcount - 5)
            result = shell._run_cell(code, store_history, silent, True, *unset)
        finally:
            shell.loop_runner = event_loop.run
        if waiting:
            try:
                result = yield from event_loop.steps(waiting.pop())
            except BaseException as error:
                unset = (None,) * (ExecutionInfo.__init__.__code__.co_argcount - 5)
                info = ExecutionInfo(code, store_history, silent, True, *unset)
                result = ExecutionResult(info)
                result.error_in_exec = error
                shell.showtraceback(running_compiled_code=True)
    finally:
        shell.events.trigger("post_execute")
        if not silent:
            shell.events.trigger("post_run_cell", result)
    return result


def _remove_frames_before_cell(error: BaseException) -> None:
    """Removes the frames that called IPython's ``run_code``, whose frame IPython leaves out of tracebacks itself."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not InteractiveShell.run_code.__code__:
        traceback = traceback.tb_next
    if traceback is not None:
        error.__traceback__ = traceback


def _error(error: BaseException, lines: list[str]) -> dict[str, Any]:
    return {
        "name": _printable(type(error).__name__),
        "message": _message(error),
        "traceback": lines,
        "missing_module": tracebacks.missing_module(error),
    }


def _current_shell() -> Shell:
    if _shell is None:
        raise RuntimeError("there is no shell in this image")
    return _shell


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as failure:
        text = f"<its str() raised {type(failure).__name__}>"
    return _printable(shorten(text, _MAX_TRACEBACK))


def _shorten_traceback(lines: list[str]) -> list[str]:
    left_out = len(lines) - 2 * _MAX_FRAMES
    if left_out > 0:
        lines = [*lines[:_MAX_FRAMES], f"[{left_out} frames left out]", *lines[-_MAX_FRAMES:]]
    if sum(map(len, lines)) > _MAX_TRACEBACK:
        lines = [shorten(line, _MAX_TRACEBACK // len(lines)) for line in lines]
    return lines


def _printable(text: str) -> str:
    """Escapes lone surrogates as stderr does: UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _show_page(text: Any, start: int = 0, screen_lines: int = 0, pager_cmd: str | None = None) -> None:
    """Shows text that is meant for a pager: help, source code."""
    if not _payloads:
        page.display_page(text, start, screen_lines)
        return
    data = text if isinstance(text, dict) else {"text/plain": text}
    data = {mime: _printable(form) for mime, form in data.items() if isinstance(form, str) and mime != "text/html"}
    _current_shell().payload_manager.write_payload({"source": "page", "data": data, "start": start})


def _publish(
    kind: str, data: dict[str, Any], metadata: dict[str, Any] | None = None, display_id: str | None = None
) -> None:
    """Passes a display in all its representations to the host."""
    room, forms, left_out = _MAX_DISPLAY, {}, []
    for mime, form in data.items():
        if form is None:
            continue
        if isinstance(form, bytes | bytearray):
            form = b64encode(form).decode()
        if isinstance(form, str):
            form, size = _printable(form), len(form)
        else:
            size = 0
        if size > room:
            left_out.append(str(mime))
            continue
        room -= size
        forms[str(mime)] = form
    if left_out:
        print(f"[too large to be shown: {', '.join(left_out)}]", file=sys.stderr)
    if not forms:
        return
    try:
        host.call("show", kind=kind, data=forms, metadata=metadata or {}, display_id=display_id)
    except (host.HostCallError, TypeError, ValueError) as refusal:
        print(f"[not shown: {value_json.safe_repr(refusal)}]", file=sys.stderr)


def _show_figure(figure: Any) -> None:
    forms: dict[str, Any] = {"image/png": display.render_png(figure), "text/plain": repr(figure)}
    for mime_type, formatter in _shell.display_formatter.formatters.items():
        # Those that the session has added, such as the data of charts.
        if mime_type not in _formats and (form := formatter(figure)) is not None:
            forms[mime_type] = form
    _publish("display", forms)


def _show_plotly(figure: Any) -> None:
    """Shows a plotly figure: as an image if a rendering engine is installed, else as HTML with its data."""
    forms: dict[str, Any] = {"text/plain": f"<{type(figure).__name__} of plotly>"}
    try:
        forms["image/png"] = figure.to_image("png")
    except Exception:
        forms["text/html"] = figure.to_html(include_plotlyjs="cdn")
        forms["application/vnd.plotly.v1+json"] = figure.to_json()
    _publish("display", forms)


def _patch_plotly(module: Any) -> None:
    module.BaseFigure.show = lambda self, *args, **options: _show_plotly(self)


def _input(prompt: object = "", /) -> str:
    return _ask(str(prompt), secret=False)


def _getpass(prompt: str = "Password: ", stream: object = None, **options: Any) -> str:
    del stream, options
    return _ask(prompt, secret=True)


def _ask(prompt: str, *, secret: bool) -> str:
    try:
        answer = host.call("input", prompt=_printable(prompt), secret=secret)
    except host.HostCallError as refusal:
        interrupts.raise_pending()
        raise StdinNotImplementedError(str(refusal)) from None
    return str(answer)

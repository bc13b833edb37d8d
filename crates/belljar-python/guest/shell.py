"""IPython's shell, in which a session's cells run.

It is the interactive shell of IPython itself, so that magics, ``_`` and ``Out``, rich representations and tracebacks are
IPython's own. What differs is where things go: output that is more than text is passed to the host (`host.call`), a
question is put to the host, and command lines are carried out in this process, as far as that can be done (`commands`).
"""

import builtins
import getpass
import importlib
import os
import sys
import warnings
from base64 import b64encode
from contextlib import suppress
from typing import Any

from IPython.core import page
from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magics.script import ScriptMagics
from IPython.utils.text import LSString, SList
from IPython.utils.tokenutil import token_at_cursor
from traitlets import Type

from . import cell, commands, display, event_loop, host, interrupts, memory, refusals, restored, values
from .tracebacks import shorten

_DIRECTORY = "/var/lib/ipython"
"""IPython's own directory: not in the home directory, which is the session's."""
_MAX_SHOWN = 12 * 1024 * 1024
"""Characters of one thing that is shown, in all its forms; larger forms are left out."""
_MAX_LINES = 60
"""Frames of a traceback that are kept at its beginning and at its end."""
_MAX_TRACEBACK = 1_000_000
"""Characters of an error and of a traceback, of which the beginning and the end are kept."""
_MAX_COMPLETIONS = 1000


class _History(HistoryManager):
    """A history in memory: IPython's own has a database and a thread."""

    enabled = False


class _Publisher(DisplayPublisher):
    """Passes what is displayed to the host."""

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
        _pass_on("update" if update else "display", data, metadata, (transient or {}).get("display_id"))

    def clear_output(self, wait: bool = False) -> None:
        # Only who draws while the cell runs can take anything back.
        with suppress(host.Refused):
            host.call("show", kind="clear", wait=bool(wait))


class _Hook(DisplayHook):
    """Passes the value of a cell's last line to the host."""

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:
        _pass_on("result", format_dict, md_dict)

    def finish_displayhook(self) -> None:
        self._is_active = False


class Shell(InteractiveShell):
    """The shell of one session."""

    displayhook_class = Type(_Hook)
    display_pub_class = Type(_Publisher)

    def __init__(self, **options: Any) -> None:
        self.traceback_lines: list[str] = []
        super().__init__(**options)

    def init_history(self) -> None:
        self.history_manager = _History(shell=self, parent=self)
        self.configurables.append(self.history_manager)

    def init_virtualenv(self) -> None:
        pass

    def showtraceback(self, *args: Any, **options: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, MemoryError):
            memory.give_up()
        super().showtraceback(*args, **options)

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        del etype, evalue
        self.traceback_lines = list(map(_printable, stb))

    def system(self, cmd: str) -> None:
        """``!cmd``."""
        status = commands.run(self.var_expand(cmd, depth=1), sys.stdout, sys.stderr)
        self.user_ns["_exit_code"] = status

    system_piped = system_raw = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """``x = !cmd``."""
        text = commands.output(self.var_expand(cmd, depth=depth + 1))
        return SList(text.splitlines()) if split else LSString(text)

    def set_next_input(self, text: str, replace: bool = False) -> None:
        """What ``%load`` and ``%recall`` call."""
        if _payloads:
            self.payload_manager.write_payload({"source": "set_next_input", "text": text, "replace": bool(replace)})
        else:
            super().set_next_input(text, replace)

    def ask_exit(self) -> None:
        """What ``exit`` and ``quit`` call."""
        if _payloads:
            print("The kernel lives on: the frontend shuts it down, or restarts it.", file=sys.stderr)
            return
        print("The session lives on: clear_session ends it, restart_session forgets its variables.", file=sys.stderr)

    def enable_matplotlib(self, gui: str | None = None) -> Any:
        """``%matplotlib``: figures are shown as they are drawn, also those of a matplotlib that is installed later."""
        try:
            return super().enable_matplotlib(gui)
        except ModuleNotFoundError as error:
            if error.name != "matplotlib":
                raise
            return gui, gui

    def enable_gui(self, gui: str | None = None) -> None:
        """There are no windows, and so no event loop of one to run."""


_shell: Shell | None = None
_payloads = False
"""Whether the cell that runs has a frontend with a pager and with further cells."""


def install() -> None:
    """Make the shell, while an image is built."""
    global _shell
    os.makedirs(_DIRECTORY, exist_ok=True)
    ScriptMagics.shebang = _run_script
    _shell = Shell.instance(ipython_dir=_DIRECTORY, user_module=cell.main, user_ns=cell.main.__dict__)
    _shell.loop_runner = event_loop.run
    # jedi would parse library sources, for seconds, and keep a cache in the session's directory.
    _shell.Completer.use_jedi = False
    # Help and source code are output like any other.
    _shell.set_hook("show_in_pager", page.as_hook(_show_page), 90)
    # IPython's classes would be asked for these forms one by one; here they are known by name.
    figures = _shell.display_formatter.ipython_display_formatter
    figures.for_type_by_name("matplotlib.figure", "Figure", _show_figure)
    figures.for_type_by_name("plotly.basedatatypes", "BaseFigure", _show_plotly)
    refusals.when_imported("plotly.basedatatypes", _patch_plotly)
    # It names keys that nobody can press.
    warnings.filterwarnings("ignore", message="To exit: use 'exit'")
    builtins.input = _input
    getpass.getpass = _getpass


def _run_script(magics: ScriptMagics, line: str, script: str) -> None:
    """``%%bash``, ``%%python`` and all other magics that give a cell to a program."""
    program, _, _ = line.strip().partition(" ")
    magics.shell.user_ns["_exit_code"] = commands.run_script(program, script, sys.stdout, sys.stderr)


def warm_up(times: int) -> None:
    """Run what first cells run, so that its lazily made state is part of the image."""
    shell = _the_shell()
    for code in ("x = 1\nx + 1", "1 / 0", "def", "%who", "!pwd", "await __import__('asyncio').sleep(0)") * times:
        _execute({"code": code})
    shell.colors = "nocolor"
    _execute({"code": "1 / 0"})
    shell.colors = "neutral"


def begin() -> None:
    """Leave the shell as a new session finds it."""
    shell = _the_shell()
    shell.reset(new_session=True)
    shell.traceback_lines = []
    sys.last_type = sys.last_value = sys.last_traceback = sys.last_exc = None


def execute(request: dict[str, Any]) -> dict[str, Any]:
    """Run one cell: see `_belljar.execute`."""
    if request.get("installed"):
        importlib.invalidate_caches()
    if request.get("fresh"):
        restored.refresh()
        _the_shell().colors = "neutral" if request.get("color", True) else "nocolor"
    return _execute(request)


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a question of a frontend: see `_belljar.ask`."""
    if request.get("fresh"):
        restored.refresh()
    answers = {"complete": _complete, "inspect": _inspect, "is_complete": _is_complete, "aftermath": _aftermath}
    return {"kind": "answer", "content": _plain(answers[request["question"]](_the_shell(), request))}


def _plain(value: Any) -> Any:
    """What JSON can say of a value that the session's code may have made."""
    match value:
        case dict():
            return {_printable(str(name)): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case bytes() | bytearray():
            return b64encode(value).decode()
        case str():
            return _printable(value)
        case None | bool() | int():
            return value
        case _:
            return _printable(values.safe_repr(value))


def _complete(shell: Shell, request: dict[str, Any]) -> dict[str, Any]:
    code, cursor = request["code"], min(request["cursor"], len(request["code"]))
    with provisionalcompleter():
        found = list(rectify_completions(code, shell.Completer.completions(code, cursor)))[:_MAX_COMPLETIONS]
    start, end = (found[0].start, found[0].end) if found else (cursor, cursor)
    # Where frontends look for what a completion is.
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
    # It is made for IPython's terminal pager.
    forms.pop("text/html", None)
    return {"status": "ok", "found": True, "data": forms, "metadata": {}}


def _is_complete(shell: Shell, request: dict[str, Any]) -> dict[str, Any]:
    status, spaces = shell.input_transformer_manager.check_complete(request["code"])
    return {"status": status, "indent": " " * (spaces or 0)}


def _aftermath(shell: Shell, request: dict[str, Any]) -> dict[str, Any]:
    payloads = shell.payload_manager.read_payload()
    shell.payload_manager.clear_payload()
    return {"payload": payloads, "user_expressions": shell.user_expressions(request["expressions"])}


def _execute(request: dict[str, Any]) -> dict[str, Any]:
    global _payloads
    shell = _the_shell()
    shell.traceback_lines = []
    _payloads = bool(request.get("payloads"))
    shell.payload_manager.clear_payload()
    silent = bool(request.get("silent"))
    result = shell.run_cell(request["code"], store_history=not (silent or request.get("off_record")), silent=silent)
    interrupts.deliver()
    _show_open_figures()
    error = result.error_before_exec or result.error_in_exec
    outcome = {"kind": "cell", "count": shell.execution_count - 1, "error": None, "traceback": []}
    if error is not None:
        outcome["error"] = _in_a_line(error)
        outcome["traceback"] = _shortened(shell.traceback_lines)
    # The result holds the value and the error, and with it the frames.
    del result, error
    return outcome


def _the_shell() -> Shell:
    if _shell is None:
        raise RuntimeError("there is no shell in this image")
    return _shell


def _in_a_line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as failure:
        text = f"<its str() raised {type(failure).__name__}>"
    name = type(error).__name__
    return _printable(shorten(f"{name}: {text}" if text else name, _MAX_TRACEBACK))


def _shortened(lines: list[str]) -> list[str]:
    left_out = len(lines) - 2 * _MAX_LINES
    if left_out > 0:
        lines = [*lines[:_MAX_LINES], f"[{left_out} frames left out]", *lines[-_MAX_LINES:]]
    if sum(map(len, lines)) > _MAX_TRACEBACK:
        lines = [shorten(line, _MAX_TRACEBACK // len(lines)) for line in lines]
    return lines


def _printable(text: str) -> str:
    """Lone surrogates as stderr shows them: UTF-8 has no place for them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _show_page(text: Any, start: int = 0, screen_lines: int = 0, pager_cmd: str | None = None) -> None:
    """What is meant for a pager: help, source code."""
    if not _payloads:
        page.display_page(text, start, screen_lines)
        return
    data = text if isinstance(text, dict) else {"text/plain": text}
    data = {mime: _printable(form) for mime, form in data.items() if isinstance(form, str) and mime != "text/html"}
    _the_shell().payload_manager.write_payload({"source": "page", "data": data, "start": start})


def _pass_on(
    kind: str, data: dict[str, Any], metadata: dict[str, Any] | None = None, display_id: str | None = None
) -> None:
    """Have the host show something, in all forms that it has."""
    room, forms, left_out = _MAX_SHOWN, {}, []
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
    except (host.Refused, TypeError, ValueError) as refusal:
        print(f"[not shown: {values.safe_repr(refusal)}]", file=sys.stderr)


def _show_figure(figure: Any) -> None:
    _pass_on("display", {"image/png": display.drawn(figure), "text/plain": repr(figure)})


def _show_open_figures() -> None:
    """Show the figures that matplotlib's pyplot has open, and close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    try:
        for number in pyplot.get_fignums():
            _show_figure(pyplot.figure(number))
        pyplot.close("all")
    except Exception as error:
        print(f"[figures are not shown: {values.safe_repr(error)}]", file=sys.stderr)


def _show_plotly(figure: Any) -> None:
    """A figure of plotly: as an image where an engine for that is installed, else as a page and its data."""
    forms: dict[str, Any] = {"text/plain": f"<{type(figure).__name__} of plotly>"}
    try:
        forms["image/png"] = figure.to_image("png")
    except Exception:
        forms["text/html"] = figure.to_html(include_plotlyjs="cdn")
        forms["application/vnd.plotly.v1+json"] = figure.to_json()
    _pass_on("display", forms)


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
    except host.Refused as refusal:
        interrupts.deliver()
        raise StdinNotImplementedError(str(refusal)) from None
    return str(answer)

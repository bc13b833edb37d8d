"""The kernel of one session: ipykernel's kernel with the settings of Belljar's sessions."""

import contextlib
import importlib
import json
import os
import random
import select
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

# Frontends' debuggers cannot reach the kernel, and importing debugpy takes half of a kernel's start.
sys.modules["debugpy"] = None  # type: ignore[assignment]
with contextlib.suppress(ImportError):
    import ipykernel.debugger  # noqa: F401
del sys.modules["debugpy"]

from ipykernel import kernelapp, zmqshell  # noqa: E402
from ipykernel.iostream import IOPubThread, OutStream  # noqa: E402
from ipykernel.ipkernel import IPythonKernel  # noqa: E402
from ipykernel.kernelapp import IPKernelApp  # noqa: E402
from ipykernel.zmqshell import ZMQInteractiveShell, ZMQShellDisplayHook  # noqa: E402
from IPython.core.error import StdinNotImplementedError  # noqa: E402
from traitlets import Type  # noqa: E402
from traitlets.config import Config  # noqa: E402

from . import event_loops, exchange, no_network, pip, plotly_display, tool_calls, tools  # noqa: E402

_REFUSED = "\x15"
"""The prefix of an input reply that is the reason for a missing answer. It cannot be typed."""


_PIPE_SIZE = 64 << 10
"""The number of bytes that a pipe holds on Linux."""


class Stream(OutStream):
    """ipykernel's standard stream, which buffers text for a while before it is sent.

    Text that was written to the other stream before is sent first, so that the order is kept.
    """

    _last: "Stream | None" = None
    _has_unsent = False
    """True when text may have been written that was not sent."""
    _pipe_lock = threading.RLock()
    """Held from a read of a pipe until its text is written. One for both streams: each may flush the other."""

    def flush(self) -> None:
        # Processes that the code ran have written to the pipe, and its thread may not have read that yet.
        self._write_from_pipe()
        # A flush takes as long without text as with text, since it waits for another thread.
        if self._has_unsent:
            self._has_unsent = False
            super().flush()

    def _watch_pipe_fd(self) -> None:
        # Replaces a loop of reads and writes, between which a flush would miss what has been read.
        while self._should_watch and self._fid is not None:
            select.select([self._fid], [], [])
            if self._should_watch:
                self._write_from_pipe()

    def _write_from_pipe(self) -> None:
        """Writes what has arrived at the stream's file descriptor, from processes or C code, to the stream."""
        if not self._should_watch or self._fid is None or not self._is_master_process():
            return
        left = _PIPE_SIZE  # A process that goes on writing does not keep a flush from ending.
        with self._pipe_lock:
            while left > 0 and select.select([self._fid], [], [], 0)[0]:
                data = os.read(self._fid, left)
                left -= len(data)
                self.write(data.decode(errors="replace"))

    def write(self, string: str) -> int | None:
        self._has_unsent = True
        last = Stream._last
        if last is not self:
            Stream._last = self
            if last is not None and not last.closed:
                last.flush()
        return super().write(string)


class DisplayHook(ZMQShellDisplayHook):
    """Shows the value of a cell, unless it is a call of a tool that was not awaited: that is an error."""

    def __call__(self, result: Any = None) -> None:
        tools.check_value(result)
        super().__call__(result)


class Shell(ZMQInteractiveShell):
    """IPython's shell, which ``exit()`` does not end."""

    displayhook_class = Type(DisplayHook)

    def ask_exit(self) -> None:
        """Explains that the session goes on. ``exit`` and ``quit`` call this."""
        print("exit() does not end the session: its variables are kept.", file=sys.stderr)

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        # A private method, but the only place that has both the exception and the text that is sent.
        short = [f"{type(evalue).__name__}: {evalue}"] if isinstance(evalue, pip.PipError) else None
        with contextlib.suppress(Exception):  # The exception's own methods may fail, or IPython may be an old one.
            short = short or no_network.short_traceback(self, evalue)
        super()._showtraceback(etype, evalue, short or stb)


class Kernel(IPythonKernel):
    """ipykernel's kernel, whose ``input()`` raises the host's reason for a missing answer."""

    shell_class = Type(Shell)
    _execute_sleep = 0
    """ipykernel sleeps after each cell so that output arrives before the reply. Streams here are flushed instead."""

    def raw_input(self, prompt: str = "") -> str:
        return _check_input_reply(super().raw_input(prompt))

    def getpass(self, prompt: str = "", stream: Any = None) -> str:
        return _check_input_reply(super().getpass(prompt, stream))


def serve(launch: dict[str, Any]) -> NoReturn:
    """Runs the kernel of this configuration until it exits."""
    status = 1
    try:
        devnull = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(devnull, stream)
        os.close(devnull)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(launch["environment"])
        os.chdir(launch["directory"])
        _reset_inherited_state(launch)
        if not launch["host_network"]:
            no_network.install(proxy=launch["proxy"])
        if not launch["network"]:
            _disable_iopub_pipe()
            _precreate_startup_readme()
        if launch["functions"] is not None:
            exchange.listen(launch["functions"])
            tools.install()
        application = IPKernelApp.instance(config=_config(launch), kernel_class=Kernel)
        application.initialize(["-f", _connection_file(launch)])
        _configure_shell(application.shell)
        if launch["functions"] is not None:
            _configure_tools(application.shell)
        if not launch["color"]:
            _turn_colors_off()
        application.start()
        status = 0
    finally:
        # Not sys.exit(): exit handlers of the zygote must not run here.
        os._exit(status)


def _reset_inherited_state(launch: dict[str, Any]) -> None:
    """Resets state that all kernels of one zygote would share."""
    sys.argv = [""]
    # Modules of the session come first, as in notebooks, and installed packages last: they do not shadow others.
    sys.path[:] = ["", *(path for path in sys.path if path != launch["code"]), launch["site"]]
    importlib.invalidate_caches()
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None
        tempfile._name_sequence = None
    _copy_font_cache(launch)


def _disable_iopub_pipe() -> None:
    """Disables the pipe by which forked processes print, a TCP socket: ZeroMQ aborts if it cannot open one."""
    kernelapp.IOPubThread = lambda socket, pipe=False, **options: IOPubThread(socket, pipe=False, **options)


def _precreate_startup_readme() -> None:
    """Creates the file that IPython would copy with its mode: without namespaces chmod is not allowed."""
    startup = os.path.join(os.environ["IPYTHONDIR"], "profile_default", "startup")
    os.makedirs(startup, exist_ok=True)
    with open(os.path.join(startup, "README"), "w"):
        pass


def _copy_font_cache(launch: dict[str, Any]) -> None:
    """Copies matplotlib's font cache, which takes seconds to build."""
    own = os.environ.get("MPLCONFIGDIR")
    if own is None or "matplotlib" in sys.modules:
        return
    with contextlib.suppress(OSError):
        os.makedirs(own, exist_ok=True)
        for name in os.listdir(launch["fonts"]):
            if name.startswith("fontlist-") and name.endswith(".json"):
                shutil.copyfile(os.path.join(launch["fonts"], name), os.path.join(own, name))


class _UnixLines:
    """A stream that replaces the line ends of a terminal, CR LF, in the text for another stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._held = ""
        """A carriage return at the end of the text so far, which a newline may follow."""

    def write(self, text: str) -> int:
        length, text = len(text), self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        self._stream.write(text.removesuffix("\r").replace("\r\n", "\n"))
        return length

    def finish(self) -> None:
        """Writes what is held."""
        if self._held:
            self._stream.write(self._held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _system(command: str, run: Callable[[str], int | None] = zmqshell.system) -> int | None:
    """Runs ``!command``, as IPython does on a terminal of its own, and prints its output without CRs at line ends."""
    stdout = sys.stdout
    lines = sys.stdout = _UnixLines(stdout)
    try:
        return run(command)
    finally:
        sys.stdout = stdout
        lines.finish()


def _config(launch: dict[str, Any]) -> Config:
    config = Config()
    config.InteractiveShell.colors = "neutral" if launch["color"] else "nocolor"
    # The history is a database, written by a thread of its own.
    config.HistoryManager.enabled = False
    # Jedi reads thousands of source files for its first completion: seconds. IPython's own completer inspects values.
    config.Completer.use_jedi = False
    config.IPKernelApp.log_level = "CRITICAL"
    config.IPKernelApp.outstream_class = f"{__name__}.Stream"
    return config


def _connection_file(launch: dict[str, Any]) -> str:
    """Writes ipykernel's connection file and returns its path."""
    path = os.path.join(launch["sockets"], "connection.json")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(launch["connection"], file)
    return path


def _configure_shell(shell: ZMQInteractiveShell) -> None:
    """Attaches the display of figures, the magic ``%pip`` and nested event loops to the shell.

    matplotlib's figures become images through the backend that ``MPLBACKEND`` names. That module attaches itself to the
    shell when it is imported (``_enable_matplotlib_integration``). The zygote imported it before there was a shell, and
    an import is not repeated, so the private function is called again here. If the zygote has not imported the module,
    the kernel does so with its first import of ``matplotlib.pyplot``.
    """
    inline = sys.modules.get("matplotlib_inline.backend_inline")
    if inline is not None:
        inline._enable_matplotlib_integration()
    plotly_display.install(shell)
    event_loops.install()
    zmqshell.system = _system
    # IPython's advice to those who call sys.exit() at a prompt.
    warnings.filterwarnings("ignore", "To exit: use")
    shell.events.register("pre_execute", event_loops.adopt_running_loop)
    shell.register_magic_function(_pip, "line", "pip")


def _configure_tools(shell: ZMQInteractiveShell) -> None:
    """Lets cells call functions of the host. Between two cells, the host does not read calls, and they are refused."""

    def begin(_: Any) -> None:
        exchange.set_serving(True)

    def end(_: Any) -> None:
        exchange.set_serving(False)
        tools.report_never_awaited()

    def shown_filename(filename: str) -> str:
        return " ".join(shell.compile.format_code_name(filename) or (filename,))

    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", end)
    tool_calls.shown_filename = shown_filename


def _turn_colors_off() -> None:
    """Unsets the variables by which ipykernel asks programs for colours, which mean nothing to models."""
    for name in ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"):
        os.environ.pop(name, None)
    os.environ.update(NO_COLOR="1", TERM="dumb")


def _pip(line: str) -> None:
    """Install packages: ``%pip install NAME``. A failure is an error of the cell."""
    import shlex

    pip.run(shlex.split(line))
    importlib.invalidate_caches()


def _check_input_reply(reply: str) -> str:
    """Returns the reply to ``input()``, or raises the host's reason for a missing answer."""
    if reply.startswith(_REFUSED):
        raise StdinNotImplementedError(reply.removeprefix(_REFUSED))
    return reply

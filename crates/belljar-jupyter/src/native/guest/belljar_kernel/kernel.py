"""The kernel of one session: ipykernel's, with what Belljar's sessions have in common."""

import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
from typing import Any, NoReturn

# Debuggers of frontends do not come this far, and importing theirs takes half of a kernel's start.
sys.modules["debugpy"] = None  # type: ignore[assignment]
with contextlib.suppress(ImportError):
    import ipykernel.debugger  # noqa: F401
del sys.modules["debugpy"]

from ipykernel import kernelapp  # noqa: E402
from ipykernel.iostream import IOPubThread, OutStream  # noqa: E402
from ipykernel.ipkernel import IPythonKernel  # noqa: E402
from ipykernel.kernelapp import IPKernelApp  # noqa: E402
from ipykernel.zmqshell import ZMQInteractiveShell  # noqa: E402
from IPython.core.error import StdinNotImplementedError  # noqa: E402
from traitlets import Type  # noqa: E402
from traitlets.config import Config  # noqa: E402

from . import figures, pip  # noqa: E402

_REFUSED = "\x15"
"""What an answer begins with that says why there is none: nobody can type it."""


class Stream(OutStream):
    """A standard stream of ipykernel's, which collects what is written for a while and then sends it.

    What was written to the other one before is sent before, so that the order stays.
    """

    _last: "Stream | None" = None
    _holds = False
    """Whether something may have been written that was not sent."""

    def flush(self) -> None:
        # To send nothing takes as long as to send something: another thread does it, and is waited for.
        if self._holds:
            self._holds = False
            super().flush()

    def write(self, string: str) -> int | None:
        self._holds = True
        last = Stream._last
        if last is not self:
            Stream._last = self
            if last is not None and not last.closed:
                last.flush()
        return super().write(string)


class Shell(ZMQInteractiveShell):
    """IPython's shell."""

    def ask_exit(self) -> None:
        """What ``exit`` and ``quit`` call."""
        print("The session lives on: clear_session ends it, restart_session forgets its variables.", file=sys.stderr)


class Kernel(IPythonKernel):
    """ipykernel's kernel, which says why nobody can be asked."""

    shell_class = Type(Shell)
    _execute_sleep = 0
    """Streams are waited for until they are flushed; ipykernel then sleeps for a while, to be sure."""

    def raw_input(self, prompt: str = "") -> str:
        return _answered(super().raw_input(prompt))

    def getpass(self, prompt: str = "", stream: Any = None) -> str:
        return _answered(super().getpass(prompt, stream))


def serve(plan: dict[str, Any]) -> NoReturn:
    """Be the kernel that the host planned, to its end."""
    status = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.close(nowhere)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(plan["environment"])
        os.chdir(plan["directory"])
        _begin_anew(plan)
        if not plan["network"]:
            _do_without_network()
            _do_without_modes()
        application = IPKernelApp.instance(config=_config(plan), kernel_class=Kernel)
        application.initialize(["-f", _connection_file(plan)])
        _furnish(application.shell)
        application.start()
        status = 0
    finally:
        # No handlers of the nursery's are to run here.
        os._exit(status)


def _begin_anew(plan: dict[str, Any]) -> None:
    """Forget what all kernels of one nursery would have in common."""
    sys.argv = [""]
    # Modules of the session first, as notebooks have it; installed ones last: what is imported stays what it was.
    sys.path[:] = ["", *(path for path in sys.path if path != plan["code"]), plan["site"]]
    importlib.invalidate_caches()
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None
        tempfile._name_sequence = None
    _lend_fonts(plan)


def _do_without_network() -> None:
    """Leave out the pipe by which forked processes print: it is a TCP socket, and ZeroMQ aborts where it gets none."""
    kernelapp.IOPubThread = lambda socket, pipe=False, **options: IOPubThread(socket, pipe=False, **options)


def _do_without_modes() -> None:
    """Leave out the file that IPython copies with its mode: without namespaces no modes are to be changed."""
    startup = os.path.join(os.environ["IPYTHONDIR"], "profile_default", "startup")
    os.makedirs(startup, exist_ok=True)
    with open(os.path.join(startup, "README"), "w"):
        pass


def _lend_fonts(plan: dict[str, Any]) -> None:
    """Spare matplotlib the making of its list of fonts, which takes seconds."""
    own = os.environ.get("MPLCONFIGDIR")
    if own is None or "matplotlib" in sys.modules:
        return
    with contextlib.suppress(OSError):
        os.makedirs(own, exist_ok=True)
        for name in os.listdir(plan["fonts"]):
            if name.startswith("fontlist-") and name.endswith(".json"):
                shutil.copyfile(os.path.join(plan["fonts"], name), os.path.join(own, name))


def _config(plan: dict[str, Any]) -> Config:
    config = Config()
    config.InteractiveShell.colors = "neutral" if plan["color"] else "nocolor"
    # Its database would have to be written, by a thread of its own.
    config.HistoryManager.enabled = False
    # It looks at sources and reads thousands of them first: seconds. IPython's own completer looks at values.
    config.Completer.use_jedi = False
    config.IPKernelApp.log_level = "CRITICAL"
    config.IPKernelApp.outstream_class = f"{__name__}.Stream"
    return config


def _connection_file(plan: dict[str, Any]) -> str:
    """Write down where to listen, as ipykernel wants it."""
    path = os.path.join(plan["sockets"], "connection.json")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(plan["connection"], file)
    return path


def _furnish(shell: ZMQInteractiveShell) -> None:
    # It was imported where there was no shell.
    inline = sys.modules.get("matplotlib_inline.backend_inline")
    if inline is not None:
        inline._enable_matplotlib_integration()
    figures.install(shell)
    shell.register_magic_function(_pip, "line", "pip")


def _pip(line: str) -> None:
    """Install packages: ``%pip install NAME``."""
    import shlex

    status = pip.main(shlex.split(line))
    if status == 0:
        importlib.invalidate_caches()


def _answered(answer: str) -> str:
    if answer.startswith(_REFUSED):
        raise StdinNotImplementedError(answer.removeprefix(_REFUSED))
    return answer

"""Contexts, files and commands of a sandbox. `belljar.code_interpreter` runs this text there; it is not imported.

The interpreter may be that of WebAssembly or a native kernel. Requests and answers are JSON.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

from IPython import get_ipython
from IPython.core.formatters import JSONFormatter
from IPython.display import display

ANSWER = "application/vnd.belljar.answer+json"
E2B_HOME = "/home/user"
MAX_CELLS = 100_000
"""The most cells of a data frame that is displayed as data, too."""

shell: Any = get_ipython()
publish: Any = display
home = E2B_HOME
"""The directory that relative paths begin at."""
transfers = os.getcwd()
"""The session's own directory, through which contents of files cross."""
contexts: dict[str, tuple[types.ModuleType, str]] = {}
"""The modules and working directories of contexts."""
active = ""
"""The context in which cells run."""
replaced: dict[str, str | None] = {}
"""The environment variables that a cell has replaced, with their values before."""
in_background: dict[str, Any] = {}
"""The functions of `background.py`, once a command was started in the background."""


class Refusal(Exception):
    """A request that is not valid. The first argument is the kind of error."""


def setup(context: str, envs: dict[str, str], new_envs: dict[str, str], charts: str) -> dict[str, Any]:
    """Prepares a new interpreter, and does nothing in one that is prepared. `charts` is the source of `charts.py`."""
    global home, active
    if contexts:
        os.environ.update(new_envs)
        return {"home": home, "native": sys.platform != "emscripten", "is_new": False}
    try:
        os.makedirs(home, exist_ok=True)
    except OSError:
        home = transfers
    os.environ.update({"HOME": home, **envs})
    os.chdir(home)
    active = context
    contexts[context] = (sys.modules["__main__"], home)
    formatters = shell.display_formatter
    data: Any = _DataFormatter(parent=formatters)
    formatters.formatters["e2b/data"] = data
    data.for_type_by_name("pandas", "DataFrame", _columns)
    data.for_type_by_name("pandas.core.frame", "DataFrame", _columns)
    formatters.formatters["e2b/chart"] = _ChartFormatter(charts, parent=formatters)
    return {"home": home, "native": sys.platform != "emscripten", "is_new": True}


class _DataFormatter(JSONFormatter):
    """The formatter of the columns of data frames."""

    format_type = "e2b/data"
    print_method = "_repr_e2b_data_"


class _ChartFormatter(JSONFormatter):
    """The formatter of the data of figures, which the first figure compiles.

    Functions that are registered for figures are removed by the backend of matplotlib.
    """

    format_type = "e2b/chart"

    def __init__(self, source: str, **options: Any) -> None:
        super().__init__(**options)
        self._source = source
        self._chart_of: Any = None

    def __call__(self, value: Any) -> Any:
        module = sys.modules.get("matplotlib.figure")
        if module is None or not isinstance(value, module.Figure):
            return None
        if self._chart_of is None:
            names: dict[str, Any] = {"__name__": "_belljar_charts"}
            exec(compile(self._source, "<charts>", "exec"), names)
            self._chart_of = names["safe_chart"]
        return self._chart_of(value)


def _columns(frame: Any) -> dict[str, Any] | None:
    if frame.size > MAX_CELLS:
        return None
    split = json.loads(frame.to_json(orient="split", date_format="iso"))
    return {str(name): [row[at] for row in split["data"]] for at, name in enumerate(split["columns"])}


def enter(context: str, envs: dict[str, str]) -> None:
    """Makes a context the one in which cells run, with environment variables for the next cell."""
    global active
    if context != active:
        if active in contexts:
            contexts[active] = (contexts[active][0], _directory())
        module, directory = contexts[context]
        shell.user_module, shell.user_ns = module, module.__dict__
        sys.modules["__main__"] = module
        active = context
        os.chdir(directory if os.path.isdir(directory) else home)
    for name, value in envs.items():
        replaced[name] = os.environ.get(name)
        os.environ[name] = value


def create_context(context: str, cwd: str | None) -> dict[str, str]:
    """Creates a context, or empties it."""
    directory = home if cwd is None else resolve(cwd)
    if not os.path.isdir(directory):
        raise Refusal("argument", f"cwd: {directory} is not a directory")
    module = types.ModuleType("__main__")
    contexts[context] = (module, directory)
    before = active
    # The shell adds its own names to the variables.
    shell.user_module, shell.user_ns = module, module.__dict__
    shell.init_user_ns()
    if before == context:
        sys.modules["__main__"] = module
        os.chdir(directory)
    elif before in contexts:
        shell.user_module, shell.user_ns = contexts[before][0], contexts[before][0].__dict__
    return {"cwd": directory}


def remove_context(context: str) -> None:
    """Drops the variables of a context."""
    contexts.pop(context, None)


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return home


def resolve(path: str) -> str:
    """Returns the absolute path of one that is relative to the home directory, or that E2B has."""
    if path == "~" or path.startswith("~/"):
        path = path[2:]
    elif home != E2B_HOME and (path == E2B_HOME or path.startswith(f"{E2B_HOME}/")):
        path = path[len(E2B_HOME) + 1 :]
    return os.path.normpath(os.path.join(home, path))


def info(path: str) -> dict[str, Any]:
    """Describes a file or a directory."""
    return _describe(resolve(path))


def _describe(path: str) -> dict[str, Any]:
    found = os.lstat(path)
    is_link = stat.S_ISLNK(found.st_mode)
    kind = "symlink" if is_link else "dir" if stat.S_ISDIR(found.st_mode) else "file"
    return {
        "name": os.path.basename(path),
        "path": path,
        "type": kind,
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "permissions": stat.filemode(found.st_mode),
        "modified": found.st_mtime,
        "target": os.readlink(path) if is_link else None,
    }


def exists(path: str) -> bool:
    """Returns whether there is a file or a directory."""
    return os.path.lexists(resolve(path))


def entries(path: str, depth: int) -> list[dict[str, Any]]:
    """Describes what a directory contains. A depth of 0 has no end."""
    found: list[dict[str, Any]] = []
    waiting = [(resolve(path), 1)]
    while waiting:
        directory, level = waiting.pop()
        for name in sorted(os.listdir(directory)):
            entry = _describe(os.path.join(directory, name))
            found.append(entry)
            if entry["type"] == "dir" and (not depth or level < depth):
                waiting.append((entry["path"], level + 1))
    return sorted(found, key=lambda entry: str(entry["path"]))


def make_directory(path: str) -> bool:
    """Creates a directory with its parents. Returns False if it is there already."""
    path = resolve(path)
    if os.path.isdir(path):
        return False
    os.makedirs(path)
    return True


def remove(path: str) -> None:
    """Removes a file, or a directory with all that it contains."""
    path = resolve(path)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def rename(old_path: str, new_path: str) -> dict[str, Any]:
    """Moves a file or a directory."""
    path = resolve(new_path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.rename(resolve(old_path), path)
    return _describe(path)


def join(parts: list[str]) -> None:
    """Appends transferred files to the first of them."""
    with open(os.path.join(transfers, parts[0]), "ab") as whole:
        for name in parts[1:]:
            part = os.path.join(transfers, name)
            with open(part, "rb") as file:
                shutil.copyfileobj(file, whole)
            os.unlink(part)


def place(name: str, path: str) -> dict[str, Any]:
    """Moves a transferred file to its place."""
    path, transfer = resolve(path), os.path.join(transfers, name)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        # Contents are replaced, as by any program that writes the file: its mode and the links to it stay.
        if os.path.exists(path):
            shutil.copyfile(transfer, path)
        else:
            shutil.move(transfer, path)
    finally:
        if os.path.lexists(transfer):
            os.unlink(transfer)
    return _describe(path)


def stage(path: str, name: str) -> int:
    """Copies a file to where it is transferred from. Returns its size."""
    path = resolve(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    shutil.copyfile(path, os.path.join(transfers, name))
    return os.stat(path).st_size


def unstage(names: list[str]) -> None:
    """Removes transferred files."""
    for name in names:
        path = os.path.join(transfers, name)
        if os.path.lexists(path):
            os.unlink(path)


def command(line: str, envs: dict[str, str], cwd: str | None) -> int:
    """Runs a command line, and writes its output to the cell's. Returns its exit code."""
    options: dict[str, Any] = {
        "cwd": _directory_of_command(cwd),
        "env": {**os.environ, **envs},
        "stdin": subprocess.DEVNULL,
    }
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "shell": True}
    if sys.platform == "emscripten":
        try:
            done = subprocess.run(line, **options)
        except OSError as error:
            raise Refusal("command", error.strerror or str(error)) from None
        _write(sys.stdout, done.stdout.decode("utf-8", "replace"))
        _write(sys.stderr, done.stderr.decode("utf-8", "replace"))
        return done.returncode
    process = subprocess.Popen(line, **options, start_new_session=True)
    try:
        _relay({process.stdout: sys.stdout, process.stderr: sys.stderr})
        return process.wait()
    finally:
        # After an interrupt by the time limit, or with processes that the command has left behind.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass


def _directory_of_command(cwd: str | None) -> str:
    directory = home if cwd is None else resolve(cwd)
    if not os.path.isdir(directory):
        raise Refusal("argument", f"cwd: {directory} is not a directory")
    return directory


def start_background(source: str, line: str, envs: dict[str, str], cwd: str | None, **options: Any) -> int:
    """Starts a command in the background, and returns its process ID. `source` is that of `background.py`."""
    if not in_background:
        names: dict[str, Any] = {"__name__": "_belljar_background"}
        exec(compile(source, "<background>", "exec"), names)
        in_background.update(names)
    return int(background("start", {"line": line, "envs": envs, "cwd": _directory_of_command(cwd), **options}))


def background(name: str, arguments: dict[str, Any]) -> Any:
    """Calls a function of `background.py`."""
    if not in_background:
        if name in ("processes", "kill"):
            return [] if name == "processes" else False
        raise Refusal("process", "no command was started in the background")
    try:
        return in_background[name](**arguments)
    except LookupError as error:
        raise Refusal("process", str(error)) from None
    except ValueError as error:
        raise Refusal("argument", str(error)) from None


def _relay(targets: dict[Any, Any]) -> None:
    """Writes what arrives in pipes to the cell's output, until all of them end.

    Not in threads: ipykernel may take what they write for output of an earlier cell.
    """
    with selectors.DefaultSelector() as selector:
        for pipe, target in targets.items():
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            selector.register(pipe, selectors.EVENT_READ, (target, decoder))
        while selector.get_map():
            for ready, _ in selector.select():
                target, decoder = ready.data
                data = os.read(ready.fd, 65536)
                _write(target, decoder.decode(data, not data))
                if not data:
                    selector.unregister(ready.fileobj)


def _write(target: Any, text: str) -> None:
    if text:
        target.write(text)
        target.flush()


OPERATIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (setup, enter, create_context, remove_context, info, exists, entries, make_directory, remove, rename)
    + (join, place, stage, unstage, command, start_background, background)
}


def call(name: str, arguments: str) -> None:
    """Performs an operation, and displays its answer. The cell of the call leaves no trace in the context."""
    for variable, value in replaced.items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
    replaced.clear()
    answer: dict[str, Any]
    try:
        answer = {"value": OPERATIONS[name](**json.loads(arguments))}
    except Refusal as error:
        answer = {"kind": error.args[0], "message": str(error.args[1])}
    except OSError as error:
        kinds = {errno.ENOENT: "missing", errno.ENOSPC: "space", errno.EDQUOT: "space"}
        message = error.strerror or str(error)
        where = f": {error.filename}" if isinstance(error.filename, str) else ""
        answer = {"kind": kinds.get(error.errno or 0, "other"), "message": f"{message}{where}"}
    publish({ANSWER: answer, "text/plain": ""}, raw=True)
    history = shell.history_manager
    for inputs in (history.input_hist_parsed, history.input_hist_raw):
        if inputs and __name__ in inputs[-1]:
            inputs.pop()
    shell.execution_count -= 1

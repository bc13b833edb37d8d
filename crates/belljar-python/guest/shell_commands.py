"""Programs that this process stands in for: processes do not exist, but a few programs are emulated.

There are ``pip``, ``ls``, ``cat``, ``cd``, ``echo``, ``pwd``, ``true``, ``false``, and ``python`` with ``-c``, ``-m``,
a file, or a program on its standard input. The error for other programs names the alternatives.
"""

import glob
import io
import os
import re
import runpy
import shlex
import stat
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import TextIO

from . import pip, scheduler

_MAX_CAT_BYTES = 1 << 24
"""The maximum number of bytes of a file that ``cat`` reads."""


class CommandError(Exception):
    """The error of a command that requires a process, or cannot be read."""

    reason: str | None = None
    """Why it requires a process."""


def run(line: str, out: TextIO, err: TextIO) -> int:
    """Runs a command line and returns its exit status. Raises `CommandError` for commands that require a process."""
    status = pip.run(line, out, err, shell=True)
    return run_parsed(parse(line), out, err) if status is None else status


def run_script(program: str, script: str, out: TextIO, err: TextIO) -> int:
    """Runs a cell that is passed to a program (``%%bash``), and returns the exit status of its last line."""
    name = os.path.basename(program)
    if _is_python(program):
        return _python(["-c", script], out, err)
    if name not in ("bash", "sh"):
        raise _unsupported(f"%%{program}", f"`{program}` is a program")
    status = 0
    for line in script.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            status = run(line, out, err)
    return status


def output(line: str) -> str:
    """Returns the output of a command line."""
    out = io.StringIO()
    run(line, out, sys.stderr)
    return out.getvalue()


def parse(line: str) -> list[list[str]]:
    """Splits a line into the words of each command; ``&&`` and ``;`` separate commands. Raises `CommandError`."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError as error:
        raise CommandError(f"the command line cannot be read: {error}") from None
    commands: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", ";"):
            commands.append([])
        elif word and set(word) <= set(";&|<>"):
            raise _unsupported(f"!{line.strip()}", f"`{word}` joins processes")
        else:
            commands[-1].append(word)
    commands = [command for command in commands if command]
    for command in commands:
        if not is_known(command[0]):
            raise _unsupported(f"!{line.strip()}", f"`{command[0]}` is a program")
    return [command if _is_python(command[0]) else [command[0], *_expand(command[1:])] for command in commands]


def is_known(program: str) -> bool:
    """Returns whether `run_parsed` can run a program."""
    return os.path.basename(program) in _COMMANDS or _is_python(program)


def programs() -> list[str]:
    """Returns the names of the programs that command lines can call."""
    return sorted([*_COMMANDS, "pip", "python"])


def run_parsed(commands: list[list[str]], out: TextIO, err: TextIO) -> int:
    """Runs known programs one after the other until one fails. Returns the exit status of the last."""
    status, directory = 0, os.getcwd()
    try:
        for words in commands:
            run_one = _python if _is_python(words[0]) else _COMMANDS[os.path.basename(words[0])]
            status = run_one(words[1:], out, err)
            if status:
                break
    finally:
        os.chdir(directory)
    return status


def _is_python(program: str) -> bool:
    return program == sys.executable or re.fullmatch(r"python(3(\.\d+)?)?", os.path.basename(program)) is not None


def _unsupported(what: str, why: str) -> CommandError:
    error = CommandError(
        f"`{what}` cannot be done: {why}, and Python in WebAssembly cannot start processes. Here there are !pip, "
        "!ls, !cat, !echo, !pwd and !python; everything else needs the native backend (Linux). Python's own shutil, "
        "pathlib, zipfile and tarfile stand in for many commands"
    )
    error.reason = why
    return error


def _expand(arguments: list[str]) -> list[str]:
    """Expands the patterns among the arguments as a shell does."""
    expanded: list[str] = []
    for argument in arguments:
        found = sorted(glob.glob(os.path.expanduser(argument))) if glob.has_magic(argument) else []
        expanded += found or [os.path.expanduser(argument)]
    return expanded


def _parse_options(name: str, arguments: list[str], known: str, err: TextIO) -> tuple[set[str], list[str]] | None:
    """Splits arguments into option letters and others; None if a letter is not in ``known``. Ignores --color."""
    letters: set[str] = set()
    rest: list[str] = []
    for argument in arguments:
        if argument.startswith("--color"):
            continue
        if argument.startswith("-") and len(argument) > 1:
            letters |= set(argument[1:])
        else:
            rest.append(argument)
    unknown = sorted(letters - set(known))
    if unknown:
        print(f"{name}: invalid option -- '{unknown[0]}'", file=err)
        return None
    return letters, rest


def _pwd(arguments: list[str], out: TextIO, err: TextIO) -> int:
    del arguments, err
    print(os.getcwd(), file=out)
    return 0


def _cd(arguments: list[str], out: TextIO, err: TextIO) -> int:
    """Changes the directory of the commands after it."""
    del out
    try:
        os.chdir(arguments[0] if arguments else os.path.expanduser("~"))
    except OSError as error:
        print(f"cd: {arguments[0]}: {error.strerror}", file=err)
        return 1
    return 0


def _echo(arguments: list[str], out: TextIO, err: TextIO) -> int:
    del err
    end = "\n"
    while arguments[:1] == ["-n"]:
        arguments, end = arguments[1:], ""
    print(*arguments, file=out, end=end)
    return 0


def _true(arguments: list[str], out: TextIO, err: TextIO) -> int:
    del arguments, out, err
    return 0


def _false(arguments: list[str], out: TextIO, err: TextIO) -> int:
    del arguments, out, err
    return 1


def _cat(arguments: list[str], out: TextIO, err: TextIO) -> int:
    parsed = _parse_options("cat", arguments, "n", err)
    if parsed is None:
        return 1
    letters, paths = parsed
    status, number = 0, 0
    for path in paths or ["-"]:
        try:
            if path == "-":
                text = sys.stdin.read(_MAX_CAT_BYTES)
            else:
                with open(path, "rb") as file:
                    text = file.read(_MAX_CAT_BYTES).decode(errors="replace")
        except OSError as error:
            print(f"cat: {path}: {error.strerror}", file=err)
            status = 1
            continue
        if "n" not in letters:
            out.write(text)
            continue
        for line in text.splitlines(keepends=True):
            number += 1
            out.write(f"{number:6}\t{line}")
    return status


def _ls(arguments: list[str], out: TextIO, err: TextIO) -> int:
    parsed = _parse_options("ls", arguments, "1AahlrRStFGo", err)
    if parsed is None:
        return 2
    letters, paths = parsed
    status = 0
    files, directories = [], []
    for path in paths or ["."]:
        try:
            is_directory = stat.S_ISDIR(os.stat(path).st_mode)
        except OSError as error:
            print(f"ls: cannot access '{path}': {error.strerror}", file=err)
            status = 2
            continue
        (directories if is_directory else files).append(path)
    _list(".", files, letters, out)
    with_headings = len(directories) + len(files) > 1 or "R" in letters
    while directories:
        directory = directories.pop(0)
        if with_headings:
            print(f"{directory}:", file=out)
        names = [name for name in os.listdir(directory) if letters & {"a", "A"} or not name.startswith(".")]
        _list(directory, [*([".", ".."] if "a" in letters else []), *sorted(names)], letters, out)
        if "R" in letters:
            inner = [os.path.join(directory, name) for name in sorted(names)]
            directories[:0] = [path for path in inner if os.path.isdir(path) and not os.path.islink(path)]
        if with_headings and directories:
            print(file=out)
    return status


def _list(directory: str, names: list[str], letters: set[str], out: TextIO) -> None:
    stats = {name: os.lstat(os.path.join(directory, name)) for name in names}
    if "S" in letters:
        names = sorted(names, key=lambda name: -stats[name].st_size)
    elif "t" in letters:
        names = sorted(names, key=lambda name: -stats[name].st_mtime)
    if "r" in letters:
        names = names[::-1]
    for name in names:
        info = stats[name]
        shown = name + ("/" if "F" in letters and stat.S_ISDIR(info.st_mode) else "")
        if "l" not in letters:
            print(shown, file=out)
            continue
        when = time.strftime("%b %d %H:%M", time.localtime(info.st_mtime))
        size = _human_size(info.st_size) if "h" in letters else str(info.st_size)
        print(f"{stat.filemode(info.st_mode)} {info.st_nlink} user user {size:>8} {when} {shown}", file=out)


def _human_size(size: float) -> str:
    for unit in ("", "K", "M", "G"):
        if size < 1024:
            return f"{size:.0f}{unit}" if size >= 10 or not unit else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}T"


_COMMANDS: dict[str, Callable[[list[str], TextIO, TextIO], int]] = {
    "cat": _cat,
    "cd": _cd,
    "echo": _echo,
    "false": _false,
    "ls": _ls,
    "pwd": _pwd,
    "true": _true,
}


def _python(arguments: list[str], out: TextIO, err: TextIO) -> int:
    """Runs ``python -c CODE``, ``python -m MODULE`` or ``python FILE``, with arguments, in a separate namespace."""
    while arguments and (
        arguments[0] in ("-I", "-E", "-s", "-S", "-u", "-B", "-q", "-O") or arguments[0][:2] in _VALUED
    ):
        arguments = arguments[2:] if arguments[0] in _VALUED else arguments[1:]
    if arguments[:1] in (["--version"], ["-V"]):
        print(f"Python {sys.version.split()[0]}", file=out)
        return 0
    if arguments[:1] in (["-c"], ["-m"]) and len(arguments) < 2:
        print(f"Argument expected for the {arguments[0]} option", file=err)
        return 2
    if arguments[:1] == ["-c"]:
        code = arguments[1]
        return _run_program(["-c", *arguments[2:]], "", lambda: _execute(code, "<string>"), out, err)
    if arguments[:1] == ["-m"]:
        module = arguments[1]
        act = lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)  # noqa: E731
        return _run_program(arguments[1:], os.getcwd(), act, out, err)
    if not arguments or arguments[0] == "-":
        return _run_program(["-", *arguments[1:]], "", lambda: _execute(sys.stdin.read(), "<stdin>"), out, err)
    if arguments[0].startswith("-"):
        print(f"unknown option {arguments[0]}", file=err)
        return 2
    path = arguments[0]
    if not os.path.exists(path):
        print(f"python: can't open file '{os.path.abspath(path)}': [Errno 2] No such file or directory", file=err)
        return 2
    directory = os.path.dirname(os.path.abspath(path))
    return _run_program(arguments, directory, lambda: runpy.run_path(path, run_name="__main__"), out, err)


_VALUED = ("-W", "-X")
"""Python's options with a value that have no effect here."""


def _execute(code: str, filename: str) -> None:
    module = type(sys)("__main__")
    module.__dict__["__builtins__"] = __builtins__
    saved, sys.modules["__main__"] = sys.modules["__main__"], module
    try:
        exec(compile(code, filename, "exec", dont_inherit=True), module.__dict__)
    finally:
        sys.modules["__main__"] = saved


def _run_program(argv: list[str], directory: str, act: Callable[[], object], out: TextIO, err: TextIO) -> int:
    """Runs a Python program with its own arguments, path and modules, and returns its exit status."""
    saved_argv, saved_path, modules = sys.argv, sys.path[:], set(sys.modules)
    sys.argv = argv
    sys.path[:1] = [directory]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            try:
                act()
                scheduler.run_started()
                return 0
            except SystemExit as end:
                if end.code is None or isinstance(end.code, int):
                    return (end.code or 0) & 0xFF
                print(end.code, file=err)
                return 1
            except Exception as error:
                _print_error(error, err)
                return 1
    finally:
        sys.argv = saved_argv
        sys.path[:] = saved_path
        # The files of the next program may be others, or have changed.
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if isinstance(file, str) and not file.startswith("/lib/"):
                del sys.modules[name]


def _print_error(error: Exception, err: TextIO) -> None:
    # The first frames belong to this module and runpy.
    own = os.path.dirname(__file__) + os.sep
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith((own, "<frozen runpy>")):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames), file=err)

"""pip's command line. The host resolves and installs; this module parses the arguments and prints pip's messages.

It replaces `pip` wherever a program would start it: in ``%pip`` and ``!pip`` lines, in `subprocess` and in `os.system`.
The host chooses the sources of packages: options that name an index or a file are rejected.
"""

import importlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import Any, TextIO

from . import host

_VERSION = "26.0"
"""The version that ``pip --version`` prints: programs check it, and require a recent one."""

_IGNORED_FLAGS = frozenset(
    "--break-system-packages --compile --disable-pip-version-check --force-reinstall --ignore-installed "
    "--no-build-isolation --no-cache-dir --no-color --no-compile --no-input --no-warn-script-location --only-binary "
    "--prefer-binary --system --user --verbose -I -v -vv -vvv".split()
)
"""Options that have no effect here."""
_IGNORED_OPTIONS = frozenset(
    "--cache-dir --default-timeout --only-binary --platform --progress-bar --python --python-version --retries --root "
    "--src --timeout --upgrade-strategy --no-binary".split()
)
"""Options with a value that have no effect here."""
_SOURCE_OPTIONS = frozenset(
    "-i --index-url --extra-index-url -f --find-links --index --default-index --trusted-host".split()
)
"""Options with a value that select the source of packages."""


class PipError(RuntimeError):
    """The error of a ``%pip`` line: pip's messages."""

    __module__ = "pip"


class _PipError(Exception):
    """An error message of pip, and the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def main(arguments: Sequence[str], out: TextIO | None = None, err: TextIO | None = None) -> int:
    """Does the same as ``pip ARGUMENTS`` and returns the exit status."""
    out, err = out or sys.stdout, err or sys.stderr
    command, rest = _split_command(arguments)
    try:
        if command is None:
            return _no_command(rest, out)
        if command not in _COMMANDS:
            known = ", ".join(sorted(_COMMANDS))
            raise _PipError(f'unknown command "{command}": there are {known} here')
        return _COMMANDS[command](rest, out)
    except _PipError as failure:
        for line in str(failure).splitlines():
            print(line if line.startswith("hint: ") else f"ERROR: {line}", file=err)
        return failure.status


def install(requirements: Sequence[str], *, modules: Sequence[str] = (), upgrade: bool = False) -> dict[str, Any]:
    """Installs the requirements, and the packages that provide the modules, through the host. Returns its report, or
    raises `host.HostCallError`.

    The report: ``installed``, ``removed`` and ``present``, each a list of ``{"name": …, "version": …}``, and
    ``forget``, the modules whose files were replaced.
    """
    report = host.call("install", requirements=list(requirements), modules=list(modules), upgrade=upgrade)
    for name in report["forget"]:
        for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
            del sys.modules[module]
    importlib.invalidate_caches()
    return report


def magic(line: str) -> None:
    """Runs a ``%pip`` line of a cell, without its first character. Raises `PipError` if pip reports errors."""
    messages = io.StringIO()
    shell(line, messages)
    if text := "".join(message.removeprefix("ERROR: ") for message in messages.getvalue().splitlines(keepends=True)):
        raise PipError(text.rstrip("\n"))


def shell(line: str, err: TextIO | None = None) -> None:
    """Runs a ``!pip`` line of a cell, without its first character. Errors are printed, to standard error or ``err``."""
    if run(line.replace("{sys.executable}", shlex.quote(sys.executable)), err=err, shell=True) is None:
        print("ERROR: a line that calls pip can call nothing else here", file=err or sys.stderr)


def run(command: object, out: TextIO | None = None, err: TextIO | None = None, *, shell: bool = False) -> int | None:
    """Runs a command line and returns its exit status if it only calls pip; returns None for other commands."""
    commands = _commands(command, shell=shell)
    if not commands or None in commands:
        return None
    status = 0
    for arguments in commands:
        status = main(arguments or [], out, err)
        if status:
            break
    return status


def is_pip(command: object, *, shell: bool) -> bool:
    """Returns whether `run` would run a command line."""
    commands = _commands(command, shell=shell)
    return bool(commands) and None not in commands


def _commands(command: object, *, shell: bool) -> list[list[str] | None]:
    """Returns the arguments for pip of each command in a command line; None for a command that is not pip."""
    try:
        if isinstance(command, str | bytes | os.PathLike):
            text = os.fsdecode(command)
            words = list(_shell_words(text)) if shell else [text]
        else:
            words = [os.fsdecode(word) for word in command]  # type: ignore[attr-defined]
            if shell:  # As in `sh -c`: the other words are for the shell itself.
                words = list(_shell_words(words[0]))
    except TypeError, ValueError, IndexError:
        return [None]
    commands: list[list[str]] = [[]]
    for word in words:
        if shell and word in ("&&", ";"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [_arguments(words) for words in commands if words]


_REDIRECTION = re.compile(r"(\d|&)?(>>?|<)(?P<target>.*)", re.DOTALL)


def _shell_words(command: str) -> Iterator[str]:
    """Splits a shell's command line into words, without redirections and without the commands of a pipe.

    ``<`` and ``>`` inside a word belong to a version specifier: a shell would redirect in ``rich<13``, but that is
    never intended.
    """
    words = iter(shlex.split(command, comments=True))
    piped = False
    for word in words:
        end = ";" if word.endswith(";") else ""
        word = word.removesuffix(";")
        if word == "&&":
            piped = False
            yield word
        elif word in ("|", "|&", "||"):
            piped = True
        elif redirection := _REDIRECTION.fullmatch(word):
            if not redirection["target"]:
                next(words, None)
        elif word and not piped:
            yield word
        if end:
            piped = False
            yield end


def _arguments(words: list[str]) -> list[str] | None:
    """Returns pip's arguments in the words of one command, or None if the command is another program."""
    name = os.path.basename(words[0])
    if re.fullmatch(r"pip(3(\.\d+)?)?", name):
        return words[1:]
    if name == "uv" and words[1:2] == ["pip"]:
        return words[2:]
    if words[0] == sys.executable or re.fullmatch(r"python(3(\.\d+)?)?", name):
        rest = words[1:]
        while rest and rest[0].startswith("-") and rest[0] != "-m":
            rest = rest[1:]
        if rest[:2] == ["-m", "pip"]:
            return rest[2:]
    return None


def _split_command(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the command's name and the other arguments: options may precede the name."""
    for at, argument in enumerate(arguments):
        if not argument.startswith("-"):
            return argument, [*arguments[:at], *arguments[at + 1 :]]
    return None, list(arguments)


def _no_command(options: list[str], out: TextIO) -> int:
    if "--version" in options or "-V" in options:
        print(f"pip {_VERSION} from belljar (python {sys.version_info.major}.{sys.version_info.minor})", file=out)
    else:
        print(f"Usage: pip <command> [options]\n\nCommands: {', '.join(sorted(_COMMANDS))}", file=out)
    return 0


def _install(arguments: list[str], out: TextIO) -> int:
    requirements, options = _parse_arguments(arguments)
    if not requirements:
        raise _PipError('You must give at least one requirement to install (see "pip help install")')
    quiet = bool({"-q", "-qq", "--quiet"} & options)
    try:
        report = install(requirements, upgrade=bool({"-U", "--upgrade"} & options))
    except host.HostCallError as refusal:
        raise _PipError(str(refusal)) from None
    if quiet:
        return 0
    for package in report["present"]:
        where = os.path.dirname(os.path.dirname(str(_location(package["name"]))))
        print(f"Requirement already satisfied: {package['name']} in {where} ({package['version']})", file=out)
    for package in report["removed"]:
        print(f"Successfully uninstalled {package['name']}-{package['version']}", file=out)
    if report["installed"]:
        names = " ".join(f"{package['name']}-{package['version']}" for package in report["installed"])
        print(f"Successfully installed {names}", file=out)
    return 0


def _parse_arguments(arguments: list[str]) -> tuple[list[str], set[str]]:
    """Returns the requirements and the options that have an effect."""
    requirements: list[str] = []
    options: set[str] = set()
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        if name in ("-r", "--requirement", "-c", "--constraint"):
            path = value if equals else next(waiting, "")
            if name in ("-c", "--constraint"):
                raise _PipError(f"{name} is not supported here: write the versions into the requirements")
            requirements += _read_requirements(path)
        elif name in _SOURCE_OPTIONS:
            raise _PipError(f"{name}: where packages come from is chosen outside of this program\nhint: leave it out")
        elif name in ("-e", "--editable"):
            raise _PipError(f"{name}: nothing is built here; only published wheels can be installed")
        elif name in ("-t", "--target", "--prefix"):
            raise _PipError(f"{name}: packages are installed where Python looks for them\nhint: leave it out")
        elif name in ("--no-deps", "--pre"):
            raise _PipError(f"{name} is not supported here: name the exact versions that you want")
        elif name in _IGNORED_OPTIONS:
            if not equals and name != "--only-binary":
                next(waiting, None)
        elif name in _IGNORED_FLAGS or name in ("-q", "-qq", "--quiet", "-U", "--upgrade"):
            options.add(name)
        elif argument.startswith("-"):
            raise _PipError(f"no such option: {name}", status=2)
        else:
            requirements.append(argument)
    return requirements, options


def _read_requirements(path: str) -> list[str]:
    """Returns the requirements of a requirements file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise _PipError(f"Could not open requirements file: {error}") from None
    found = []
    for line in text.replace("\\\n", "").splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if line.startswith(("-r ", "--requirement ")):
            inner = line.split(None, 1)[1]
            found += _read_requirements(os.path.join(os.path.dirname(path), inner))
        elif line.startswith("-"):
            raise _PipError(f"{path}: `{line.split()[0]}` cannot be used here: only requirements can")
        elif line:
            found.append(line.split(" --hash=")[0])
    return found


def _distributions() -> list[metadata.Distribution]:
    found = {_normalised(each.name): each for each in reversed(list(metadata.distributions())) if each.name}
    return [found[name] for name in sorted(found)]


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _location(name: str) -> Any:
    try:
        return metadata.distribution(name).locate_file("x/x")
    except metadata.PackageNotFoundError:
        return "/"


def _list(arguments: list[str], out: TextIO) -> int:
    rows = [(each.name, each.version) for each in _distributions()]
    if "--format=json" in arguments or ("--format" in arguments and "json" in arguments):
        import json

        print(json.dumps([{"name": name, "version": version} for name, version in rows]), file=out)
        return 0
    if "--format=freeze" in arguments or ("--format" in arguments and "freeze" in arguments):
        return _freeze(arguments, out)
    widths = [max(len(cell) for cell in column) for column in zip(("Package", "Version"), *rows)]
    for row in [("Package", "Version"), tuple("-" * width for width in widths), *rows]:
        print(" ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip(), file=out)
    return 0


def _freeze(arguments: list[str], out: TextIO) -> int:
    del arguments
    for each in _distributions():
        print(f"{each.name}=={each.version}", file=out)
    return 0


def _show(arguments: list[str], out: TextIO) -> int:
    names = [argument for argument in arguments if not argument.startswith("-")]
    known = {_normalised(each.name): each for each in _distributions()}
    found = [known[_normalised(name)] for name in names if _normalised(name) in known]
    for at, each in enumerate(found):
        if at:
            print("---", file=out)
        about = each.metadata
        required = sorted({re.split(r"[^\w.-]", line)[0] for line in each.requires or () if "extra ==" not in line})
        fields = {
            "Name": each.name,
            "Version": each.version,
            "Summary": about.get("Summary", ""),
            "Home-page": about.get("Home-page", ""),
            "License": about.get("License-Expression") or about.get("License", ""),
            "Location": os.path.dirname(str(each.locate_file("x"))),
            "Requires": ", ".join(required),
        }
        for name, value in fields.items():
            print(f"{name}: {value}".rstrip(), file=out)
    missing = [name for name in names if _normalised(name) not in known]
    if missing and not found:
        print(f"WARNING: Package(s) not found: {', '.join(missing)}", file=sys.stderr)
    return 0 if found else 1


def _check(arguments: list[str], out: TextIO) -> int:
    del arguments
    print("No broken requirements found.", file=out)
    return 0


def _refuse(what: str, instead: str) -> Any:
    def command(arguments: Iterable[str], out: TextIO) -> int:
        raise _PipError(f"pip {what} is not there: {instead}")

    return command


_COMMANDS = {
    "check": _check,
    "download": _refuse("download", "install the package, and import it"),
    "freeze": _freeze,
    "install": _install,
    "list": _list,
    "show": _show,
    "uninstall": _refuse("uninstall", "install another version, or leave the package where it is"),
    "wheel": _refuse("wheel", "nothing is built here"),
}

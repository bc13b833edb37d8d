"""pip's command line: parses the arguments and prints pip's messages, while the host resolves and installs.

It replaces pip in ``%pip`` and ``!pip`` lines and as ``python -m pip``. The sandbox does not have a network, and the
host configures the package index, so options that name an index or a file are refused.
"""

import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence

_FLAGS = frozenset(
    [
        "--break-system-packages",
        "--disable-pip-version-check",
        "--ignore-installed",
        "--no-cache-dir",
        "--no-color",
        "--no-input",
        "--no-warn-script-location",
        "--prefer-binary",
        "--progress-bar=off",
        "--quiet",
        "--system",
        "--upgrade",
        "--user",
        "--verbose",
        "-I",
        "-U",
        "-q",
        "-qq",
        "-v",
        "-vv",
    ]
)
"""Options that have no effect here."""


class PipError(RuntimeError):
    """An error that is printed as pip prints it, or raised by ``%pip``."""


def main(arguments: Sequence[str]) -> int:
    """Runs ``pip ARGUMENTS`` and returns its exit status. Prints errors."""
    try:
        return run(arguments)
    except PipError as failure:
        print(f"ERROR: {failure}", file=sys.stderr)
        return 1


def run(arguments: Sequence[str]) -> int:
    """Runs ``pip ARGUMENTS`` and returns its exit status. Raises `PipError` for errors of this module."""
    match list(arguments):
        case ["install", *rest]:
            return _install(list(_requirements(rest)))
        case ["list" | "show" | "freeze" | "check" | "inspect" | "help" | "--version" | "-V" | "--help", *_]:
            return _run_pip(arguments)
        case [command, *_]:
            raise PipError(f'unknown command "{command}": the commands here are install, list, show, freeze and check')
        case _:
            return _run_pip(["--help"])


def _requirements(arguments: Sequence[str]) -> Iterator[str]:
    rest = iter(arguments)
    for argument in rest:
        if argument in _FLAGS:
            continue
        if argument in ("-r", "--requirement"):
            yield from _requirements_in(next(rest, ""))
        elif argument.startswith("-"):
            raise PipError(f"{argument} is not supported here: name packages, and perhaps their versions")
        else:
            yield argument


def _requirements_in(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(1 << 20).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PipError(f"Could not open requirements file: {error}") from None
    for line in lines:
        text = line.partition("#")[0].strip()
        if text:
            yield from _requirements(shlex.split(text) if text.startswith("-") else [text])


def _install(requirements: list[str]) -> int:
    if not requirements:
        raise PipError('You must give at least one requirement to install (see "pip help install")')
    broker = os.environ.get("BELLJAR_BROKER")
    if not broker:
        raise PipError("packages cannot be installed in this session")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
            host.connect(broker)
            host.sendall(json.dumps({"install": requirements}).encode() + b"\n")
            with host.makefile("rb") as lines:
                reply = json.loads(lines.readline(1 << 20) or b"{}")
    except OSError as error:
        raise PipError(f"failed to reach the host: {error}") from None
    if "error" in reply:
        hint = f"\nhint: {reply['hint']}" if reply.get("hint") else ""
        raise PipError(reply["error"] + hint)
    if "message" not in reply:
        raise PipError("the installation was cancelled")
    print(reply["message"])
    return 0


def _run_pip(arguments: Sequence[str]) -> int:
    """Runs the environment's pip, with the session's packages on its path."""
    import subprocess

    environment = {**os.environ, "PYTHONPATH": os.environ.get("BELLJAR_SITE", "")}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

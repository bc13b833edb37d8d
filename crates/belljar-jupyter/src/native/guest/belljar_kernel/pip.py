"""pip's command line. The host resolves and installs; what is here reads the arguments and talks as pip does.

It stands in for pip in ``%pip`` and ``!pip`` lines and as ``python -m pip``. The sandbox has no network; where packages
come from is the host's business, so that options that name an index or a file are refused.
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
"""Options that change nothing here."""


class _Failure(Exception):
    """What pip prints as an error."""


def main(arguments: Sequence[str]) -> int:
    """Do what ``pip ARGUMENTS`` does; answer its exit status."""
    try:
        match list(arguments):
            case ["install", *rest]:
                return _install(list(_requirements(rest)))
            case ["list" | "show" | "freeze" | "check" | "inspect" | "help" | "--version" | "-V" | "--help", *_]:
                return _pip_itself(arguments)
            case [command, *_]:
                raise _Failure(f'unknown command "{command}": there are install, list, show, freeze and check here')
            case _:
                return _pip_itself(["--help"])
    except _Failure as failure:
        print(f"ERROR: {failure}", file=sys.stderr)
        return 1


def _requirements(arguments: Sequence[str]) -> Iterator[str]:
    rest = iter(arguments)
    for argument in rest:
        if argument in _FLAGS:
            continue
        if argument in ("-r", "--requirement"):
            yield from _requirements_in(next(rest, ""))
        elif argument.startswith("-"):
            raise _Failure(f"{argument} cannot be used here: name packages, and perhaps their versions")
        else:
            yield argument


def _requirements_in(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(1 << 20).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _Failure(f"Could not open requirements file: {error}") from None
    for line in lines:
        text = line.partition("#")[0].strip()
        if text:
            yield from _requirements(shlex.split(text) if text.startswith("-") else [text])


def _install(requirements: list[str]) -> int:
    if not requirements:
        raise _Failure('You must give at least one requirement to install (see "pip help install")')
    broker = os.environ.get("BELLJAR_BROKER")
    if not broker:
        raise _Failure("packages cannot be installed in this session")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
            host.connect(broker)
            host.sendall(json.dumps({"install": requirements}).encode() + b"\n")
            with host.makefile("rb") as lines:
                answer = json.loads(lines.readline(1 << 20) or b"{}")
    except OSError as error:
        raise _Failure(f"the host does not answer: {error}") from None
    if "error" in answer:
        raise _Failure(answer["error"])
    if "said" not in answer:
        raise _Failure("the installation was given up")
    print(answer["said"])
    return 0


def _pip_itself(arguments: Sequence[str]) -> int:
    """Run pip, which sees the session's packages and has no network."""
    import subprocess

    environment = {**os.environ, "PYTHONPATH": os.environ.get("BELLJAR_SITE", "")}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

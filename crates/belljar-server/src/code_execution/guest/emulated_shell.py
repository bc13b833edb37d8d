"""Runs a command where processes do not exist, if it calls only programs that are emulated."""

from __future__ import annotations

import sys

from _belljar import shell_commands

MALFORMED = 2
NOT_FOUND = 127


def run(command: str) -> int:
    """Run the command, and return its exit status."""
    try:
        return shell_commands.run_script("bash", command, sys.stdout, sys.stderr)
    except shell_commands.CommandError as error:
        if error.reason is None:
            print(f"bash: {error}", file=sys.stderr)
            return MALFORMED
        known = ", ".join(shell_commands.programs())
        print(f"bash: {error.reason}, and WebAssembly has no processes; there are {known}", file=sys.stderr)
        return NOT_FOUND

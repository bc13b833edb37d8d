"""The command ``belljar``, which is part of the extension module."""

import os
import sys

from . import _native
from ._options import BUNDLE

_CHILD = """\
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
loader = ExtensionFileLoader("_native", sys.argv[1])
module = module_from_spec(spec_from_loader("_native", loader))
loader.exec_module(module)
getattr(module, sys.argv[2])()
"""
"""Becomes a process that the command needs, without the rest of the package."""


def main() -> int:
    """Runs the command with the arguments of this process."""
    child = [sys.executable, "-I", "-S", "-c", _CHILD, str(_native.__file__)]
    fork_server, template = [*child, "run_fork_server"], [*child, "run_template"]
    bundle = str(BUNDLE) if os.path.isdir(BUNDLE) else None
    command = [sys.executable, "-m", "belljar"]
    arguments, program = ["belljar", *sys.argv[1:]], os.path.abspath(sys.argv[0])
    return _native.run_command(arguments, program, command, bundle, fork_server, template)


if __name__ == "__main__":
    sys.exit(main())

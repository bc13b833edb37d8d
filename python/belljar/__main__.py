"""The command ``belljar``, which is part of the extension module."""

import os
import sys

from . import _native
from ._options import BUNDLE

_FORK_SERVER = """\
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
loader = ExtensionFileLoader("_native", sys.argv[1])
module = module_from_spec(spec_from_loader("_native", loader))
loader.exec_module(module)
module.run_fork_server()
"""


def main() -> int:
    """Runs the command with the arguments of this process."""
    fork_server = [sys.executable, "-I", "-S", "-c", _FORK_SERVER, str(_native.__file__)]
    bundle = str(BUNDLE) if os.path.isdir(BUNDLE) else None
    command = [sys.executable, "-m", "belljar"]
    return _native.run_command(["belljar", *sys.argv[1:]], os.path.abspath(sys.argv[0]), command, bundle, fork_server)


if __name__ == "__main__":
    sys.exit(main())

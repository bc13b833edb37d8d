"""What must differ between two interpreters that were copied from one image."""

import os
import sys


def refresh() -> None:
    """Called once after a restore: new randomness where the image froze some.

    `os.urandom`, and with it `secrets` and `uuid.uuid4`, asks the host each time and needs nothing. The hash
    seed cannot be changed in a running interpreter: it is the same in every copy of an image.
    """
    _call("random", "seed")
    _call("numpy.random", "seed")
    # Made anew at the next use; they hold generators seeded when the image was built.
    _forget("tempfile", "_name_sequence")
    _forget("uuid", "_node", "_last_timestamp", "_last_timestamp_v7")


def set_process(argv: list[str] | None, env: dict[str, str] | None, file: str | None) -> None:
    """Set what a process gets when it is started."""
    if argv is not None:
        sys.argv = argv
    if env:
        os.environ.update(env)
    if file is not None:
        sys.modules["__main__"].__file__ = file


def _call(module_name: str, function: str) -> None:
    module = sys.modules.get(module_name)
    if module is not None:
        getattr(module, function)()


def _forget(module_name: str, *names: str) -> None:
    module = sys.modules.get(module_name)
    for name in names:
        if hasattr(module, name):
            setattr(module, name, None)

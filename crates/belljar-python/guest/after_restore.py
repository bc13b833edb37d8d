"""State that must differ between interpreters that were copied from one image."""

import os
import sys
import time


def renew(what: str | None) -> None:
    """Renews state of this copy: "all" in a copy of an image, "seeds" in a copy of an interpreter that has run code.

    Random number generators are seeded as CPython does after `os.fork`. `os.urandom`, and with it `secrets` and
    `uuid.uuid4`, calls the host each time. The hash seed of a running interpreter cannot be changed: it is the same in
    every copy of an image.
    """
    if what not in ("all", "seeds"):
        return
    _call("random", "seed")
    _call("numpy.random", "seed")
    # Created again at the next use; they contain generators that were seeded when the image was built.
    _reset_attributes("tempfile", "_name_sequence")
    _reset_attributes("uuid", "_node", "_last_timestamp", "_last_timestamp_v7")
    if what == "all" and (logging := sys.modules.get("logging")) is not None:
        # The time from which `logging` counts `relativeCreated`.
        logging._startTime = time.time_ns()


def set_process(argv: list[str] | None, env: dict[str, str] | None, file: str | None) -> None:
    """Sets the process state: arguments, environment variables and the path of the program."""
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


def _reset_attributes(module_name: str, *names: str) -> None:
    module = sys.modules.get(module_name)
    for name in names:
        if hasattr(module, name):
            setattr(module, name, None)

"""State that must differ between interpreters that were copied from one image."""

import os
import sys
import time
from typing import Any


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
    if what == "all":
        _renew_all()


def _renew_all() -> None:
    """Renews state that modules set when they were imported: see `import_readings`."""
    if (logging := sys.modules.get("logging")) is not None:
        # The time from which `logging` counts `relativeCreated`.
        logging._startTime = time.time_ns()
    if (process := sys.modules.get("multiprocessing.process")) is not None:
        process.current_process().authkey = os.urandom(32)
    # Generators of their own.
    _call("faker.generator", "random", "seed")
    _call("sympy.core.random", "rng", "seed")
    if (parser := sys.modules.get("dateutil.parser._parser")) is not None:
        # The year that decides about the century of years with two digits.
        info = parser.DEFAULTPARSER.info
        info._year = time.localtime().tm_year
        info._century = info._year // 100 * 100


def set_environment(variables: dict[str, str] | None) -> None:
    """Sets the environment variables that the host gives to all code."""
    if variables:
        os.environ.update(variables)


def set_process(argv: list[str] | None, env: dict[str, str] | None, file: str | None) -> None:
    """Sets the process state: arguments, environment variables and the path of the program."""
    if argv is not None:
        sys.argv = argv
    if env:
        os.environ.update(env)
    if file is not None:
        sys.modules["__main__"].__file__ = file


def _call(module_name: str, *names: str) -> None:
    """Calls a function of a module that has been imported."""
    function: Any = sys.modules.get(module_name)
    if function is not None:
        for name in names:
            function = getattr(function, name)
        function()


def _reset_attributes(module_name: str, *names: str) -> None:
    module = sys.modules.get(module_name)
    for name in names:
        if hasattr(module, name):
            setattr(module, name, None)

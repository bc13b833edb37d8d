"""Random numbers and times that modules read while they are imported ahead of time.

Such a value would be the same in every copy of the image: a token, a name, the seed of a generator. The host counts
what the interpreter reads. This module attributes it to the module whose code is running: the innermost import.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import _bootstrap
from typing import Any, NamedTuple

from . import host

KNOWN = frozenset((
    # Renewed in each copy, by `after_restore`.
    "dateutil.parser._parser",
    "faker.generator",
    "logging",
    "multiprocessing.process",
    "numpy.random.mtrand",
    "random",
    "sympy.core.random",
    # Seeds of hash tables in Rust: like Python's hash seed, they are the same in each copy.
    "jiter.jiter",
    "pydantic.types",
    "pydantic_core._pydantic_core",
    # Names that need to differ within a program only.
    "opentelemetry.context",
    "opentelemetry.trace.propagation",
    "sympy.core.symbol",
    # Times that only messages for debugging and greetings contain.
    "IPython.core.tips",
    "jedi.debug",
))
"""The modules that read random numbers or the time when they are imported, and may nevertheless be in an image."""

_KINDS = ("random numbers", "the time")
"""The parts of a `_Reading`."""

type _Reading = tuple[object, object]


class Readings(NamedTuple):
    """The readings of imports."""

    readers: list[str]
    """The readings of each module: ``module: random numbers``. The name of code outside of imports is empty."""

    complete: list[str]
    """The modules whose import was complete before the first reading, in this order."""

    loaded: frozenset[str]
    """The modules that had been imported before."""

    def dependencies(self) -> list[str]:
        """Returns the modules that can be imported without a reader: they and their packages were complete before."""
        complete = self.loaded.union(self.complete)
        return [name for name in self.complete if complete.issuperset(_packages(name))]


class _Observer:
    """Attributes readings to imports, as long as it is installed."""

    def __init__(self) -> None:
        self.readings = Readings([], [], frozenset(sys.modules))
        self._imports = [""]
        self._load = _bootstrap._load_unlocked
        self._last = _reading()
        _bootstrap._load_unlocked = self._load_observed

    def remove(self) -> None:
        _bootstrap._load_unlocked = self._load
        self._attribute()

    def _load_observed(self, spec: Any) -> Any:
        """Replaces the function that runs the code of a module."""
        self._attribute()
        self._imports.append(spec.name)
        try:
            module = self._load(spec)
        finally:
            self._attribute()
            self._imports.pop()
        if not self.readings.readers:
            self.readings.complete.append(spec.name)
        return module

    def _attribute(self) -> None:
        """Attributes the readings since the last call."""
        now, before = _reading(), self._last
        self._last = now
        name = self._imports[-1]
        if name not in KNOWN:
            read = [kind for kind, new, old in zip(_KINDS, now, before, strict=True) if new != old]
            self.readings.readers.extend(f"{name}: {kind}" for kind in read)


@contextmanager
def observed() -> Iterator[Readings]:
    """Collects the modules whose code reads random numbers or the time, except for those in `KNOWN`."""
    # The next name is drawn from a new generator, which reads random numbers.
    if (tempfile := sys.modules.get("tempfile")) is not None:
        tempfile._name_sequence = None
    observer = _Observer()
    try:
        yield observer.readings
    finally:
        observer.remove()


def _packages(name: str) -> Iterator[str]:
    """Returns the packages that contain a module."""
    while name := name.rpartition(".")[0]:
        yield name


def _reading() -> _Reading:
    """Returns values that change if random numbers, also of the shared generators, or the time are read."""
    random, time = host.call("readings")
    generators: list[object] = [random]
    with suppress(Exception):
        generators.append(sys.modules["random"]._inst.getstate())
    with suppress(Exception):
        _, keys, *rest = sys.modules["numpy.random.mtrand"]._rand.get_state()
        generators += (keys.tobytes(), *rest)
    return generators, time

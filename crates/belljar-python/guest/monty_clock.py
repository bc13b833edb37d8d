"""The clocks, time zone and random numbers that the policy of a Monty session sets: the parent's, or fixed ones.

Only the code of feeds sees them: libraries read the sandbox's own clock. A class cannot be changed that is written in
C, so that `datetime.datetime` and `datetime.date` are replaced by classes that create and recognize the real ones.
"""

import binascii
import datetime
import functools
import importlib
import math
import random
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from . import monty_calls

_real_date, _real_datetime = datetime.date, datetime.datetime
_RANDOM_STATE = 624
"""The number of 32-bit words of a generator's state."""

_namespace: dict[str, Any] = {}


def _sandbox(operation: str, content: Any) -> Any:
    return None


_read: Callable[[str, Any], Any] = _sandbox
"""Returns the value of a clock, or None for the sandbox's own."""
_seeds_at_parent = False


def install(namespace: dict[str, Any], policy: dict[str, Any]) -> None:
    """Sets the clock and the seed."""
    global _namespace, _read, _seeds_at_parent
    _namespace = namespace
    clock = policy.get("clock") or {}
    zone = policy.get("time_zone") or {}
    is_real = not clock or "system" in clock
    if "call_host" in clock:
        _read = _ask
    elif "fixed" in clock:
        _read = _fixed(clock["fixed"]["unix_seconds"], clock["fixed"]["microsecond"], _local(zone))
    elif zone and "utc" not in zone:
        _read = _in_zone(_local(zone))
    if _read is not _sandbox:
        datetime.date, datetime.datetime = _Date, _DateTime  # type: ignore[misc]
    if not is_real:
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
            setattr(time, name, _clock(name, getattr(time, name)))
    start = policy.get("random_start") or {}
    _seeds_at_parent = "random_call_host" in start
    if (seed := start.get("seed")) is not None:
        _seed(seed)


def begin_feed(code: str) -> None:
    """Seeds the generator with the parent's bytes before the first feed that may use it."""
    global _seeds_at_parent
    if _seeds_at_parent and "random" in code:
        _seeds_at_parent = False
        words = _ask("urandom", {"size": _RANDOM_STATE * 4})
        if isinstance(words, bytes) and len(words) == _RANDOM_STATE * 4:
            state = struct.unpack(f"<{_RANDOM_STATE}I", words)
            random.setstate((3, (*state, _RANDOM_STATE), None))


def _seed(seed: dict[str, Any]) -> None:
    ((kind, value),) = seed.items()
    if kind == "int":
        random.seed(int.from_bytes(binascii.a2b_base64(value), "little", signed=True))
    elif kind == "float":
        random.seed(_hash_of_64_bits(value))
    else:
        random.seed(binascii.a2b_base64(value) if kind == "bytes" else value)


def _hash_of_64_bits(value: float) -> int:
    """Returns the hash with which `random.seed` begins on machines of 64 bits; hashes here have 32."""
    if math.isfinite(value):
        modulus = 2**61 - 1
        numerator, denominator = value.as_integer_ratio()
        found = abs(numerator) * pow(denominator, -1, modulus) % modulus
    else:
        found = 0 if math.isnan(value) else 314159
    if value < 0:
        found = -2 if found == 1 else -found
    return found % 2**64


def _is_feed(depth: int) -> bool:
    return sys._getframe(depth + 1).f_globals is _namespace


def _ask(operation: str, content: Any) -> Any:
    answer = monty_calls.ask({"os": {"call": {operation: content}}})
    return monty_calls.value(answer) if "value" in answer else None


def _local(content: dict[str, Any]) -> Callable[[], datetime.tzinfo]:
    """Returns a function that returns the zone of times without one."""
    if "name" in content:
        # The look-up may install the package with the zones.
        return functools.cache(lambda: importlib.import_module("zoneinfo").ZoneInfo(content["name"]))
    if "fixed" in content:
        return lambda: _zone(content["fixed"])
    return lambda: datetime.UTC


def _in_zone(local: Callable[[], datetime.tzinfo]) -> Callable[[str, Any], Any]:
    """Returns the reader of the sandbox's clock in another zone."""

    def read(operation: str, content: Any) -> Any:
        if operation == "time" or content.get("tz") is not None:
            return None
        moment = _real_datetime.now(local())
        return moment.date() if operation == "date_today" else moment.replace(tzinfo=None)

    return read


def _fixed(seconds: int, microsecond: int, local: Callable[[], datetime.tzinfo]) -> Callable[[str, Any], Any]:
    def read(operation: str, content: Any) -> Any:
        if operation == "time":
            return seconds + microsecond / 1e6
        zone = local() if content.get("tz") is None else _zone(content["tz"])
        moment = _real_datetime.fromtimestamp(seconds, zone).replace(microsecond=microsecond)
        if operation == "date_today":
            return moment.date()
        return moment.replace(tzinfo=None) if content.get("tz") is None else moment

    return read


def _zone(content: dict[str, Any]) -> datetime.timezone:
    return datetime.timezone(datetime.timedelta(seconds=content["offset_seconds"]))


def _clock(name: str, real: Callable[[], Any]) -> Callable[[], Any]:
    def read_clock() -> Any:
        if not _is_feed(1) or (seconds := _read("time", {"caller": f"time.{name}"})) is None:
            return real()
        return int(seconds * 1e9) if name.endswith("_ns") else float(seconds)

    read_clock.__name__ = read_clock.__qualname__ = name
    return read_clock


class _Kind(type):
    """The type of classes that stand for the real ones."""

    real: type | None = None
    """The class for which a class stands; None for subclasses that feeds define."""

    def __instancecheck__(cls, instance: Any) -> bool:
        real = vars(cls).get("real")
        return type.__instancecheck__(cls, instance) if real is None else isinstance(instance, real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        real = vars(cls).get("real")
        return type.__subclasscheck__(cls, subclass) if real is None else issubclass(subclass, real)

    def __eq__(cls, other: object) -> bool:
        return cls is other or vars(cls).get("real", cls) is other

    def __hash__(cls) -> int:
        return type.__hash__(vars(cls).get("real", cls))


class _Date(_real_date, metaclass=_Kind):
    real = _real_date

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _real_date(*args, **kwargs) if cls is _Date else super().__new__(cls, *args, **kwargs)

    @classmethod
    def today(cls) -> Any:
        found = _read("date_today", {}) if _is_feed(1) else None
        return _real_date.today() if found is None else found


class _DateTime(_real_datetime, metaclass=_Kind):
    real = _real_datetime

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _real_datetime(*args, **kwargs) if cls is _DateTime else super().__new__(cls, *args, **kwargs)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        if not _is_feed(1):
            return _real_datetime.now(tz)
        return _now(tz)

    @classmethod
    def today(cls) -> Any:
        return _now(None) if _is_feed(1) else _real_datetime.today()

    @classmethod
    def utcnow(cls) -> Any:
        now = _now(datetime.UTC) if _is_feed(1) else _real_datetime.now(datetime.UTC)
        return now.replace(tzinfo=None)


def _now(tz: Any) -> Any:
    content: dict[str, Any] = {"tz": None}
    if tz is not None:
        # A zone whose offset changes needs the moment first.
        content["tz"] = {"offset_seconds": 0, "name": None}
    found = _read("date_time_now", content)
    if found is None:
        return _real_datetime.now(tz)
    return found if tz is None else found.astimezone(tz)


for _class, _name in ((_Date, "date"), (_DateTime, "datetime")):
    _class.__name__ = _class.__qualname__ = _name
    _class.__module__ = "datetime"

"""Appended to each program: times its `run` after warming up, and prints the seconds of each repetition as JSON."""

import time as _time

_WARM_UP = 0.8  # V8 compiles in tiers and CPython specialises: both need to run the program first.
_MEASURED = 0.6


def _measure() -> list[float]:
    times, end = [], _time.perf_counter() + _WARM_UP
    while _time.perf_counter() < end or len(times) < 2:
        times.append(_once())
    times, end = [], _time.perf_counter() + _MEASURED
    while _time.perf_counter() < end or len(times) < 5:
        times.append(_once())
    return times


def _once() -> float:
    begin = _time.perf_counter()
    run()  # noqa: F821
    return _time.perf_counter() - begin


print(_measure())

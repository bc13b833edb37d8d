"""Runs forever: `belljar run --timeout 1 examples/limits.py` stops it with exit status 124."""

import itertools

for number in itertools.count():
    if number % 1_000_000 == 0:
        print(number)

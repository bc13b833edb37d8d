"""Never ends by itself: `belljar run --timeout 1 examples/limits.py` ends it, with exit status 124."""

import itertools

for number in itertools.count():
    if number % 1_000_000 == 0:
        print(number)

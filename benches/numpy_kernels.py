"""Times numpy's kernels and prints the shortest time of each in milliseconds, as JSON."""

import json
import time

import numpy as np

_MEASURED = 1.0  # Seconds for each kernel; the first repetitions warm up V8.

random = np.random.default_rng(1)
square, other = random.random((300, 300)), random.random((300, 300))
vector, second = random.random(1_000_000), random.random(1_000_000)
mask = vector > 0.5
integers = random.integers(0, 100_000, 500_000)
matrix, right = random.random((100, 100)) + 100 * np.eye(100), random.random(100)
table = random.random((1000, 1000))
indices = random.integers(0, 1_000_000, 1_000_000)
signal = random.random(2**16)

kernels = {
    "300 x 300 `@`": lambda: square @ other,
    "`v + v`, 1M": lambda: vector + second,
    "`np.where`, 1M": lambda: np.where(mask, vector, second),
    "`np.cumsum`, 1M": lambda: np.cumsum(vector),
    "`np.sort`, 1M": lambda: np.sort(vector),
    "`np.unique`, 500k": lambda: np.unique(integers),
    "`np.linalg.solve`, 100": lambda: np.linalg.solve(matrix, right),
    "`np.exp`, 1M": lambda: np.exp(vector),
    "`sum(axis=0)`, 1000 x 1000": lambda: table.sum(axis=0),
    "`v[indices]`, 1M": lambda: vector[indices],
    "`np.fft.fft`, 65536": lambda: np.fft.fft(signal),
    "`normal`, 1M": lambda: random.normal(size=1_000_000),
}


def shortest(kernel):
    best, end = float("inf"), time.perf_counter() + _MEASURED
    while time.perf_counter() < end:
        begin = time.perf_counter()
        kernel()
        best = min(best, time.perf_counter() - begin)
    return best * 1000


print(json.dumps({name: shortest(kernel) for name, kernel in kernels.items()}))

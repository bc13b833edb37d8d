"""The first thing to run: `belljar run examples/hello.py`."""

import platform
import sys

print(f"Hello from Python {platform.python_version()} on {sys.platform}.")
print("Primes:", [n for n in range(2, 40) if all(n % d for d in range(2, n))])

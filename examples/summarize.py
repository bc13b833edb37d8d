"""Reads a mounted directory, which it cannot change: `belljar run --mount .:/data examples/summarize.py`."""

from collections import Counter
from pathlib import Path

sizes = Counter()
for path in Path("/data").rglob("*"):
    if path.is_file():
        sizes[path.suffix or "(none)"] += path.stat().st_size
for suffix, size in sizes.most_common(5):
    print(f"{suffix:>10} {size:>10,} bytes")

"""`json.dumps` and `json.loads` of nested records."""

import json

RECORDS = [
    {"id": i, "name": f"user {i}", "tags": ["a", "b", "ü" * 5], "score": i / 7, "nested": {"ok": True, "none": None}}
    for i in range(400)
]


def run() -> None:
    for _ in range(8):
        assert len(json.loads(json.dumps(RECORDS, indent=None))) == 400

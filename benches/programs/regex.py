"""Searching, splitting and replacing with `re`."""

import re

TEXT = "the quick brown fox <jumps@over.example> the lazy dog 2026-11-21 12:34:56 [INFO] value=3.14; " * 40
MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
DATE = re.compile(r"(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)")
WORD = re.compile(r"\b[a-z]{3,5}\b")


def run() -> None:
    for _ in range(12):
        assert len(MAIL.findall(TEXT)) == 40
        assert len({match.group("y") for match in DATE.finditer(TEXT)}) == 1
        WORD.sub(lambda match: match.group().upper(), TEXT)
        re.split(r"[;\s]+", TEXT)

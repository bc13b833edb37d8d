"""Output of code in lines, where it arrives in single writes."""

from __future__ import annotations

from collections.abc import Callable

Write = Callable[[str], object]


class Lines:
    """Joins the text and the end of a line, which ``print`` writes one after the other.

    Text without an end of a line waits for the next write, or for the end of the code.
    """

    def __init__(self, write: Write | None) -> None:
        self._write = write
        self._text = ""

    @property
    def receiver(self) -> Write | None:
        """The function that receives what the code writes, None if no one asks for it."""
        return None if self._write is None else self._receive

    def _receive(self, text: str) -> None:
        if self._text or text.endswith("\n"):
            self._text += text
            self.flush()
        else:
            self._text = text

    def flush(self) -> None:
        """Passes on the text that waits."""
        text, self._text = self._text, ""
        if text and self._write is not None:
            self._write(text)

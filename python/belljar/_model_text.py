"""The text and the images of runs, as language models read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._run import Image, Run

MAX_TEXT = 20_000
"""The characters of a result that a model reads, unless its caller sets another number."""
MAX_IMAGES = 10
"""The images of a result that a model sees."""
MAX_IMAGE_BYTES = 4 * 1024 * 1024
"""The size of an image that a model sees. The APIs of models refuse larger ones."""
IMAGE_TYPES = ("image/png", "image/jpeg")
"""The formats of images that all models with vision read."""


def shorten(text: str, limit: int) -> str:
    """Returns a text of at most about ``limit`` characters: its beginning, its end, and how much is left out."""
    omitted = len(text) - limit
    if omitted <= 0:
        return text
    head = (limit + 1) // 2
    return f"{text[:head]}\n[{omitted:,} characters omitted]\n{text[head + omitted :]}"


def why_not_code(code: object) -> str | None:
    """Returns the reason why a value that a model has written cannot be run, or None."""
    if not isinstance(code, str):
        return f"the code is not a text but {type(code).__name__}"
    try:
        code.encode()
    except UnicodeEncodeError as error:
        return f"the code contains a character that is not valid Unicode: {code[error.start]!a}"
    return None


def error_text(run: Run) -> str:
    """Returns the traceback of a run, or another reason why it did not succeed. An empty text after a success."""
    if run.ok:
        return ""
    parts = [f"the code ended with the status {run.status!r}"]
    if run.status == "exit":
        parts = [f"SystemExit: {run.exit_code}"]
    elif run.error is not None:
        # The traceback of a cell at a limit is that of its interrupt.
        parts = [run.error.traceback, "" if run.status == "error" and run.error.traceback else str(run.error)]
    parts.append(f"hint: {run.hint}" if run.hint else "")
    return "\n".join(part.rstrip() for part in parts if part)


def run_text(run: Run, limit: int = MAX_TEXT) -> str:
    """Returns what a run has written, its value as IPython shows it, and its error."""
    value = run.text if run.ok else None
    parts = [run.output.rstrip(), value and value.rstrip(), error_text(run)]
    shown, hidden = len(images(run)), len(run.images)
    if hidden > shown:
        parts.append(f"[{hidden - shown} images are not shown: too many, too large, or neither PNG nor JPEG]")
    text = "\n".join(part for part in parts if part)
    return shorten(text, limit) or ("(an image)" if shown else "(no output)")


def images(run: Run) -> list[Image]:
    """Returns the images of a run that a model can see."""
    shown = [each for each in run.images if each.mime_type in IMAGE_TYPES and len(each.data) <= MAX_IMAGE_BYTES]
    return shown[:MAX_IMAGES]

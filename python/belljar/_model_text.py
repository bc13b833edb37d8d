"""The text and the images of runs, as language models read them."""

from __future__ import annotations

from base64 import b64encode
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
    return f"{text[:head]}\n[… {omitted} characters are left out]\n{text[head + omitted :]}"


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


def run_text(run: Run, limit: int = MAX_TEXT, *, shows_images: bool = True) -> str:
    """Returns what a run has written, its value as IPython shows it, and its error.

    Args:
        run: The run.
        limit: The number of characters beyond which the middle is left out.
        shows_images: If false, the model receives no images with the text.
    """
    parts = (run.output.rstrip(), (_value(run) or "").rstrip(), error_text(run))
    text = shorten("\n".join(part for part in parts if part), limit)
    shown = len(images(run)) if shows_images else 0
    if hidden := len(run.images) - shown:
        reason = "too many, too large, or neither PNG nor JPEG" if shows_images else "the result is text only"
        note = f"[{hidden} of {len(run.images)} images are not shown: {reason}]"
        return f"{text}\n{note}" if text else note
    return text or ("(no output)" if not shown else "(an image)" if shown == 1 else f"({shown} images)")


def images(run: Run) -> list[Image]:
    """Returns the images of a run that a model can see."""
    shown = [each for each in run.images if each.mime_type in IMAGE_TYPES and len(each.data) <= MAX_IMAGE_BYTES]
    return shown[:MAX_IMAGES]


def base64_of(image: Image) -> str:
    """Returns the contents of an image as Base64."""
    return b64encode(image.data).decode()


def data_url(image: Image) -> str:
    """Returns an image as a URL with its contents."""
    return f"data:{image.mime_type};base64,{base64_of(image)}"


def _value(run: Run) -> str | None:
    """Returns the value of a run as IPython shows it, also of code without a session."""
    if run.text is not None or run.encoded is None or run.value is None:
        return run.text
    return repr(run.value)

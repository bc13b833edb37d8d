"""The text and the images of a run, for the model that has written its code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._run import Image, Run

MAX_TEXT = 20_000
"""The characters of a run that a model reads, by default."""

MAX_IMAGES = 8
"""The images of a run that a model receives."""

MAX_IMAGE_SIZE = 4 << 20
"""The bytes of an image that a model receives."""

_SHOWN = ("image/png", "image/jpeg")


def report(run: Run, max_text: int = MAX_TEXT, images: int = 0) -> str:
    """Returns the output of a run, its value and its error, with at most about ``max_text`` characters.

    Args:
        run: The run.
        max_text: The number of characters beyond which the middle is left out.
        images: The number of images that the model receives with the text.
    """
    value = run.text if run.text is not None else _value(run)
    parts = [part.rstrip() for part in (run.output, value, None if run.ok else failure(run)) if part]
    text = shorten("\n".join(part for part in parts if part), max_text)
    if left_out := len(run.images) - images:
        text += f"\n({left_out} of the {len(run.images)} images that the code displayed are not shown)"
    return text.lstrip("\n") or ("(no output)" if not images else f"({images} images)")


def failure(run: Run) -> str:
    """Returns the reason why code did not succeed: the traceback, the limit and a hint."""
    error = run.error
    if error is None:
        return f"the code ended with the status {run.status!r}"
    parts = [error.traceback.rstrip()]
    # The traceback of a cell at its limit is that of the interrupt.
    if not error.traceback or run.status != "error":
        parts.append(str(error))
    if run.hint is not None:
        parts.append(f"hint: {run.hint}")
    return "\n".join(part for part in parts if part)


def pictures(run: Run) -> list[Image]:
    """Returns the images that a model can be shown: PNG and JPEG, and not too many or too large."""
    shown = [image for image in run.images if image.mime_type in _SHOWN and len(image.data) <= MAX_IMAGE_SIZE]
    return shown[:MAX_IMAGES]


def shorten(text: str, max_text: int) -> str:
    """Returns the text without its middle if it is longer than ``max_text`` characters."""
    if len(text) <= max_text:
        return text
    head = max_text * 2 // 3
    tail = max_text - head
    left_out = len(text) - max_text
    return f"{text[:head]}\n... ({left_out} characters are left out) ...\n{text[len(text) - tail :]}"


def _value(run: Run) -> str | None:
    """Returns the value of code that has no session, where IPython does not show it."""
    if run.encoded is None or run.value is None:
        return None
    return repr(run.value)

"""Images that a program shows: by `display`, by its last value, or as open figures of matplotlib.

The host takes images when it has somewhere to show them; where it has not, `display` prints text.
"""

import sys
from base64 import b64encode
from typing import Any

from . import host, values

_FORMS = (("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_svg_", "image/svg+xml"))
_wanted: bool | None = None


def install() -> None:
    """Add `display` to the builtins, where notebooks have it."""
    import builtins

    builtins.display = display  # type: ignore[attr-defined]


def display(*shown: object) -> None:
    """Show each value as an image if it has such a form, else as text."""
    for value in shown:
        if not show(value):
            print(value if isinstance(value, str) else values.safe_repr(value))


def show(value: object) -> bool:
    """Pass the value's image to the host; False if it has none or the host takes none."""
    kind = type(value)
    if not (_is_figure(kind) or any(hasattr(kind, method) for method, _ in _FORMS)) or not _host_takes_images():
        return False
    image = _image(value)
    if image is None:
        return False
    data, mime = image
    try:
        host.call("display", mime=mime, data=b64encode(data).decode())
    except host.Refused as refusal:
        print(f"[an image is not shown: {refusal}]", file=sys.stderr)
    return True


def show_figures() -> None:
    """Show the figures that matplotlib's pyplot has open, and close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not _host_takes_images():
        return
    try:
        for number in pyplot.get_fignums():
            show(pyplot.figure(number))
        pyplot.close("all")
    except Exception as error:
        print(f"[figures are not shown: {values.safe_repr(error)}]", file=sys.stderr)


def _host_takes_images() -> bool:
    global _wanted
    if _wanted is None:
        try:
            _wanted = bool(host.call("takes_images"))
        except host.Refused:
            _wanted = False
    return _wanted


def _image(value: Any) -> tuple[bytes, str] | None:
    """The first of the value's forms that it gives."""
    if _is_figure(type(value)):
        return drawn(value), "image/png"
    for method, mime in _FORMS:
        if not hasattr(type(value), method):
            continue
        try:
            data = getattr(value, method)()
        except Exception:
            continue
        if isinstance(data, tuple) and data:  # With metadata, which nobody here has use for.
            data = data[0]
        if isinstance(data, str):
            data = data.encode(errors="replace")
        if isinstance(data, (bytes, bytearray)) and data:
            return bytes(data), mime
    return None


def _is_figure(kind: type) -> bool:
    module = sys.modules.get("matplotlib.figure")
    return module is not None and issubclass(kind, module.Figure)


def drawn(figure: Any) -> bytes:
    """A figure of matplotlib as a PNG file."""
    from io import BytesIO

    file = BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()

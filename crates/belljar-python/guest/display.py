"""Images that `run` passes to the host: from `display`, from the cell's value, or as open figures of matplotlib.

Sessions use `shell` instead. If the host does not take images, `display` prints text.
"""

import sys
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from . import host, value_json

_REPR_METHODS = (("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_svg_", "image/svg+xml"))
_takes_images: bool | None = None


def install() -> None:
    """Adds `display` to the builtins, as in notebooks."""
    import builtins

    builtins.display = display  # type: ignore[attr-defined]


def display(*shown: object) -> None:
    """Shows each value as an image if it has an image representation, else as text."""
    for value in shown:
        if not show(value):
            print(value if isinstance(value, str) else value_json.safe_repr(value))


def show(value: object) -> bool:
    """Passes the value's image to the host. Returns False if the value has no image or the host does not take any."""
    kind = type(value)
    if not (_is_figure(kind) or any(hasattr(kind, method) for method, _ in _REPR_METHODS)) or not _host_takes_images():
        return False
    image = _image(value)
    if image is None:
        return False
    data, mime = image
    try:
        host.call("display", mime=mime, data=b64encode(data).decode())
    except host.HostCallError as refusal:
        print(f"[an image is not shown: {refusal}]", file=sys.stderr)
    return True


def show_figures() -> None:
    """Shows pyplot's open figures if the host takes images, and closes them."""
    if "matplotlib.pyplot" in sys.modules and _host_takes_images():
        show_open_figures(show)


def show_open_figures(show_figure: Callable[[Any], object]) -> None:
    """Calls ``show_figure`` with each figure that matplotlib's pyplot has open, then closes them all."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    try:
        for number in pyplot.get_fignums():
            show_figure(pyplot.figure(number))
        pyplot.close("all")
    except Exception as error:
        print(f"[figures are not shown: {value_json.safe_repr(error)}]", file=sys.stderr)


def _host_takes_images() -> bool:
    global _takes_images
    if _takes_images is None:
        try:
            _takes_images = bool(host.call("takes_images"))
        except host.HostCallError:
            _takes_images = False
    return _takes_images


def _image(value: Any) -> tuple[bytes, str] | None:
    """Returns the first available image representation of the value."""
    if _is_figure(type(value)):
        return render_png(value), "image/png"
    for method, mime in _REPR_METHODS:
        if not hasattr(type(value), method):
            continue
        try:
            data = getattr(value, method)()
        except Exception:
            continue
        if isinstance(data, tuple) and data:  # With metadata, which is not used.
            data = data[0]
        if isinstance(data, str):
            data = data.encode(errors="replace")
        if isinstance(data, (bytes, bytearray)) and data:
            return bytes(data), mime
    return None


def _is_figure(kind: type) -> bool:
    module = sys.modules.get("matplotlib.figure")
    return module is not None and issubclass(kind, module.Figure)


def render_png(figure: Any) -> bytes:
    """Renders a matplotlib figure as a PNG file."""
    from io import BytesIO

    file = BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()

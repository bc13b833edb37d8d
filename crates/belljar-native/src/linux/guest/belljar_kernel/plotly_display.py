"""The output of plotly's figures: an image if a browser is installed, else an HTML page and the figure's data."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import publish_display_data

_MODULE = "plotly.basedatatypes"
_images = True
"""False once an image could not be made."""


def install(shell: InteractiveShell) -> None:
    """Formats figures in this way when they are a cell's value, are displayed, or show themselves."""
    formatter = shell.display_formatter.ipython_display_formatter
    formatter.for_type_by_name(_MODULE, "BaseFigure", _show)
    if _MODULE in sys.modules:
        _patch(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Finder())


def _show(figure: Any) -> None:
    global _images
    bundle: dict[str, Any] = {"text/plain": f"<{type(figure).__name__} of plotly>"}
    if _images:
        try:
            bundle["image/png"] = figure.to_image("png")
        except Exception:
            _images = False
    if not _images:
        bundle["text/html"] = figure.to_html(include_plotlyjs="cdn")
        bundle["application/vnd.plotly.v1+json"] = figure.to_plotly_json()
    publish_display_data(bundle)


def _patch(module: ModuleType) -> None:
    module.BaseFigure.show = lambda self, *args, **options: _show(self)


class _Finder(importlib.abc.MetaPathFinder):
    """A finder that patches plotly's module when it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            exec_module = spec.loader.exec_module

            def exec_and_patch(module: ModuleType) -> None:
                exec_module(module)
                _patch(module)

            spec.loader.exec_module = exec_and_patch  # type: ignore[method-assign]
        return spec

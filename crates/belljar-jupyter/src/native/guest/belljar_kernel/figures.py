"""What plotly's figures look like: an image where a browser for that is installed, else a page and its data."""

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
"""Whether images may be had: unknown, until one could not be made."""


def install(shell: InteractiveShell) -> None:
    """Have figures shown so, whether they are a cell's value, displayed, or asked to show themselves."""
    formatter = shell.display_formatter.ipython_display_formatter
    formatter.for_type_by_name(_MODULE, "BaseFigure", _show)
    if _MODULE in sys.modules:
        _patch(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Finder())


def _show(figure: Any) -> None:
    global _images
    forms: dict[str, Any] = {"text/plain": f"<{type(figure).__name__} of plotly>"}
    if _images:
        try:
            forms["image/png"] = figure.to_image("png")
        except Exception:
            _images = False
    if not _images:
        forms["text/html"] = figure.to_html(include_plotlyjs="cdn")
        forms["application/vnd.plotly.v1+json"] = figure.to_plotly_json()
    publish_display_data(forms)


def _patch(module: ModuleType) -> None:
    module.BaseFigure.show = lambda self, *args, **options: _show(self)


class _Finder(importlib.abc.MetaPathFinder):
    """Patches the module when it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loaded = spec.loader.exec_module

            def load(module: ModuleType) -> None:
                loaded(module)
                _patch(module)

            spec.loader.exec_module = load  # type: ignore[method-assign]
        return spec

"""Patches and replacements of modules, which are applied when a program imports them."""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

_pending: dict[str, Callable[[ModuleType], None]] = {}
_replacements: dict[str, tuple[Callable[[ModuleType], None], Callable[[], bool]]] = {}


def install() -> None:
    """Installs the finder that applies the patches."""
    sys.meta_path.insert(0, _PatchOnImport())


def when_imported(name: str, patch: Callable[[ModuleType], None]) -> None:
    """Calls ``patch`` with the module after its import, or at once if it has been imported already."""
    if name in sys.modules:
        patch(sys.modules[name])
    else:
        _pending[name] = patch


def replace(name: str, fill: Callable[[ModuleType], None], when: Callable[[], bool] = lambda: True) -> None:
    """Calls ``fill`` with an empty module when a program imports the module, whose own code does not run, if ``when``
    returns true."""
    _replacements[name] = (fill, when)


class _PatchOnImport:
    """A finder of replacements, which wraps the modules of other finders to patch them after they have run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in _replacements:
            fill, when = _replacements[name]
            if when():
                return spec_from_loader(name, _ReplacingLoader(fill))
        patch = _pending.get(name)
        if patch is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _PatchingLoader(spec.loader, patch)
                return spec
        return None


class _ReplacingLoader:
    """A loader that fills a module by a function."""

    def __init__(self, fill: Callable[[ModuleType], None]) -> None:
        self._fill = fill

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._fill(module)


class _PatchingLoader:
    """A loader that patches the module after its own loader has run it, and then removes itself."""

    def __init__(self, loader: Any, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._patch(module)

    def __getattr__(self, name: str) -> Any:
        # `importlib.resources` and `pkgutil` ask loaders for more.
        return getattr(self._loader, name)

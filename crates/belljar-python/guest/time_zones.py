"""Time zones for `zoneinfo`: the package tzdata is installed when a program first looks for one."""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from . import host, import_patches, pip

_refusal: str | None = None


def install() -> None:
    """Registers the patches of `zoneinfo`."""
    import_patches.when_imported("zoneinfo._common", _patch_common)
    import_patches.when_imported("zoneinfo._tzpath", _patch_tzpath)


def _patch_common(module: ModuleType) -> None:
    load = module.load_tzdata

    @functools.wraps(load)
    def load_tzdata(key: str) -> Any:
        _install_tzdata()
        if find_spec("tzdata") is not None:
            return load(key)
        why = "" if _refusal is None else f" ({_refusal})"
        raise module.ZoneInfoNotFoundError(
            f"No time zone found with key {key}: time zones are in the package tzdata, which is not installed{why}"
        )

    module.load_tzdata = load_tzdata


def _patch_tzpath(module: ModuleType) -> None:
    available_timezones: Callable[[], set[str]] = module.available_timezones

    @functools.wraps(available_timezones)
    def available_timezones_after_install() -> set[str]:
        _install_tzdata()
        return available_timezones()

    module.available_timezones = available_timezones_after_install


def _install_tzdata() -> None:
    """Asks the host to install tzdata, once."""
    global _refusal
    if _refusal is None and find_spec("tzdata") is None:
        try:
            pip.install(["tzdata"])
        except host.HostCallError as refusal:
            _refusal = str(refusal)

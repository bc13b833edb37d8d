"""micropip's API, for programs written for Pyodide. The host does the installation: see `pip`."""

import json
from builtins import list as _list  # `list` is a function of this module
from importlib import metadata
from typing import Any, NamedTuple

from . import host, pip

__version__ = "0.11.0"


class PackageMetadata(NamedTuple):
    """An installed package."""

    name: str
    version: str
    source: str = "belljar"


async def install(
    requirements: str | _list[str],
    keep_going: bool = False,
    deps: bool = True,
    credentials: str | None = None,
    pre: bool = False,
    index_urls: _list[str] | str | None = None,
    *,
    constraints: _list[str] | None = None,
    reinstall: bool = False,
    verbose: bool | int | None = None,
) -> None:
    """Installs packages, or raises `ValueError` as micropip does.

    The sources of packages are configured outside of the program: ``index_urls`` is rejected.
    """
    del keep_going, credentials, reinstall, verbose
    if index_urls:
        raise ValueError("index_urls: where packages come from is chosen outside of this program: leave it out")
    if constraints or pre or not deps:
        raise ValueError("deps, pre and constraints are not supported here: name the exact versions that you want")
    try:
        pip.install([requirements] if isinstance(requirements, str) else [*requirements])
    except host.HostCallError as refusal:
        raise ValueError(str(refusal)) from None


def uninstall(packages: str | _list[str], *, verbose: bool | int | None = None) -> None:
    """Raises an error: packages cannot be uninstalled, but another version can be installed."""
    del packages, verbose
    raise NotImplementedError("packages cannot be uninstalled: install another version, or leave them where they are")


def list() -> dict[str, PackageMetadata]:
    """Returns the installed packages by name."""
    found = {each.name: PackageMetadata(each.name, each.version) for each in metadata.distributions() if each.name}
    return {name: found[name] for name in sorted(found)}


def freeze() -> str:
    """Returns the installed packages as JSON, in the format of Pyodide's lock file."""
    packages: dict[str, Any] = {
        name.lower(): {"name": name, "version": package.version, "source": package.source}
        for name, package in list().items()
    }
    return json.dumps({"info": {"platform": "emscripten"}, "packages": packages})

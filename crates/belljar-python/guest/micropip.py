"""micropip, as programs written for Pyodide use it. Installing is the host's: see `pip`."""

import json
from importlib import metadata
from typing import Any, NamedTuple

from . import host, pip

__version__ = "0.11.0"


class PackageMetadata(NamedTuple):
    """One installed package."""

    name: str
    version: str
    source: str = "belljar"


async def install(
    requirements: str | list[str],
    keep_going: bool = False,
    deps: bool = True,
    credentials: str | None = None,
    pre: bool = False,
    index_urls: list[str] | str | None = None,
    *,
    constraints: list[str] | None = None,
    reinstall: bool = False,
    verbose: bool | int | None = None,
) -> None:
    """Install packages; `ValueError`, as micropip raises it, says what is not to be had.

    Where packages come from is chosen outside of the program: ``index_urls`` is refused.
    """
    del keep_going, credentials, reinstall, verbose
    if index_urls:
        raise ValueError("index_urls: where packages come from is chosen outside of this program: leave it out")
    if constraints or pre or not deps:
        raise ValueError("deps, pre and constraints are not supported here: name the exact versions that you want")
    try:
        pip.install([requirements] if isinstance(requirements, str) else [*requirements])
    except host.Refused as refusal:
        raise ValueError(str(refusal)) from None


def uninstall(packages: str | list[str], *, verbose: bool | int | None = None) -> None:
    """Not there: another version can be installed instead."""
    del packages, verbose
    raise NotImplementedError("packages cannot be uninstalled: install another version, or leave them where they are")


def list() -> dict[str, PackageMetadata]:
    """Installed packages by name."""
    found = {each.name: PackageMetadata(each.name, each.version) for each in metadata.distributions() if each.name}
    return {name: found[name] for name in sorted(found)}


def freeze() -> str:
    """Installed packages as JSON, in the outline of Pyodide's lock file."""
    packages: dict[str, Any] = {
        name.lower(): {"name": name, "version": package.version, "source": package.source}
        for name, package in list().items()
    }
    return json.dumps({"info": {"platform": "emscripten"}, "packages": packages})

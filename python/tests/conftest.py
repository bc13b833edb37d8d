"""Fixtures, and the requirements of tests. The tests run against the installed package: `cargo xtask wheel` does it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from server import TOKEN, Server

from belljar import Sandbox, Session

if TYPE_CHECKING:
    from belljar.native import NativeServer

ROOT = Path(__file__).resolve().parents[2]
CRATES = ROOT / "crates"
EXAMPLES = ROOT / "python/examples"


def is_required(capability: str) -> bool:
    """Returns whether `BELLJAR_REQUIRE`, a list such as `all,-pyodide-cdn`, names a capability."""
    required = False
    for name in os.environ.get("BELLJAR_REQUIRE", "").split(","):
        if name.strip() in ("all", capability):
            required = True
        elif name.strip() == f"-{capability}":
            required = False
    return required


def missing(capability: str, reason: str) -> None:
    """Ends a test that needs what this machine lacks: skipped, or failed if `BELLJAR_REQUIRE` names the capability."""
    if is_required(capability):
        pytest.fail(f"{reason}, and BELLJAR_REQUIRE names {capability}")
    pytest.skip(reason)


_PYTHON = {"deepagents": (3, 11), "e2b_code_interpreter": (3, 11), "pydantic_ai": (3, 11)}
"""The first versions of Python of the packages that do not support all of Belljar's, as in their requirements."""


def need(module: str) -> ModuleType:
    """Imports a module that a test needs."""
    python = _PYTHON.get(module.partition(".")[0], (3, 10))
    if sys.version_info < python:
        pytest.skip(f"{module} needs Python {python[0]}.{python[1]}")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing("python-packages", f"{module} is not installed ({error})")
        raise


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    """A sandbox for the tests of one file, which may leave sessions."""
    with Sandbox(install=False) as sandbox:
        yield sandbox


@pytest.fixture
def session(box: Sandbox) -> Iterator[Session]:
    with box.session() as session:
        yield session


@pytest.fixture(scope="session")
def native_options() -> dict[str, Any]:
    """Options of native kernels with the environment of the tests, on a machine that has what their sandbox needs."""
    status = subprocess.run([sys.executable, "-m", "belljar", "native", "status"], capture_output=True, text=True)
    if "(--sandbox native)" not in status.stdout:
        missing("native-sandbox", f"native kernels are not available: {status.stdout or status.stderr}")
    return {"venv": sys.prefix}


@pytest.fixture(scope="session")
def native(native_options: dict[str, Any]) -> Iterator[NativeServer]:
    """A server with native kernels."""
    from belljar.native import NativeServer

    with NativeServer(**native_options) as started:
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that demands the token `TOKEN`."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    started = Server("--toolset", "all", "--auth-token-file", str(tokens))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def numpy_box() -> Iterator[Sandbox]:
    """A sandbox with numpy, from the directory of wheels that `BELLJAR_NUMPY_WHEELS` names."""
    wheels = os.environ.get("BELLJAR_NUMPY_WHEELS")
    if not wheels:
        missing("pyodide-cdn", "BELLJAR_NUMPY_WHEELS does not name a directory with a wheel of numpy for WebAssembly")
    with Sandbox(["numpy"], find_links=[str(wheels)], offline=True) as sandbox:
        yield sandbox

"""Fixtures. The tests run against the installed package: `cargo xtask wheel` installs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar import Sandbox, Session

CRATES = Path(__file__).resolve().parents[2] / "crates"


@pytest.fixture(scope="session")
def box() -> Iterator[Sandbox]:
    with Sandbox(install=False) as sandbox:
        yield sandbox


@pytest.fixture
def session(box: Sandbox) -> Iterator[Session]:
    with box.session() as session:
        yield session

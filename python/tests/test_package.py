"""The package itself: types, the command, the files that pip installs."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path


import belljar
from belljar._options import BUNDLE

COMMAND = Path(sys.executable).with_name("belljar")


def test_package_is_typed() -> None:
    directory = Path(belljar.__file__).parent
    assert (directory / "py.typed").is_file() and (directory / "_native.pyi").is_file()
    program = """
from belljar import AsyncSandbox, Run, Sandbox, tool
@tool
def add(a: int, b: int) -> int: return a + b
with Sandbox(["rich"], limits={"timeout": 10, "memory": "512MB"}, tools=[add]) as box:
    run: Run = box.run("1", globals={"x": 1})
    text: str = run.check().output
    session = box.session()
    data: bytes = session.fork().dump()
async def main() -> None:
    async with AsyncSandbox() as box:
        run = await box.run("1", on_stdout=print)
        contents: bytes = await box.session().files.read("x")
"""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_every_public_name_is_documented() -> None:
    for name in belljar.__all__:
        value = getattr(belljar, name)
        if isinstance(value, type):
            assert value.__doc__, name
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and callable(member):
                    assert member.__doc__, f"{name}.{attribute}"


def test_command_is_installed() -> None:
    version = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout
    assert version == f"belljar {importlib.metadata.version('belljar')}\n"
    report = subprocess.run([COMMAND, "run", "--json", "-c", "6 * 7"], capture_output=True, text=True, check=True)
    assert json.loads(report.stdout)["value"] == 42
    failed = subprocess.run([COMMAND, "run", "-c", "import sys; sys.exit(3)"], check=False)
    assert failed.returncode == 3


def test_nothing_is_built_after_the_installation(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with belljar.Sandbox(cache=cache, offline=True, install=False) as box:
        assert box.run("1 + 1").value == 2
        assert box.session().run("1 + 2").value == 3
    assert not any(path.is_file() for path in cache.rglob("*")), list(cache.rglob("*"))


def test_files_that_do_not_fit_are_noticed(tmp_path: Path) -> None:
    # As after an installation for another processor: the compiled program has another name.
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for entry in BUNDLE.iterdir():
        if not entry.name.startswith("program-"):
            shutil.copytree(entry, bundle / entry.name)
    program = f"""
import warnings
import belljar, belljar._options
from pathlib import Path
belljar._options.BUNDLE = Path({str(bundle)!r})
box = belljar.Sandbox(cache={str(tmp_path / 'cache')!r}, offline=True, install=False)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        box.prepare()
    except belljar.SandboxError as error:
        print("error", error)
print([str(each.message) for each in caught])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "do not fit" in result.stdout or "error" in result.stdout, result.stdout


def test_licences_are_part_of_the_package() -> None:
    files = [str(file) for file in importlib.metadata.files("belljar") or []]
    for name in ("LICENSE-MIT", "LICENSE-APACHE", "NOTICE.md"):
        assert any(file.endswith(name) for file in files), name

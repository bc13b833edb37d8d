"""The package itself: types, the command, the files that pip installs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import belljar
from belljar import _options

BUNDLE = Path(_options.BUNDLE)
COMMAND = Path(sys.executable).with_name("belljar")


COMMAND_WITH_BUNDLE = """
import belljar._options, sys
belljar._options.BUNDLE = {bundle!r}
from belljar.__main__ import main
sys.exit(main())
"""


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


def files_of(cache: Path) -> dict[Path, int]:
    """Returns the files in a cache with the times of their last changes, without locks and manifests.

    A manifest may be replaced meanwhile, by a file whose name begins with `.manifest-`.
    """
    is_manifest = re.compile(r"manifest\.json|\.manifest-.*").fullmatch
    files = (path for path in (cache / "entries").rglob("*") if path.is_file() and not is_manifest(path.name))
    return {path: path.stat().st_mtime_ns for path in files}


def test_nothing_is_built_after_the_installation(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with belljar.Sandbox(cache=cache, offline=True, install=False) as box:
        assert box.run("1 + 1").value == 2
        assert not any(path.is_file() for path in cache.rglob("*")), list(cache.rglob("*"))
        assert box.session().run("1 + 2").value == 3
    # The first session unpacks the image of sessions and the packages in it. Building would leave other entries, too.
    unpacked = files_of(cache)
    kinds = {path.parent.name.partition("-")[0] for path in unpacked}
    assert kinds == {"session", "layer", "bytecode"}, unpacked
    assert json.loads((BUNDLE / "packed" / "index.json").read_bytes())["entries"].keys() == {
        path.parent.name for path in unpacked
    }
    # Another process uses what the first one has unpacked.
    program = f"""
import pytest

import belljar
with belljar.Sandbox(cache={str(cache)!r}, offline=True, install=False) as box:
    print(box.session().run("1 + 2").value)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout == "3\n", result.stderr
    assert files_of(cache) == unpacked


def test_sessions_work_without_a_cache_that_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    with belljar.Sandbox(cache=file / "cache", offline=True, install=False) as box:
        sessions = [box.session(), box.session()]
        assert [session.run("1 + 2").value for session in sessions] == [3, 3]
    assert file.read_bytes() == b""


def test_damaged_files_are_not_used(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(BUNDLE, bundle)
    packed = bundle / "packed" / "entries.zst"
    packed.write_bytes(packed.read_bytes()[:-1])
    program = f"""
import belljar, belljar._options
belljar._options.BUNDLE = {str(bundle)!r}
box = belljar.Sandbox(cache={str(tmp_path / "cache")!r}, offline=True, install=False)
print(box.run("6 * 7").value)
try:
    box.session().run("1").check()
except belljar.BelljarError as error:
    print(type(error).__name__)
"""
    # Without a network, IPython cannot be installed for an image of this machine.
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    value, _, error = result.stdout.partition("\n")
    assert value == "42" and error.strip(), (result.stdout, result.stderr)


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
belljar._options.BUNDLE = {str(bundle)!r}
box = belljar.Sandbox(cache={str(tmp_path / "cache")!r}, offline=True, install=False)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    box.prepare()
    box.prepare()
print([str(each.message) for each in caught])
print(box.run("6 * 7").value)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    notice, _, value = result.stdout.partition("\n")
    assert "do not fit" in notice and str(tmp_path / "cache") in notice, (result.stdout, result.stderr)
    assert notice.count("do not fit") == 1 and value == "42\n", result.stdout
    assert any((tmp_path / "cache").rglob("program.cwasm"))
    # The command says so on standard error, and the next one does not compile again.
    command = [sys.executable, "-c", COMMAND_WITH_BUNDLE.format(bundle=str(bundle))]
    arguments = ["--offline", "--cache", str(tmp_path / "cache"), "run", "-c", "print(6 * 7)"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert result.stdout == "42\n", result.stderr


def test_files_that_only_building_needs_are_left_out() -> None:
    files = {path.name for path in BUNDLE.rglob("*")}
    assert {"program.cwasm", "base.image", "entries.zst", "stdlib.zip", "pyodide.asm.wasm.zst"} <= files
    # With them, the wheel would contain the initial memory and the sources of the standard library twice, and the image
    # of sessions not as its difference to the base image.
    assert not {"program.memory", "python_stdlib.zip", "session.image", "pyodide.asm.wasm"} & files
    # Without that difference, they would take twice the space.
    assert (BUNDLE / "packed" / "entries.zst").stat().st_size < 9 << 20


def test_images_contain_no_remains_of_freed_memory() -> None:
    # Images were a third larger: the stack and the end of the heap contained what had been used while they were built.
    (image,) = BUNDLE.glob("base-*/base.image")
    data = image.read_bytes()
    begin = int.from_bytes(data[48:56], "little")
    pages = [data[at : at + 4096] for at in range(begin, len(data), 4096)]
    used = [at for at, page in enumerate(pages) if any(page)]
    # The stack lies between the program's data and the heap: all of it but its beginning is zero.
    gap = max(second - first for first, second in zip(used, used[1:]))
    assert gap * 4096 > 4 << 20
    assert len(used) * 4096 < 15 << 20


def test_short_command_leaves_optimization_to_another_process(tmp_path: Path) -> None:
    packages = os.environ.get("BELLJAR_TEST_PACKAGES")
    assert packages, "`cargo xtask wheel` sets BELLJAR_TEST_PACKAGES"
    cache = tmp_path / "cache"
    code = "import jiter; print(jiter.from_json(b'[1]'))"
    options = ["--offline", "--find-links", packages, "--cache", str(cache)]
    result = subprocess.run([COMMAND, "run", *options, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "[1]\n", result.stderr

    def quickly_compiled() -> list[Path]:
        # Their entries contain the module itself.
        return list((cache / "entries").glob("library-*/*.wasm"))

    deadline = time.monotonic() + 120
    while quickly_compiled():
        assert time.monotonic() < deadline, "the extension module was not compiled again"
        time.sleep(0.05)
    assert len(list((cache / "entries").glob("library-*"))) == 1
    # The other process has compiled it for the processors of the wheel: nothing is compiled again.
    result = subprocess.run([COMMAND, "run", *options, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "[1]\n", result.stderr
    assert len(list((cache / "entries").glob("library-*"))) == 1


def test_command_runs_code_in_native_sandboxes(tmp_path: Path) -> None:
    # The fork server of the sandboxes is a Python process that loads the extension module.
    environment = {**os.environ, "BELLJAR_NATIVE": str(tmp_path), "BELLJAR_CACHE": str(tmp_path / "cache")}

    def belljar_command(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(COMMAND), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    setup = belljar_command("native", "setup", "--venv", sys.prefix)
    assert setup.returncode == 0, setup.stderr
    # The server gets few variables of its client.
    server = f"env BELLJAR_NATIVE={tmp_path} {COMMAND} stdio --sandbox native"
    # The sandbox shows the environment at another path, which does not name the user.
    code = "import os, sys, pytest; open('f', 'w').write('x')\n"
    code += (
        f"[os.getpid() < 1000, os.listdir('.'), sys.prefix == {sys.prefix!r}, pytest.__file__.startswith(sys.prefix)]"
    )
    called = belljar_command("call", server, "run_python_code", json.dumps({"python_code": code}))
    if "(--sandbox native)" in belljar_command("native", "status").stdout:
        assert json.loads(called.stdout)["return_value"] == [True, ["f"], False, True], called.stderr
    else:
        assert called.returncode != 0 and "sandbox" in called.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes are for Linux only")
def test_command_runs_code_in_worker_processes() -> None:
    # They are forked from a Python process that loads the extension module.
    server = f"{COMMAND} stdio --isolation process"
    code = {"python_code": "import sys\nprint(sys.platform)\n6 * 7"}
    called = subprocess.run(
        [str(COMMAND), "call", server, "run_python_code", json.dumps(code)], capture_output=True, text=True, check=False
    )
    assert called.returncode == 0, called.stderr
    answer = json.loads(called.stdout)
    assert (answer["output"], answer["return_value"]) == (["emscripten"], 42)


def test_licences_are_part_of_the_package() -> None:
    files = [str(file) for file in importlib.metadata.files("belljar") or []]
    for name in ("LICENSE-MIT", "LICENSE-APACHE", "NOTICE.md", "THIRD-PARTY.txt"):
        assert any(file.endswith(name) for file in files), name


def test_notices_name_every_crate_and_every_library_with_its_licence() -> None:
    distribution = importlib.metadata.distribution("belljar")
    texts = {file.name: file.read_text("utf-8") for file in distribution.files or [] if file.match("licenses/*")}
    head, *licences = texts["THIRD-PARTY.txt"].split("\n" + "=" * 80 + "\n")
    listed = re.findall(r"^- (\S+) (\d\S+): \S", head, re.MULTILINE)
    assert len(listed) > 400 and {"wasmtime", "uv-resolver", "pyo3"} <= {name for name, _ in listed}
    # The SBOM, which the build tool writes by itself, also lists the crates of other platforms.
    (path,) = [file for file in distribution.files or [] if file.match("sboms/*.json")]
    components = json.loads(path.read_text("utf-8"))["components"]
    assert set(listed) <= {(component["name"], component["version"]) for component in components}
    holders = [line for licence in licences for line in licence.partition("\n\n")[0].splitlines()]
    for name, version in listed:
        assert any(holder.startswith(f"{name} {version} ") for holder in holders), name
    for part in ("CPython", "Pyodide", "SQLite", "zlib", "libffi", "musl"):
        assert any(holder.startswith(part) for holder in holders) and part in texts["NOTICE.md"], part

"""The library inside other programs: pytest-xdist, and Jupyter's kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import need

DISTRIBUTED = """
import os
import pytest
from belljar import Sandbox

box = Sandbox(install=False)

@pytest.mark.parametrize("number", range(40))
def test_run(number):
    assert "PYTEST_XDIST_WORKER" in os.environ
    assert box.run(f"{number} ** 2").value == number ** 2

def test_session():
    with box.session() as session:
        session.run("x = 1")
        assert session.run("x").value == 1
"""


def test_pytest_xdist_runs_tests_in_several_processes(tmp_path: Path) -> None:
    need("xdist")
    (tmp_path / "test_distributed.py").write_text(DISTRIBUTED)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert result.returncode == 0 and "41 passed" in result.stdout, result.stdout + result.stderr


def notebook(*cells: str) -> Any:
    """Runs cells in a kernel of Jupyter, and returns the outputs of each."""
    nbclient, nbformat = need("nbclient"), need("nbformat")
    need("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return [cell["outputs"] for cell in book["cells"]]


@pytest.fixture
def kernel_of_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Jupyter start the kernel of this environment, and write to a directory of the test only."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.mark.usefixtures("kernel_of_this_python")
def test_sandboxes_work_in_a_notebook() -> None:
    outputs = notebook(
        "from belljar import AsyncSandbox, Sandbox\nbox = Sandbox(install=False)\nbox.run('6 * 7').value",
        "async def double(number):\n    return number * 2",
        "async with AsyncSandbox(tools=[double], install=False) as async_box:\n"
        "    run = await async_box.run('print(1); await double(4)', on_stdout=print)\n"
        "run.value",
        "session = box.session()\nsession.run('x = 1')\nsession.run('x').value",
        "from belljar import Image\nImage('image/png', b'png')",
    )
    texts = [[output.get("data", {}).get("text/plain", output.get("text")) for output in each] for each in outputs]
    assert texts[0] == ["42"] and texts[1] == [] and texts[3] == ["1"]
    assert texts[2][-1] == "8" and "1\n" in texts[2][0]
    assert outputs[4][0]["data"]["image/png"].strip() == "cG5n"


@pytest.mark.usefixtures("kernel_of_this_python")
def test_interrupted_notebook_cell_stops_the_code() -> None:
    manager = need("jupyter_client.manager").KernelManager(kernel_name="python3")
    need("ipykernel")
    manager.start_kernel()
    try:
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=180)
        seen: list[str] = []

        def receive(message: Any) -> None:
            content = message["content"]
            if text := content.get("text") or content.get("ename"):
                seen.append(text)
                if "running" in text:
                    manager.interrupt_kernel()

        code = "print('running')\nwhile True: pass"
        cell = f"from belljar import Sandbox\nSandbox(install=False).run({code!r}, on_stdout=print)"
        client.execute_interactive(cell, timeout=120, output_hook=receive)
        assert seen[-1] == "KeyboardInterrupt", seen
        client.execute_interactive("print(Sandbox(install=False).run('6 * 7').value)", timeout=120, output_hook=receive)
        assert "42" in "".join(seen)
        client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)

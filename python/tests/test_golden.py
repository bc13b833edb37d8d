"""Recorded answers, and agreement with the command."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import CRATES

from belljar import AsyncSandbox, Sandbox
from belljar._compat import CodeSandbox

SERVE = CRATES / "belljar/tests/serve"
CASES: dict[str, Any] = json.loads((SERVE / "mcp_run_python.json").read_text())
DIFFERENCES: dict[str, Any] = json.loads((SERVE / "differences.json").read_text())
VALUES: dict[str, Any] = json.loads((CRATES / "belljar/tests/return_values.json").read_text())
COMMAND = Path(sys.executable).with_name("belljar")


def is_like(text: str, wanted: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), text, re.DOTALL) is not None


def test_code_sandbox_gives_the_recorded_answers() -> None:
    async def main() -> list[str]:
        wrong = []
        async with AsyncSandbox(install=False) as box:
            sandbox = CodeSandbox(box, None)
            for name, case in CASES.items():
                arguments = case["arguments"]
                if not set(arguments) <= {"python_code", "global_variables"}:
                    continue
                if not isinstance(arguments.get("global_variables", {}), dict):
                    continue
                wanted = DIFFERENCES.get(name, case)["json"]
                got = await sandbox.eval(arguments["python_code"], arguments.get("global_variables"))
                text = json.dumps(got, ensure_ascii=False, separators=(",", ":"))
                if not is_like(text, wanted) and not is_like_json(got, wanted):
                    wrong.append(f"{name}\n--- wanted\n{wanted}\n--- got\n{text}")
        return wrong

    wrong = asyncio.run(main())
    assert not wrong, "\n\n".join(wrong)


def is_like_json(got: Any, wanted: str) -> bool:
    """Compares the contents, in which `…` matches any text: numbers have several spellings in JSON."""

    def same(got: Any, wanted: Any) -> bool:
        if isinstance(got, str) and isinstance(wanted, str):
            return is_like(got, wanted)
        if isinstance(got, dict) and isinstance(wanted, dict):
            return got.keys() == wanted.keys() and all(same(got[key], wanted[key]) for key in got)
        if isinstance(got, list) and isinstance(wanted, list):
            return len(got) == len(wanted) and all(map(same, got, wanted))
        return bool(got == wanted)

    try:
        return same(got, json.loads(wanted))
    except ValueError:
        return False


def test_library_and_command_agree(box: Sandbox, tmp_path: Path) -> None:
    codes = [case["arguments"]["python_code"] for case in CASES.values() if "python_code" in case["arguments"]]
    codes = [code for code in codes if isinstance(code, str)]
    # Each start of the command takes a tenth of a second.
    for code in codes[::3]:
        run = box.run(code)
        printed = subprocess.run(
            [COMMAND, "run", "--json", "--no-install", "-c", code],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        report = json.loads(printed.stdout)
        assert report["status"] == run.status, code
        if "0x" not in report["output"] and "time" not in code:
            assert report["output"] == run.output, code
        if run.status == "error":
            assert run.error is not None
            assert (report["error"]["type"], report["error"]["message"]) == (run.error.name, run.error.message), code


@pytest.mark.parametrize("name", sorted(VALUES["values"]))
def test_return_values_are_values_of_python(box: Sandbox, name: str) -> None:
    expression = VALUES["values"][name]["expr"]
    run = box.run(expression)
    if run.status == "success":
        _ = run.value

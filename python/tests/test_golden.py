"""Recorded answers, and agreement with the command."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import CRATES
from server import COMMAND

from belljar import AsyncSandbox, Sandbox
from belljar._compat import CodeSandbox

SERVE = CRATES / "belljar/tests/serve"
CASES: dict[str, Any] = json.loads((SERVE / "mcp_run_python.json").read_text())
DIFFERENCES: dict[str, Any] = json.loads((SERVE / "differences.json").read_text())
VALUES: dict[str, Any] = json.loads((CRATES / "belljar/tests/return_values.json").read_text())


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


def golden_codes() -> list[str]:
    """Returns the code of all recorded cases, of the recorded values, and of the first cells of the cells' tests."""
    cases = [case["arguments"] for case in CASES.values()]
    codes = [case["python_code"] for case in cases if isinstance(case.get("python_code"), str)]
    # The command has no variables of the host: they become code.
    for case in cases:
        variables = case.get("global_variables")
        if isinstance(variables, dict) and isinstance(case.get("python_code"), str):
            lines = [f"{name} = {value!r}" for name, value in variables.items()]
            codes.append("\n".join([*lines, case["python_code"]]))
    codes += [value["expr"] for value in VALUES["values"].values()]
    for file in sorted((CRATES / "belljar/tests/cells").glob("*.py")):
        codes.append(file.read_text().split("\n# %%")[0])
    return codes


def settled(text: str) -> str:
    """Replaces what differs between two runs: addresses."""
    return re.sub(r"0x[0-9a-f]+", "0x…", text)


def test_a_run_equals_the_run_of_the_command(box: Sandbox, tmp_path: Path) -> None:
    def run_command(code: str) -> dict[str, Any]:
        command = [COMMAND, "run", "--json", "--no-install", "-c", code]
        printed = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        report: dict[str, Any] = json.loads(printed.stdout)
        return report

    async def evaluate(codes: list[str]) -> list[Any]:
        async with AsyncSandbox(install=False) as sandbox:
            return [await CodeSandbox(sandbox, None).eval(code) for code in codes]

    codes = golden_codes()
    assert len(codes) > 100
    # Each start of the command takes a tenth of a second.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = list(pool.map(run_command, codes))
    for code, report, evaluated in zip(codes, reports, asyncio.run(evaluate(codes))):
        run = box.run(code)
        assert run.status == report["status"], code
        for stream in ("output", "stdout", "stderr"):
            assert settled(getattr(run, stream)) == settled(report[stream]), code
        assert (run.exit_code, run.limit) == (report.get("exit_code"), report.get("limit")), code
        if run.status == "error":
            assert run.error is not None
            error = report["error"]
            assert run.error.name == error["type"], code
            assert settled(run.error.message) == settled(error["message"]), code
            assert settled(run.error.traceback) == settled(error["traceback"]), code
        if run.ok and run.status == "success":
            value = json.dumps(report.get("value")), json.dumps(evaluated["return_value"])
            assert settled(value[0]) == settled(value[1]), code


@pytest.mark.parametrize("name", sorted(VALUES["values"]))
def test_return_values_are_values_of_python(box: Sandbox, name: str) -> None:
    expression = VALUES["values"][name]["expr"]
    run = box.run(expression)
    if run.status == "success":
        _ = run.value

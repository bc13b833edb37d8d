"""The Python API of mcp-run-python: changing the import is enough."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypedDict, Union

from ._asyncio import AsyncSandbox, _wait
from ._run import Run
from ._jobs import start, to_run

JsonData = Union[str, bool, int, float, None, "list[JsonData]", "dict[str, JsonData]"]
LogHandler = Callable[[str, str], None]


class _Dependencies(TypedDict, total=False):
    dependencies: list[str]
    """The packages that were installed for the code, if any."""


class RunSuccess(_Dependencies):
    """The result of code that succeeded."""

    status: Literal["success"]
    output: list[str]
    return_value: JsonData


class RunError(_Dependencies):
    """The result of code that did not succeed."""

    status: Literal["install-error", "run-error"]
    output: list[str]
    error: str


class CodeSandbox:
    """A sandbox, created by `code_sandbox`."""

    def __init__(self, sandbox: AsyncSandbox, log_handler: LogHandler | None) -> None:
        self._sandbox = sandbox
        self._log_handler = log_handler

    async def eval(self, code: str, globals: dict[str, Any] | None = None) -> RunSuccess | RunError:
        """Runs code in the sandbox.

        Args:
            code: Python code to run.
            globals: The variables for the code, which can be JSON.
        """
        text = json.dumps({"code": code, "timeout": None, "globals": globals, "json": True})
        runtime = self._sandbox._options.runtime
        job = await _wait(lambda on_end: start(None, runtime.run, text, [], False, on_end))
        value: JsonData = None

        def take() -> Any:
            nonlocal value
            result = job.result()
            if (encoded := result.pop("json", None)) is not None:
                value = json.loads(encoded)
            return result

        run = to_run(take, None)
        text = run.output
        output = text.removesuffix("\n").split("\n") if text else []
        if self._log_handler is not None:
            for line in output:
                self._log_handler("info", line)
        dependencies: _Dependencies = {"dependencies": run.packages} if run.packages else {}
        if run.ok:
            return {"status": "success", **dependencies, "output": output, "return_value": value}
        status: Literal["install-error", "run-error"] = (
            "install-error" if run.status == "install-error" else "run-error"
        )
        return {"status": status, **dependencies, "output": output, "error": _error(run)}


def _error(run: Run) -> str:
    error = run.error
    if error is None:
        return f"{run.status}\n"
    if run.status == "error":
        hint = f"hint: {run.hint}\n" if run.hint is not None else ""
        return f"{error.traceback}{hint}"
    if run.status == "exit":
        return f"SystemExit: {run.exit_code}\n"
    return f"{error.message}\n" if run.status == "install-error" else f"{error}\n"


@asynccontextmanager
async def code_sandbox(
    *,
    dependencies: list[str] | None = None,
    log_handler: LogHandler | None = None,
    allow_networking: bool = True,
) -> AsyncIterator[CodeSandbox]:
    """Creates a sandbox.

    Args:
        dependencies: Packages to install.
        log_handler: Receives a level and a line for each line that code has printed.
        allow_networking: Accepted for compatibility. Code never has access to a network.
    """
    del allow_networking
    async with AsyncSandbox(dependencies or []) as sandbox:
        yield CodeSandbox(sandbox, log_handler)

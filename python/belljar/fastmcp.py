"""Belljar as the sandbox of FastMCP's code mode.

>>> from fastmcp import FastMCP
>>> from fastmcp.experimental.transforms.code_mode import CodeMode
>>> from belljar.fastmcp import BelljarSandboxProvider
>>> server = FastMCP("tools", transforms=[CodeMode(sandbox_provider=BelljarSandboxProvider())])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

try:
    import anyio
    from fastmcp.exceptions import ToolError
    from pydantic_core import from_json, to_json
except ImportError as error:
    raise ImportError(f"belljar.fastmcp needs FastMCP ({error}): pip install fastmcp") from error

from ._asyncio import AsyncSandbox, AsyncSession
from ._code_tool import why_not_code
from ._guest_sources import guest_source
from ._integration_sandbox import choose, with_tools
from ._limits import Limits
from ._model_text import MAX_TEXT, run_text
from ._tools import Tool

DEFAULT_LIMITS: Limits = {"timeout": 30, "memory": "512MB", "value": "8MB"}
"""The limits of code if the caller sets none: seconds without the time that tools take, memory, and its value."""


class BelljarSandboxProvider:
    """Runs the code of FastMCP's `CodeMode`, each piece in an interpreter of its own.

    The value of a piece of code is that of its ``return``, as CodeMode describes it to models, or of its last line if
    that is an expression. Code without a value has what it has printed as its value.
    """

    def __init__(self, sandbox: AsyncSandbox | None = None, *, max_error_text: int = MAX_TEXT, **options: Any) -> None:
        """Creates a provider.

        Args:
            sandbox: A sandbox in this process, whose settings and functions hold for all code.
            max_error_text: The most characters of an error, which contains the code's output and traceback.
            options: Those of `AsyncSandbox`, instead of a sandbox. The default of ``limits`` is `DEFAULT_LIMITS`.
        """
        if sandbox is None:
            options.setdefault("limits", DEFAULT_LIMITS)
        self._is_owned = sandbox is None
        self._sandbox = choose(AsyncSandbox, sandbox, options)
        self._max_error_text = max_error_text
        self._prepared: bytes | None = None

    async def run(
        self,
        code: str,
        *,
        inputs: dict[str, Any] | None = None,
        external_functions: dict[str, Callable[..., Any]] | None = None,
    ) -> Any:
        """Runs code and returns its value.

        Args:
            code: The code.
            inputs: Variables for the code.
            external_functions: Functions that the code can call and await, by name. They are called on this event loop.

        Returns:
            The value as JSON types: arrays are lists, data frames lists of dictionaries, and bytes Base64.

        Raises:
            ToolError: If the code fails or reaches a limit. The text contains its output and its traceback.
        """
        if (reason := why_not_code(code)) is not None:
            raise ToolError(reason)
        tools = [Tool(_asynchronous(function), name=name) for name, function in (external_functions or {}).items()]
        sandbox = with_tools(self._sandbox, tools)
        session = sandbox.load(self._prepared or await self._prepare())
        assert isinstance(session, AsyncSession)
        try:
            run = await session.run(code, globals=inputs)
        finally:
            await _close(session)
        if not run.ok:
            raise ToolError(run_text(run, self._max_error_text, shows_images=False))
        value = run.value
        return run.output.rstrip("\n") if value is None and run.output else _plain(value)

    async def _prepare(self) -> bytes:
        """Returns a session whose cells can return. Loading it takes less time than its first cell."""
        session = self._sandbox.session()
        try:
            (await session.run(guest_source("return_cells"))).check()
            self._prepared = await session.dump()
        finally:
            await _close(session)
        return self._prepared

    async def close(self) -> None:
        """Closes connections to MCP servers of the options. A sandbox of the caller stays open."""
        if self._is_owned:
            await self._sandbox.close()


async def _close(session: AsyncSession) -> None:
    # Also after the request was cancelled.
    with anyio.CancelScope(shield=True):
        await session.close()


def _asynchronous(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    try:
        call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        pass  # Functions in C may have none.
    call.__doc__ = inspect.getdoc(function)
    return call


def _plain(value: Any) -> Any:
    """Returns a value of the code as JSON types, which the server can send."""
    try:
        return from_json(to_json(value, bytes_mode="base64", fallback=_fallback))
    except ValueError as error:
        raise ToolError(f"failed to send the value of the code: {error}") from error


def _fallback(value: Any) -> Any:
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return value.to_dict("records")
    return value.tolist() if hasattr(value, "tolist") else str(value)

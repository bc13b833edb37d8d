"""Function tools of the OpenAI Agents SDK as functions of code, with the rules that the SDK enforces for calls."""

from __future__ import annotations

import contextvars
import inspect
import json
import secrets
from dataclasses import dataclass
from typing import Any

from agents import (
    FunctionTool,
    ToolInputGuardrailData,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailData,
    ToolOutputGuardrailTripwireTriggered,
)
from agents.exceptions import AgentsException
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext

from ._errors import ArgumentError, ArgumentTypeError
from ._schema_tools import SchemaTool
from ._tools import Tool


@dataclass
class CodeCall:
    """The call of a model whose code calls functions of this process."""

    context: ToolContext[Any]
    failure: AgentsException | None = None
    """The exception that ends the agent's run."""


current: contextvars.ContextVar[CodeCall] = contextvars.ContextVar("belljar_code_call")
"""The call whose code runs."""


def is_for_code(tool: FunctionTool) -> bool:
    """Returns whether code can call a tool: not if it is disabled, or only models may call it."""
    callers = tool.allowed_callers
    return tool.is_enabled is not False and (not callers or "programmatic" in callers)


def code_function(tool: FunctionTool) -> Tool:
    """Returns a function tool of the SDK as an async function for code.

    It receives the context of the call that runs the code. Its errors are what the tool makes of them: by default a
    text for a model and not an exception. A call that the tool's guardrails reject, that would need an approval, or for
    which the tool is not enabled, is a `PermissionError` in the code. A guardrail's tripwire ends the agent's run: code
    that catches its exception gets it again from every other call.

    Raises:
        ArgumentError: If every call needs an approval, for which code cannot wait.
    """
    if not isinstance(tool, FunctionTool):
        raise ArgumentTypeError(f"tool: a FunctionTool is needed, not {type(tool).__name__}")
    if tool.needs_approval is True:
        raise ArgumentError(f"tools: {tool.name} needs approvals, for which code cannot wait: pass it to the agent")

    async def call(arguments: dict[str, Any]) -> Any:
        outer = current.get(None)
        if outer is not None and outer.failure is not None:
            # The code has caught the exception that ends the run. It must not have effects after it.
            raise outer.failure
        context = _context(tool, outer, json.dumps(arguments))
        try:
            return await _call(tool, context, arguments)
        except AgentsException as error:
            if outer is not None:
                outer.failure = error
            raise

    return SchemaTool(tool.name, tool.description, tool.params_json_schema, call)


def _context(tool: FunctionTool, outer: CodeCall | None, arguments: str) -> ToolContext[Any]:
    identifier = f"call_{secrets.token_hex(12)}"
    if outer is None:
        return ToolContext(None, tool_name=tool.name, tool_call_id=identifier, tool_arguments=arguments)
    calling = outer.context
    return ToolContext(
        calling.context,
        usage=calling.usage,
        tool_name=tool.name,
        tool_call_id=identifier,
        tool_arguments=arguments,
        agent=calling.agent,
        run_config=calling.run_config,
    )


async def _call(tool: FunctionTool, context: ToolContext[Any], arguments: dict[str, Any]) -> Any:
    agent: Any = context.agent
    if callable(tool.is_enabled) and not await _awaited(tool.is_enabled(context, agent)):
        raise PermissionError(f"{tool.name} is not enabled")
    if callable(tool.needs_approval) and await _awaited(tool.needs_approval(context, arguments, context.tool_call_id)):
        raise PermissionError(f"this call of {tool.name} needs an approval, for which code cannot wait")
    for before in tool.tool_input_guardrails or ():
        found = await before.run(ToolInputGuardrailData(context=context, agent=agent))
        if found.behavior["type"] == "raise_exception":
            raise ToolInputGuardrailTripwireTriggered(before, found)
        if found.behavior["type"] == "reject_content":
            raise PermissionError(found.behavior["message"])
    output = await invoke_function_tool(function_tool=tool, context=context, arguments=context.tool_arguments)
    for after in tool.tool_output_guardrails or ():
        found = await after.run(ToolOutputGuardrailData(context=context, agent=agent, output=output))
        if found.behavior["type"] == "raise_exception":
            raise ToolOutputGuardrailTripwireTriggered(after, found)
        if found.behavior["type"] == "reject_content":
            raise PermissionError(found.behavior["message"])
    return output


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value

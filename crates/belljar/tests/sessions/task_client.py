"""Calls the tools of Belljar that run code as tasks of the protocol version 2025-11-25, with version 1 of the Python
MCP SDK.

Arguments: `stdio COMMAND ARGS…`, `http URL` or `sse URL`.
"""

import asyncio
import contextlib
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import CallToolResult, ElicitResult

CODE = "from tools import t\nawait t.append(text='a')"


async def main(kind, *target):
    questions = []

    async def answer(context, params):
        questions.append(params)
        return ElicitResult(action="accept", content={"value": "yes"})

    async with contextlib.AsyncExitStack() as stack:
        if kind == "http":
            streams = await stack.enter_async_context(streamablehttp_client(target[0]))
        elif kind == "sse":
            streams = await stack.enter_async_context(sse_client(target[0]))
        else:
            command = StdioServerParameters(command=target[0], args=list(target[1:]))
            streams = await stack.enter_async_context(stdio_client(command))
        client = await stack.enter_async_context(ClientSession(*streams[:2], elicitation_callback=answer))
        hello = await client.initialize()
        assert hello.capabilities.tasks.requests.tools.call is not None, hello
        tools = (await client.list_tools()).tools
        supports = {tool.name: tool.execution.taskSupport for tool in tools if tool.execution}
        assert supports == {"execute_code": "optional", "run_python_code": "optional"}, supports

        tasks = client.experimental
        done = []
        for tool, argument, value in [
            ("execute_code", "code", "result"),
            ("run_python_code", "python_code", "return_value"),
        ]:
            questions.clear()
            created = await tasks.call_tool_as_task(tool, {argument: CODE}, ttl=60_000)
            id = created.task.taskId
            statuses = []
            async for status in tasks.poll_task(id):
                statuses.append(status.status)
                if status.status == "input_required":
                    result = await tasks.get_task_result(id, CallToolResult)
                    assert "call " in result.structuredContent[value], result
                    assert result.meta["io.modelcontextprotocol/related-task"] == {"taskId": id}, result
            assert statuses[-2:] == ["input_required", "completed"], statuses
            [question] = questions
            assert "append" in question.message, question
            assert question.meta.model_extra["io.modelcontextprotocol/related-task"] == {"taskId": id}, question
            done.append(id)
        listed = await tasks.list_tasks()
        assert [task.taskId for task in listed.tasks if task.status == "completed"] == done, listed

asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 200))

"""Leaves cells that wait for an approval, and comes back to them, with the Python MCP SDK: 1.x in the legacy era of the
protocol, 2.x in the modern one. Over streamable HTTP, the client reconnects to the same server, and to another process
after the server was killed; over standard streams, each connection has a process of its own. The last approval of both
is one on the command line.

Arguments: `BELLJAR OPTIONS…`, where the options of a server include `--data-dir DIR`. The server of tools is that of
`tool_server.py recording`.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys

from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client

try:
    from mcp.client.client import Client
    from mcp_types import ElicitResult
except ImportError:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client
    from mcp.types import ElicitResult

    Client = None

BELLJAR, *OPTIONS = sys.argv[1:]
DATA = OPTIONS[OPTIONS.index("--data-dir") + 1]
CODE = "from tools import t\nawait t.append(text='{}')"


class Connection:
    """A connection whose user approves calls, or does not answer."""

    def __init__(self, approves):
        self.approves = approves
        self.questions = []
        self.is_asked = asyncio.Event()

    async def answer(self, context, params):
        self.questions.append(params.message)
        self.is_asked.set()
        if not self.approves:
            await asyncio.Event().wait()
        return ElicitResult(action="accept", content={"value": "yes"})

    async def call(self, tool, arguments):
        """Returns the fields of a result. Questions are answered."""
        result = await self.client.call_tool(tool, arguments)
        return json.loads(result.content[0].text)

    async def leave_waiting(self, arguments):
        """Calls `execute_code`, and returns once the user is asked."""
        if Client is not None:
            asked = await self.client.session.call_tool("execute_code", arguments, allow_input_required=True)
            assert asked.result_type == "input_required" and asked.request_state, asked
            return
        call = asyncio.create_task(self.client.call_tool("execute_code", arguments))
        await self.is_asked.wait()
        call.cancel()
        await asyncio.wait([call])


@contextlib.asynccontextmanager
async def connect(target, approves):
    """Connects to a URL, or starts a server on standard streams."""
    connection = Connection(approves)
    command = StdioServerParameters(command=BELLJAR, args=["stdio", *OPTIONS])
    async with contextlib.AsyncExitStack() as stack:
        if Client is not None:
            where = target or stdio_client(command)
            client = Client(where, mode="2026-07-28", elicitation_callback=connection.answer)
        else:
            transport = streamablehttp_client(target) if target else stdio_client(command)
            streams = await stack.enter_async_context(transport)
            client = ClientSession(*streams[:2], elicitation_callback=connection.answer)
        connection.client = await stack.enter_async_context(client)
        if Client is None:
            await client.initialize()
        yield connection


async def leave(target, text):
    """Leaves a cell that waits for an approval, and returns its session."""
    async with connect(target, approves=False) as connection:
        opened = await connection.call("execute_code", {"code": "kept = 'kept'"})
        session = opened["session_info"]["session_id"]
        await connection.leave_waiting({"code": CODE.format(text), "session_id": session})
    return session


async def come_back(target, session, number):
    """Approves the call of a cell that was left."""
    async with connect(target, approves=True) as connection:
        [run] = (await connection.call("list_runs", {"session_id": session}))["runs"]
        assert run["outcome"] == "paused" and run["call_count"] == 1, run
        done = await connection.call("resume_run", {"run_id": run["run_id"]})
        assert done["result"] == f"'call {number}'", done
        [question] = connection.questions
        assert "append" in question, question
        kept = await connection.call("execute_code", {"code": "kept", "session_id": session})
        assert kept["result"] == "'kept'", kept


def approve_on_the_command_line(session):
    listed = subprocess.check_output([BELLJAR, "runs", "list", "--json", "--data-dir", DATA], text=True)
    [run] = [run for run in map(json.loads, listed.splitlines()) if run["session"] == session]
    subprocess.check_call([BELLJAR, "runs", "approve", "--data-dir", DATA, run["run"]])


async def find_result(target, session, number):
    """Finds the result of a cell that goes on without its client."""
    async with connect(target, approves=False) as connection:
        while True:
            [run] = (await connection.call("list_runs", {"session_id": session}))["runs"]
            if run["status"] == "completed":
                break
            await asyncio.sleep(0.05)
        assert run["outcome"] == "completed" and run["call_count"] == 1, run
        done = await connection.call("resume_run", {"run_id": run["run_id"]})
        assert done["result"] == f"'call {number}'", done
        assert connection.questions == [], connection.questions


@contextlib.contextmanager
def listening():
    """Starts a server of streamable HTTP, and kills it in the end."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("BELLJAR_")}
    variables["BELLJAR_NO_BACKGROUND"] = "1"
    command = [BELLJAR, "streamable-http", "--port", "0", *OPTIONS]
    server = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
    try:
        yield server.stderr.readline().removeprefix("listening on ").strip()
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


async def over_http():
    with listening() as url:
        await come_back(url, await leave(url, "reconnected"), 1)
        session = await leave(url, "restarted")
    with listening() as url:
        await come_back(url, session, 2)
        session = await leave(url, "approved by an operator")
        approve_on_the_command_line(session)
        await find_result(url, session, 3)


async def over_stdio():
    await come_back(None, await leave(None, "restarted"), 4)
    session = await leave(None, "approved by an operator")
    approve_on_the_command_line(session)
    await find_result(None, session, 5)


async def main():
    await over_http()
    await over_stdio()


asyncio.run(asyncio.wait_for(main(), 200))

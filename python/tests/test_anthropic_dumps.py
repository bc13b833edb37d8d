"""Code of `belljar.anthropic` that waits, and continues in another session or process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from test_anthropic import QUERY, answers, check, code_execution, use

import belljar
from belljar import AsyncSandbox, Sandbox
from belljar.anthropic import AsyncCodeExecution, CodeExecution

LOAD = """
import sys
from belljar.anthropic import CodeExecution
from test_anthropic import QUERY

with CodeExecution.load(sys.stdin.buffer.read(), tools=[QUERY], install=False) as code:
    (call,) = code.calls
    assert call["input"] == {"sql": "A"}, call
    step = code.resume([{"type": "tool_result", "tool_use_id": call["id"], "content": "rows"}])
    print([result["content"] for result in step.results])
"""


def test_code_that_waits_continues_in_another_process() -> None:
    with code_execution(tools=[QUERY]) as code:
        step = code.run([use("x = 5\nresult = await query_database('A')\n(x, result)"), use("x + 1"), use(3)])
        dump = code.dump()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run([sys.executable, "-c", LOAD], input=dump, capture_output=True, env=environment)
        assert ended.stdout.decode() == "[\"(5, 'rows')\", '6', 'the code is missing']\n", ended.stderr
        # The code goes on here as well, and each load is a session of its own.
        assert check(code.resume(answers(step, "here"))).results[0]["content"] == "(5, 'here')"
        with CodeExecution.load(dump, tools=[QUERY], install=False) as other:
            assert check(other.resume(answers(step, "there"))).results[0]["content"] == "(5, 'there')"


def test_sessions_without_code_that_waits_are_loaded_too() -> None:
    async def main() -> None:
        async with AsyncSandbox(install=False) as box:
            async with AsyncCodeExecution(box, tools=[QUERY]) as code:
                await code.run([use("x = 5")])
                dump = await code.dump()
            async with await AsyncCodeExecution.load(dump, box, tools=[QUERY]) as other:
                assert (await other.run([use("x")])).results[0]["content"] == "5"
                step = await other.run([use("await query_database('A')")])
                waiting = await other.dump()
            async with await AsyncCodeExecution.load(waiting, box, tools=[QUERY]) as other:
                assert other.calls == step.calls
                step = await other.resume(answers(step, "rows"))
                assert step.results[0]["content"] == "'rows'"
            assert box._sessions == []

    asyncio.run(main())


def test_changed_state_is_refused() -> None:
    with code_execution(tools=[QUERY]) as code:
        code.run([use("await query_database('A')")])
        dump = code.dump()
    size = int.from_bytes(dump[:4], "big")
    state = dump[4 : 4 + size]
    for changed in (
        state.replace(b'"calls": [[', b'"calls": [[1'),
        state.replace(b'"made"', b'"mode"'),
        state.replace(b'"calls": [[', b'"calls": [5, ['),
        state.replace(b'"request": {', b'"request": {"x": 1, '),
        state.replace(b'"queue": []', b'"queue": [1]'),
    ):
        assert changed != state
        forged = len(changed).to_bytes(4, "big") + changed + dump[4 + size :]
        with pytest.raises(belljar.DumpError):
            CodeExecution.load(forged, tools=[QUERY], install=False)


@pytest.mark.parametrize(
    "dump", [b"", b"\0" * 100, b"\0\0\0\2{}", b"\xff" * 10, b"\0\0\0\x1c" + b'{"queue":[],"current":null} ']
)
def test_other_bytes_are_refused(dump: bytes) -> None:
    with pytest.raises(belljar.DumpError):
        CodeExecution.load(dump, install=False)
    with Sandbox(install=False) as box, box.session() as session:
        with pytest.raises(belljar.DumpError):
            CodeExecution.load(dump, box)
        assert box._sessions == [session]
        with pytest.raises(belljar.ArgumentError if dump.startswith(b"\0\0\0\x1c") else belljar.DumpError):
            CodeExecution.load(dump, session)

"""Runs that pause for answers of their caller, in memory and as bytes."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CRATES

import belljar
from belljar import McpServer, Run, Sandbox, Session, tool

TOOL_SERVER = CRATES / "belljar-tools/tests/it/python/tool_server.py"


@tool(deferred=True)
async def approve(what: str) -> bool:
    """Asks a person."""
    raise AssertionError("a deferred function is not called")


def add(one: int, other: int) -> int:
    return one + other


def ids(run: Run) -> list[int]:
    return [call.id for call in run.pending if call.id is not None]


CODE = """
import asyncio, random
drawn = random.random()
print("before")
answers = await asyncio.gather(approve("deploy"), approve(what="delete"), add(1, 2))
print("after")
(answers, drawn)
"""


def only(run: Run) -> int:
    (call,) = run.pending
    assert call.id is not None
    return call.id


@pytest.fixture(scope="module")
def box() -> Sandbox:
    return Sandbox(tools=[approve, add])


def test_run_goes_on_with_answers(box: Sandbox) -> None:
    run = box.run(CODE)
    assert (run.status, run.output, run.ok) == ("paused", "before\n", False)
    assert [(call.name, call.args, call.kwargs) for call in run.pending] == [
        ("approve", ("deploy",), {}),
        ("approve", (), {"what": "delete"}),
    ]
    first, second = ids(run)
    # One answer at a time: the run pauses again with what is missing.
    again = run.resume({first: True})
    assert again.status == "paused" and only(again) == second
    ended = again.resume({second: {"by": "ann"}}).check()
    assert ended.value[0] == [True, {"by": "ann"}, 3]
    assert ended.output == "before\nafter\n"
    assert sorted((call.name, str(call.result)) for call in ended.calls) == [
        ("add", "3"),
        ("approve", "True"),
        ("approve", "{'by': 'ann'}"),
    ]


def test_exception_as_an_answer_is_raised_in_the_code(box: Sandbox) -> None:
    run = box.run("try:\n    await approve('x')\nexcept PermissionError as error:\n    print(error)")
    assert run.resume({only(run): PermissionError("not today")}).check().output == "not today\n"
    run = box.run("await approve('x')")
    ended = run.resume({only(run): PermissionError("not today")})
    assert ended.status == "error" and ended.error is not None and ended.error.name == "PermissionError"


def test_run_goes_on_once(box: Sandbox) -> None:
    run = box.run("await approve('x')")
    assert run.resume({only(run): 1}).value == 1
    with pytest.raises(belljar.SandboxError, match="gone on already"):
        run.resume({only(run): 2})
    with pytest.raises(belljar.SandboxError, match="gone on already"):
        run.dump()


def test_answers_are_checked_before_the_code_goes_on(box: Sandbox) -> None:
    run = box.run("await approve('x')")
    with pytest.raises(belljar.ArgumentError, match="no call has the id 99"):
        run.resume({99: 1})
    with pytest.raises(TypeError, match=r"answers\[0\]"):
        run.resume({only(run): object()})
    assert run.resume({only(run): 7}).value == 7
    with pytest.raises(belljar.SandboxError, match="not paused"):
        box.run("1").resume({})
    with pytest.raises(belljar.ArgumentError, match="either blocking or deferred"):
        tool(blocking=True, deferred=True)(add)


def test_timers_that_are_due_fire_without_an_answer(box: Sandbox) -> None:
    code = "import asyncio\ntry:\n    await asyncio.wait_for(approve('x'), 5)\nexcept TimeoutError:\n    print('late')"
    run = box.run(code)
    assert run.status == "paused"
    while run.status == "paused":
        run = run.resume({})
    assert run.check().output == "late\n"


def test_code_that_blocks_cannot_pause(box: Sandbox) -> None:
    with box.session() as session:
        for where in (box, session):
            run = where.run("import asyncio\nasyncio.run(approve('x'))")
            assert run.error is not None and "cannot pause inside of asyncio.run()" in run.error.message


def test_limits_of_time_do_not_count_pauses() -> None:
    import time

    with Sandbox(tools=[approve]) as box:
        # The code itself takes less than the limit, also on a busy machine.
        run = box.run("await approve('x')", timeout=3)
        time.sleep(3.5)
        assert run.resume({only(run): "in time"}).value == "in time"
        session = box.session()
        run = session.run("await approve('x')", timeout=3)
        time.sleep(3.5)
        assert run.resume({only(run): "in time"}).value == "in time"


LOADED = """
import sys
from pathlib import Path
from belljar import Run, Sandbox, tool

@tool(deferred=True)
async def approve(what: str) -> bool: ...

def add(one: int, other: int) -> int:
    return one + other

with Sandbox(tools=[approve, add]) as box:
    run = box.load(Path(sys.argv[1]).read_bytes())
    if not isinstance(run, Run):
        run = run.paused()
    assert run.status == "paused" and run.output == "before\\n", run
    run = run.resume({call.id: f"{call.name} {n}" for n, call in enumerate(run.pending)}).check()
    print(run.value[0], run.output.split(), [call.name for call in run.calls])
"""


@pytest.mark.parametrize("in_session", [False, True])
def test_dump_goes_on_in_another_process(box: Sandbox, tmp_path: Path, in_session: bool) -> None:
    run = box.session().run(CODE) if in_session else box.run(CODE)
    path = tmp_path / "run"
    path.write_bytes(run.dump())
    command = [sys.executable, "-c", LOADED, str(path)]
    loaded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    wanted = "['approve 0', 'approve 1', 3] ['before', 'after'] ['approve', 'approve']\n"
    assert (loaded.stdout, loaded.stderr) == (wanted, "")
    # The run itself goes on, too.
    ended = run.resume(dict.fromkeys(ids(run), 0)).check()
    assert ended.value[0] == [0, 0, 3]


def test_dump_gives_runs_with_the_same_past_and_their_own_future(box: Sandbox) -> None:
    code = "import random\nfirst = random.random()\nawait approve('x')\n(first, random.random())"
    dump = box.run(code).dump()
    values = []
    for _ in range(2):
        run = box.load(dump)
        assert isinstance(run, Run)
        values.append(run.resume({only(run): None}).check().value)
    assert values[0][0] == values[1][0] and values[0][1] != values[1][1]


def test_large_arguments_are_in_the_dump(box: Sandbox) -> None:
    data = bytes(range(256)) * 4096
    run = box.load(box.run("await approve(bytes(range(256)) * 4096)").dump())
    assert isinstance(run, Run) and run.pending[0].args == (data,)
    assert run.resume({only(run): data}).value == data


def test_changed_bytes_are_refused(box: Sandbox) -> None:
    dump = box.run("await approve('x')").dump()
    for at in range(0, len(dump), max(1, len(dump) // 50)):
        changed = bytearray(dump)
        changed[at] ^= 1
        with pytest.raises(belljar.DumpError):
            box.load(bytes(changed))
    with pytest.raises(belljar.DumpError):
        box.load(dump[:-1])


def test_session_waits_for_its_paused_cell(box: Sandbox) -> None:
    with box.session() as session:
        session.run("x = 1").check()
        run = session.run("x += await approve('x')\nx")
        assert run.status == "paused"
        with pytest.raises(belljar.SandboxError, match="a cell of the session is paused"):
            session.run("x")
        same = session.paused()
        assert same is not None and only(same) == only(run)
        assert run.resume({only(run): 41}).check().value == 42
        assert session.paused() is None and session.run("x").value == 42
        with pytest.raises(belljar.SandboxError, match="gone on already"):
            same.resume({only(same): 1})
        # A restart ends the cell.
        run = session.run("await approve('x')")
        session.restart()
        with pytest.raises(belljar.SandboxError, match="gone on already"):
            run.resume({only(run): 1})
        assert session.run("1 + 1").value == 2


def test_loaded_session_keeps_its_variables(box: Sandbox) -> None:
    with box.session() as session:
        session.run("x = 20").check()
        run = session.run("print('waits')\ny = await approve('x')\nx + y")
        loaded = box.load(session.dump())
    assert isinstance(loaded, Session) and run.status == "paused"
    with loaded:
        again = loaded.paused()
        assert again is not None and again.output == "waits\n"
        # Not continued yet, it can be saved again.
        copy = box.load(loaded.dump())
        assert isinstance(copy, Session) and copy.paused() is not None
        copy.close()
        assert again.resume({only(again): 22}).check().value == 42
        assert loaded.run("x, y").value == (20, 22)


def test_many_paused_runs_hold_no_thread() -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    with Sandbox(tools=[approve]) as box:
        box.run("1")
        before = threads()
        runs = [box.run(f"{n} + await approve('x')") for n in range(600)]
        assert threads() - before < 50
        assert [run.resume({only(run): 1}).value for run in runs] == list(range(1, 601))


def test_async_runs_pause() -> None:
    async def main() -> None:
        async with belljar.AsyncSandbox(tools=[approve, add]) as box:
            written: list[str] = []
            run = await box.run(CODE)
            dump = await run.dump()
            assert run.status == "paused" and len(run.pending) == 2
            answers = dict.fromkeys(ids(run), True)
            ended = await run.resume(answers, on_stdout=written.append)
            assert ended.check().value[0] == [True, True, 3] and "".join(written) == "after\n"
            loaded = box.load(dump)
            assert isinstance(loaded, belljar.AsyncRun)
            assert (await loaded.resume(answers)).check().value[0] == [True, True, 3]
            async with box.session() as session:
                run = await session.run("await approve('x')")
                assert (await run.resume({only(run): 5})).value == 5

    asyncio.run(main())


def append_server(tmp_path: Path, name: str) -> McpServer:
    return McpServer([sys.executable, "-u", str(TOOL_SERVER), "recording", str(tmp_path / "calls.txt")], name=name)


APPROVALS = """
import asyncio
from tools import t
kept = [1, 2]
results = await asyncio.gather(t.append(text="a"), t.append(text="b"), return_exceptions=True)
([str(each) for each in results], kept)
"""


@pytest.mark.parametrize("in_session", [False, True])
def test_approvals_of_tools_pause(tmp_path: Path, in_session: bool) -> None:
    with Sandbox(tools=[append_server(tmp_path, "t")], approve="pause") as box:
        run = box.session().run(APPROVALS) if in_session else box.run(APPROVALS)
        assert run.status == "paused", run
        assert [(call.server, call.name, call.kwargs["text"]) for call in run.pending] == [
            ("t", "append", "a"),
            ("t", "append", "b"),
        ]
        first, second = ids(run)
        with pytest.raises(belljar.ArgumentError, match="is not one of once"):
            run.resume({first: "maybe"})
        dump = run.dump()
        run = run.resume({first: "no"})
        assert run.status == "paused" and ids(run) == [second]
        ended = run.resume({second: True}).check()
        denied, done = ended.value[0]
        assert "the user denied" in denied and done == "call 1" and ended.value[1] == [1, 2]
        assert [call.status for call in ended.calls] == ["denied", "ok"]

    with Sandbox(tools=[append_server(tmp_path, "t")], approve="pause") as box:
        loaded = box.load(dump)
        again = loaded.paused() if isinstance(loaded, Session) else loaded
        assert again is not None and ids(again) == [first, second]
        ended = again.resume({first: "run", second: False}).check()
        done, denied = ended.value[0]
        assert "the user denied" in denied and done == "call 2"
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    assert calls == ["append b", "append a"]


def test_blocking_code_cannot_pause_for_approval(tmp_path: Path) -> None:
    with Sandbox(tools=[append_server(tmp_path, "t")], approve="pause") as box:
        run = box.run("from tools import t\nt.append(text='a').result()")
        assert run.error is not None and "cannot pause" in run.error.message

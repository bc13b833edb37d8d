"""E2B's interface: timeouts, pauses, forks, snapshots, lists and the arguments of new sandboxes."""

from __future__ import annotations

import datetime
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import belljar
from belljar import code_interpreter as e2b
from belljar.code_interpreter import Sandbox


@pytest.fixture(autouse=True)
def no_sandboxes_are_left() -> Iterator[None]:
    yield
    while (paginator := Sandbox.list()).has_next and (found := paginator.next_items()):
        for info in found:
            assert Sandbox.kill(info.sandbox_id)
    for snapshot in Sandbox.list_snapshots().next_items():
        assert Sandbox.delete_snapshot(snapshot.snapshot_id)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_sandbox_ends_after_its_timeout(box: belljar.Sandbox) -> None:
    other = Sandbox.create(timeout=4, box=box)
    other.set_timeout(60)
    # It ends after the first timeout of the other one.
    sandbox = Sandbox.create(timeout=6, box=box)
    info = sandbox.get_info()
    assert abs((info.end_at - info.started_at).total_seconds() - 6) < 2
    with pytest.raises(e2b.SandboxNotRunningException, match="timeout"):
        sandbox.run_code("while True: pass")
    assert not sandbox.is_running() and other.is_running()
    for call in (
        lambda: sandbox.run_code("1"),
        lambda: sandbox.files.read("x"),
        lambda: sandbox.commands.run("ls"),
        lambda: sandbox.create_code_context(),
    ):
        with pytest.raises(e2b.TimeoutException, match="timeout"):
            call()
    for absent in (sandbox.get_info, sandbox.connect, sandbox.pause, lambda: sandbox.set_timeout(1)):
        with pytest.raises(e2b.SandboxNotFoundException):
            absent()
    assert not sandbox.kill() and other.run_code("1").text == "1"
    # The interpreters are gone, too.
    assert len(box._sessions) == 1


def test_kill_stops_the_code_of_another_thread(box: belljar.Sandbox) -> None:
    sandbox = Sandbox.create(box=box)
    begun = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            sandbox.run_code("print('begun')\nwhile True: pass", on_stdout=lambda _: begun.set())
        except e2b.SandboxException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(60)
    assert Sandbox.kill(sandbox.sandbox_id)
    thread.join(60)
    assert [type(error) for error in errors] == [e2b.SandboxNotRunningException] and not box._sessions


def test_receiver_of_output_can_kill_the_sandbox_and_do_nothing_else_with_it(box: belljar.Sandbox) -> None:
    sandbox = Sandbox.create(box=box)
    for code in ("print('x')", "import sys; sys.stdout.write('x')"):
        with pytest.raises(e2b.SandboxException, match="kill"):
            sandbox.run_code(code, on_stdout=lambda message: sandbox.files.write("f", message.line))
    # After the code, it can.
    sandbox.run_code("'x'", on_result=lambda result: sandbox.files.write("f", str(result.text)))
    assert sandbox.files.read("f") == "x"
    with pytest.raises(e2b.SandboxNotRunningException):
        sandbox.run_code("print('x')\nwhile True: pass", on_stdout=lambda message: sandbox.kill())
    wait_until(lambda: not box._sessions)


def test_pause_and_connect(box: belljar.Sandbox) -> None:
    sandbox = Sandbox.create(metadata={"n": "1"}, envs={"A": "1"}, timeout=50, box=box)
    context = sandbox.create_code_context()
    sandbox.run_code("x = 1; open('f', 'w').write('y')")
    sandbox.run_code("x = 2", context=context)
    assert sandbox.pause() and not sandbox.pause() and not sandbox.is_running()
    assert sandbox.get_info().state is e2b.SandboxState.PAUSED and not box._sessions
    with pytest.raises(e2b.SandboxNotRunningException, match="connect"):
        sandbox.run_code("x")
    same = Sandbox.connect(sandbox_id=sandbox.sandbox_id, timeout=100, logger=None, api_key="x")
    assert same.sandbox_id == sandbox.sandbox_id
    execution = sandbox.run_code("import os; x, os.environ['A'], open('f').read()")
    assert (execution.text, execution.execution_count) == ("(1, '1', 'y')", 2)
    assert same.run_code("x", context=context).text == "2" and same.is_running()
    seconds = (same.get_info().end_at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
    assert 60 < seconds <= 100
    # The timeout of a sandbox that runs is only extended.
    sandbox.connect(timeout=10)
    assert same.get_info().end_at > datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=30)
    assert sandbox.pause(mode="filesystem")
    sandbox.connect()
    assert sandbox.run_code("'x' in globals(), open('f').read()").text == "(False, 'y')"
    sandbox.run_code("z = 1")
    assert Sandbox.beta_pause(sandbox.sandbox_id) and sandbox.connect(on_resume="reboot") is sandbox
    assert sandbox.run_code("'z' in globals()").text == "False"
    for wrong in (
        lambda: sandbox.pause(mode="half"),
        lambda: sandbox.pause(False, mode="full"),
        lambda: sandbox.connect(on_resume="again"),
        lambda: sandbox.connect(timeout=-1),
    ):
        with pytest.raises(e2b.InvalidArgumentException):
            wrong()
    sandbox.pause()
    assert sandbox.kill()
    with pytest.raises(e2b.SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)


def test_pause_at_the_timeout(box: belljar.Sandbox) -> None:
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    sandbox = Sandbox.create(timeout=60, lifecycle=lifecycle, box=box)
    assert sandbox.get_info().lifecycle == lifecycle
    sandbox.run_code("x = 1")
    # Long enough for the assignment.
    sandbox.set_timeout(3)
    with pytest.raises(e2b.SandboxNotRunningException):
        sandbox.run_code("x = 2\nwhile True: pass")
    wait_until(lambda: sandbox.get_info().state is e2b.SandboxState.PAUSED)
    assert sandbox.run_code("x").text == "2" and sandbox.is_running()
    manual = Sandbox.create(timeout=0.1, lifecycle={"on_timeout": {"action": "pause"}}, box=box)
    wait_until(lambda: not manual.is_running())
    with pytest.raises(e2b.SandboxNotRunningException, match="connect"):
        manual.run_code("1")
    assert manual.connect().run_code("1").text == "1"


def test_state_is_handed_out(box: belljar.Sandbox) -> None:
    with Sandbox.create(metadata={"n": "1"}, envs={"A": "1"}, box=box) as sandbox:
        context = sandbox.create_code_context()
        sandbox.run_code("x = [1, 2]")
        sandbox.run_code("x = 3", context=context)
        sandbox.files.write("f", "y")
        state = sandbox.dump()
        copy = Sandbox.load(state, box=box)
        assert copy.sandbox_id != sandbox.sandbox_id and copy.get_info().metadata == {"n": "1"}
        assert copy.run_code("x.append(3); x").text == "[1, 2, 3]" and sandbox.run_code("x").text == "[1, 2]"
        sandbox.pause()
        assert Sandbox.load(sandbox.dump(), box=box).run_code("x").text == "[1, 2]"
    program = f"""
import sys
from belljar.code_interpreter import Context, Sandbox
with Sandbox.load(sys.stdin.buffer.read()) as sandbox:
    context = Context({context.id!r}, "python", "")
    print(sandbox.sandbox_id, sandbox.run_code("x").text, sandbox.run_code("x", context=context).text)
    print(sandbox.files.read("f"), sandbox.commands.run("python -c 'import os; print(os.environ[\\"A\\"])'").stdout)
"""
    result = subprocess.run([sys.executable, "-c", program], input=state, capture_output=True, timeout=300, check=False)
    assert result.stdout.decode() == f"{sandbox.sandbox_id} [1, 2] 3\ny 1\n\n", result.stderr.decode()
    header = state.index(b"{")
    for wrong in (
        b"",
        b"belljar",
        state[:30],
        state[:header],
        state[: header + 40],
        state.replace(b'"sandbox_id"', b'"sandbox_ix"', 1),
        state.replace(b'"contexts": [[', b'"contexts": [7', 1),
        state.replace(b'"metadata": {', b'"metadata": [', 1),
        state[:-100],
        state[:-100] + bytes(100),
    ):
        with pytest.raises(e2b.InvalidArgumentException):
            Sandbox.load(wrong, box=box)
    with pytest.raises(e2b.InvalidArgumentException):
        Sandbox.load("text", box=box)  # type: ignore[arg-type]


def test_forks_are_independent(box: belljar.Sandbox) -> None:
    with Sandbox.create(metadata={"n": "1"}, box=box) as sandbox:
        context = sandbox.create_code_context()
        sandbox.run_code("x = 1", context=context)
        forks = [fork for fork in sandbox.fork(count=3, timeout=60) if isinstance(fork, Sandbox)]
        assert len(forks) == 3 and len({fork.sandbox_id for fork in forks}) == 3
        for number, fork in enumerate(forks):
            assert fork.run_code(f"x += {number}; x", context=context).text == str(1 + number)
        assert sandbox.run_code("x", context=context).text == "1"
        assert forks[0].get_info().metadata == {"n": "1"}
        (again,) = Sandbox.fork(forks[2].sandbox_id)
        assert isinstance(again, Sandbox) and again.run_code("x", context=context).text == "3"
        for count in (0, 21, True):
            with pytest.raises(e2b.InvalidArgumentException, match="count"):
                sandbox.fork(count=count)


def test_snapshots_are_templates(box: belljar.Sandbox) -> None:
    with Sandbox.create(envs={"A": "1"}, box=box) as sandbox:
        sandbox.run_code("import os; x = 1; open('f', 'w').write('y')")
        snapshot = sandbox.create_snapshot("prepared")
        files = Sandbox.create_snapshot(sandbox.sandbox_id, mode="filesystem")
        sandbox.run_code("x = 2")
        assert [each.names for each in sandbox.list_snapshots().next_items()] == [["prepared"], []]
    assert Sandbox.list_snapshots("another").next_items() == []
    assert Sandbox.list_snapshots(sandbox, name="prepared").next_items() == [snapshot]
    for template in (snapshot.snapshot_id, "prepared"):
        with Sandbox.create(template, envs={"B": "2"}) as copy:
            assert copy.run_code("x, os.environ['A'], os.environ['B']").text == "(1, '1', '2')"
            assert copy.get_info().template_id == snapshot.snapshot_id
            assert copy.sandbox_id != sandbox.sandbox_id
    with Sandbox(files.snapshot_id) as copy:
        assert copy.run_code("'x' in globals(), open('f').read()").text == "(False, 'y')"
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) and not Sandbox.delete_snapshot(snapshot.snapshot_id)
    for absent in ("prepared", "my-template"):
        with pytest.raises(e2b.InvalidArgumentException, match="template.*packages"):
            Sandbox.create(absent)


def test_list_of_sandboxes(box: belljar.Sandbox) -> None:
    created = [Sandbox.create(metadata={"n": str(n), "kind": "x"}, box=box) for n in range(5)]
    created[1].pause()
    paginator = Sandbox.list(limit=2, order="asc")
    pages = []
    while paginator.has_next:
        pages.append([info.sandbox_id for info in paginator.next_items()])
    ids = [sandbox.sandbox_id for sandbox in created]
    assert pages == [ids[:2], ids[2:4], ids[4:]] and paginator.next_token is None
    with pytest.raises(e2b.SandboxException):
        paginator.next_items()
    assert [info.sandbox_id for info in Sandbox.list(next_token="3").next_items()] == [ids[1], ids[0]]

    def found(**query: Any) -> list[str]:
        return [info.metadata["n"] for info in Sandbox.list(e2b.SandboxQuery(**query), order="asc").next_items()]

    assert found(metadata={"kind": "x", "n": "3"}) == ["3"]
    assert found(state=[e2b.SandboxState.PAUSED]) == ["1"]
    assert found(started_after=created[3].get_info().started_at) == ["4"]
    assert found(template="other") == [] and len(found(template="code-interpreter-v1")) == 5
    for wrong in ({"limit": 0}, {"next_token": "x"}, {"order": "up"}):
        with pytest.raises(e2b.InvalidArgumentException):
            Sandbox.list(**wrong)  # type: ignore[arg-type]


def test_arguments_without_meaning_are_ignored_or_refused_by_name() -> None:
    ignored = {"secure": True, "api_key": "e2b_x", "request_timeout": 5, "idempotency_key": "k", "debug": False}
    with Sandbox.create(template="base", network={"deny_out": [e2b.ALL_TRAFFIC]}, **ignored) as sandbox:
        assert sandbox.run_code("1").text == "1" and sandbox.set_timeout(60, api_key="x") is None
    refused: dict[str, Any] = {
        "domain": "e2b.app",
        "api_url": "https://e2b.example.org",
        "mcp": {"exa": {}},
        "iam": {"tokens": {"a": {}}},
        "volume_mounts": {"/data": "volume"},
    }
    for name, value in refused.items():
        with pytest.raises(e2b.UnsupportedException, match=name):
            Sandbox.create(**{name: value})
    with pytest.raises(e2b.UnsupportedException, match="domain"):
        Sandbox.list(domain="e2b.app")
    invalid: dict[str, Any] = {
        "timeout": -1,
        "metadata": {"a": 1},
        "envs": ["A"],
        "lifecycle": {"on_timeout": "kill", "auto_resume": True},
        "network": {"allow_out": "example.org"},
        "template": 7,
        "box": belljar.AsyncSandbox(),
        "unknown": 1,
    }
    for name, value in invalid.items():
        with pytest.raises(e2b.InvalidArgumentException, match=name):
            Sandbox.create(**{name: value})
    for rules in ({"rules": {"a": []}}, {"allow_out": lambda context: []}, {"deny_out": ["example.org"]}):
        with pytest.raises(e2b.UnsupportedException, match="network"):
            Sandbox.create(network=rules)
    assert not Sandbox.list().next_items()


def test_what_a_sandbox_lacks_is_refused_by_name(box: belljar.Sandbox) -> None:
    with Sandbox.create(box=box) as sandbox:
        calls: dict[str, Callable[[], Any]] = {
            "language": lambda: sandbox.run_code("1", language="javascript"),
            "get_host": lambda: sandbox.get_host(80),
            "download_url": lambda: sandbox.download_url("x"),
            "get_metrics": lambda: sandbox.get_metrics(),
            "update_network": lambda: sandbox.update_network({}),
            "pty": lambda: sandbox.pty,
            "git": lambda: sandbox.git,
            "connection_config": lambda: sandbox.connection_config,
        }
        for name, call in calls.items():
            with pytest.raises(e2b.UnsupportedException, match=name) as caught:
                call()
            assert isinstance(caught.value, belljar.UnsupportedError)
        context = sandbox.create_code_context(language="Python")
        with pytest.raises(e2b.InvalidArgumentException, match="language"):
            sandbox.run_code("1", language="python", context=context)


def test_network_is_that_of_the_arguments() -> None:
    code = """
import socket
try:
    socket.create_connection(("example.org", 443), timeout=0.01)
except PermissionError as error:
    result = str(error)
except OSError as error:
    result = f"no network: {error}" if "no network" in str(error) else "allowed"
result
"""
    arguments: list[tuple[dict[str, Any], str]] = [
        ({}, "no network"),
        ({"allow_internet_access": False}, "no network"),
        ({"network": {"allow_out": ["api.example.com", "192.0.2.0/24"], "deny_out": [e2b.ALL_TRAFFIC]}}, "not allowed"),
    ]
    for options, expected in arguments:
        with Sandbox.create(**options) as sandbox:
            assert expected in str(sandbox.run_code(code).text), options
    with belljar.Sandbox(network=["example.org"]) as box:
        with Sandbox.create(allow_internet_access=False, box=box) as sandbox:
            assert "not allowed" in str(sandbox.run_code(code).text)


def test_nothing_is_left_of_many_sandboxes(box: belljar.Sandbox) -> None:
    def work(count: int) -> None:
        for number in range(count):
            with Sandbox.create(timeout=0.1 if number % 3 else 60, box=box) as sandbox:
                if number % 3 == 0:
                    sandbox.pause()
        wait_until(lambda: not Sandbox.list().next_items() and not box._sessions)

    def resources() -> tuple[int, int]:
        gc.collect()
        cores = sum(str(type(each).__module__).startswith("belljar.code_interpreter") for each in gc.get_objects())
        # Servers of other tests have a thread of their own.
        return cores, sum(each.name.startswith(("belljar-exp", "belljar-close")) for each in threading.enumerate())

    work(3)
    wait_until(lambda: resources()[1] <= 1)
    before = resources()
    work(30)
    wait_until(lambda: resources() <= before)

"""E2B's interface: the files and commands of a sandbox in this process."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Iterator

import pytest

import belljar
from belljar import code_interpreter as e2b
from belljar.code_interpreter import Sandbox
from belljar.code_interpreter._cells import ANSWER


@pytest.fixture
def sandbox(box: belljar.Sandbox) -> Iterator[Sandbox]:
    with Sandbox.create(box=box) as sandbox:
        yield sandbox


def test_files(sandbox: Sandbox) -> None:
    files = sandbox.files
    written = files.write("/home/user/new/räum lich?.txt", "ä\n")
    assert (written.name, written.type, written.path) == (
        "räum lich?.txt",
        e2b.FileType.FILE,
        "/home/user/new/räum lich?.txt",
    )
    assert files.read("new/räum lich?.txt") == "ä\n"
    assert files.read(written.path, format="bytes") == bytearray("ä\n".encode())
    data = bytes(range(256)) * 80_000
    contents = [data, io.BytesIO(data), bytearray(data), (data[at : at + 1000] for at in range(0, len(data), 1000))]
    for number, each in enumerate(contents):
        files.write(f"/tmp/{number}", each)  # type: ignore[arg-type]
        with files.read(f"/tmp/{number}", format="stream") as stream:
            assert b"".join(stream) == data
    both = files.write_files([{"path": ".hidden", "data": "1"}, {"path": "empty", "data": io.StringIO("")}])
    assert [each.path for each in both] == ["/home/user/.hidden", "/home/user/empty"]
    assert (files.read(".hidden"), files.read("empty")) == ("1", "")
    assert files.make_dir("a/b") and not files.make_dir("/home/user/a/b")
    sandbox.run_code("import os; os.symlink('.hidden', 'link'); os.chmod('empty', 0o600)")
    listed = {entry.path: entry for entry in files.list("/home/user")}
    assert [path.rpartition("/")[2] for path in listed] == [".hidden", "a", "empty", "link", "new"]
    assert (listed["/home/user/link"].type, listed["/home/user/link"].symlink_target) == (
        e2b.FileType.SYMLINK,
        ".hidden",
    )
    empty = files.get_info("empty")
    assert (empty.size, empty.mode, empty.permissions) == (0, 0o600, "-rw-------")
    assert abs(empty.modified_time.timestamp() - time.time()) < 600
    assert {entry.path for entry in files.list("/home/user", depth=2)} - set(listed) == {"/home/user/a/b", written.path}
    assert files.rename("new", "/home/user/moved/deep").type is e2b.FileType.DIR
    assert files.exists("moved/deep/räum lich?.txt") and not files.exists("new")
    files.remove("moved")
    assert not files.exists("/home/user/moved")
    # A file is replaced in its place, and links to it lead to the new contents.
    files.write(".hidden", b"2")
    assert files.read("link") == "2"
    # Nothing of the transfers is left.
    assert sandbox.run_code("os.listdir('/home')").text == "['user']"


def test_errors_of_files(sandbox: Sandbox) -> None:
    files = sandbox.files
    for call in (files.read, files.remove, files.get_info, files.list, lambda path: files.rename(path, "x")):
        with pytest.raises(e2b.FileNotFoundException, match="absent") as caught:
            call("absent")
        assert isinstance(caught.value, FileNotFoundError) and isinstance(caught.value, belljar.BelljarError)
    files.make_dir("directory")
    for failing in (lambda: files.read("directory"), lambda: files.write("directory", "x")):
        with pytest.raises(e2b.SandboxException, match="(?i)directory"):
            failing()
    for wrong in (
        lambda: files.read(""),
        lambda: files.read("a\0b"),
        lambda: files.read("directory", format="lines"),  # type: ignore[call-overload]
        lambda: files.list("directory", depth=0),
        lambda: files.write("x", 7),  # type: ignore[arg-type]
        lambda: files.write_files([{"path": "x"}]),  # type: ignore[typeddict-item]
    ):
        with pytest.raises(e2b.InvalidArgumentException):
            wrong()
    for refused in (lambda: files.write("x", "", metadata={"a": "b"}), lambda: files.watch_dir("directory")):
        with pytest.raises(e2b.UnsupportedException, match="metadata|watch_dir"):
            refused()
    with belljar.Sandbox(install=False, limits={"disk": "4MB"}) as box, Sandbox.create(box=box) as small:
        with pytest.raises(e2b.SandboxException):
            small.files.write("large", bytes(8 << 20))
        assert small.files.list("/home/user") == [] and small.run_code("1").text == "1"


def test_commands_of_webassembly(sandbox: Sandbox) -> None:
    sandbox.files.write("table.csv", "a,b\n")
    out: list[str] = []
    result = sandbox.commands.run("echo begin && ls && cat table.csv", on_stdout=out.append)
    assert (result.stdout, result.stderr, result.exit_code) == ("begin\ntable.csv\na,b\n", "", 0)
    assert "".join(out) == result.stdout
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    with pytest.raises(e2b.CommandExitException, match="exited with code 3") as caught:
        sandbox.commands.run("python -c 'import sys; print(1); print(2, file=sys.stderr); sys.exit(3)'")
    assert (caught.value.stdout, caught.value.stderr, caught.value.exit_code) == ("1\n", "2\n", 3)
    assert pickle.loads(pickle.dumps(caught.value)).exit_code == 3
    with pytest.raises(e2b.UnsupportedException, match="'apt-get install x'.*native kernels"):
        sandbox.commands.run("apt-get install x")
    with pytest.raises(e2b.TimeoutException):
        sandbox.commands.run("python -c 'while True: pass'", timeout=0.3)
    for name, call in (
        ("background", lambda: sandbox.commands.run("ls", background=True)),
        ("stdin", lambda: sandbox.commands.run("cat", stdin=True)),
        ("connect", lambda: sandbox.commands.connect(1)),
        ("send_stdin", lambda: sandbox.commands.send_stdin(1, "x")),
        ("stream_input", lambda: sandbox.commands.stream_input(1, ["x"])),
        ("close_stdin", lambda: sandbox.commands.close_stdin(1)),
    ):
        with pytest.raises(e2b.UnsupportedException, match=f"{name}: .* native kernels"):
            call()
    assert (sandbox.commands.list(), sandbox.commands.kill(1)) == ([], False)


def test_code_that_attacks_the_operations_harms_only_its_sandbox(sandbox: Sandbox, box: belljar.Sandbox) -> None:
    sandbox.files.write("f", "x")
    answers = [
        "{'value': {'name': 1, 'type': 'disk'}}",
        "{'kind': 'missing'}",
        "{'kind': ['x'], 'message': {}}",
        "[1, 2]",
        "'x' * 10",
        "{}",
    ]
    module = "__import__('sys').modules['_belljar_code_interpreter']"
    for answer in answers:
        sandbox.run_code(f"{module}.call = lambda *a: display({{{ANSWER!r}: {answer}}}, raw=True)")
        with pytest.raises(e2b.SandboxException):
            sandbox.files.get_info("f")
    sandbox.run_code(f"import time\n{module}.call = lambda *a: time.sleep(100)")
    with pytest.raises(e2b.TimeoutException):
        sandbox.files.exists("f", request_timeout=0.2)
    (context,) = sandbox._core.contexts
    sandbox.restart_code_context(context)
    sandbox.run_code("import sys\nsys.modules.clear(); __builtins__ = None")
    with pytest.raises(e2b.SandboxException):
        sandbox.files.exists("f")
    with Sandbox.create(box=box) as other:
        assert not other.files.exists("f")
    sandbox.restart_code_context(context)
    assert sandbox.files.read("f") == "x" and sandbox.run_code("6 * 7").text == "42"

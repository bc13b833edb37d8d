"""Runs feeds with pydantic-monty's synchronous client on the worker whose path is the first argument."""

import dataclasses
import datetime
import decimal
import math
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_monty import (
    NOT_HANDLED,
    ClassInstance,
    CollectStreams,
    FunctionSnapshot,
    Monty,
    MontyComplete,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    MountDir,
    NameLookupSnapshot,
)

try:
    from pydantic_monty import ExternalModule
except ImportError:
    # A client of version 5 of the protocol.
    ExternalModule = None


def is_version_5() -> bool:
    return sys.argv[2:] == ["5"]


def raised(session: MontySession, code: str, **options: Any) -> MontyRuntimeError:
    try:
        value = session.feed_run(code, **options)
    except MontyRuntimeError as error:
        return error
    raise AssertionError(f"{code!r} returned {value!r}")


def check_values(session: MontySession) -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2), "CEST")
    values = [
        None, ..., True, 0, -1, 2**63 - 1, -(2**63), 2**200, -(2**64), 0.5, -0.0, math.inf, "a", "ä\n", b"\0\xff",
        [1, [2]], (1, (2,)), {"a": 1, (1, 2): None}, {1, 2}, frozenset({3}), 1 + 2j, complex(-0.0, math.inf),
        datetime.date(2026, 11, 23), datetime.time(1, 2, 3, 4), datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        datetime.datetime(2026, 1, 2, tzinfo=zone), datetime.timedelta(days=-1, seconds=5), zone,
        int, ValueError, [],
    ]  # fmt: skip
    if not is_version_5():
        values.append(decimal.Decimal("1.20"))
    for value in values:
        found = session.feed_run("given", inputs={"given": value})
        assert (type(found), found) == (type(value), value), (found, value)
    assert math.isnan(session.feed_run("float('nan')"))
    assert repr(session.feed_run("ValueError('x')")) == "ValueError('x')"
    assert session.feed_run("x = [1]\nx.append(x)\nx") == [1, "[...]"]
    shared = session.feed_run("a = []\n[a, a]")
    assert shared[0] is shared[1], "a shared object is one object"
    both = [0]
    assert session.feed_run("a is b", inputs={"a": both, "b": both}) is True
    point = session.feed_run("from collections import namedtuple\nnamedtuple('P', 'x y')(1, 2)")
    assert (point.x, point.y) == (1, 2)
    assert str(session.feed_run("from pathlib import Path\nPath('/a/b')")) == "/a/b"
    # What Monty's own interpreter does not have.
    assert session.feed_run("import statistics\nstatistics.fmean([1, 2])") == 1.5


def check_feeds(session: MontySession) -> None:
    assert session.feed_run("1 + 1") == 2
    assert session.feed_run("x = 5") is None
    assert session.feed_run("x;") == 5
    assert session.feed_run("def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\nf(10)") == 55
    assert session.feed_run("__name__") == "__main__"
    assert session.feed_run("import asyncio\nasync def g():\n    await asyncio.sleep(0)\n    return 7\nawait g()") == 7
    streams = CollectStreams()
    session.feed_run("import sys\nprint('a'); print('b', file=sys.stderr); print('c', end='')", print_callback=streams)
    assert streams.output == [("stdout", "a\n"), ("stderr", "b\n"), ("stdout", "c")], streams.output


def check_errors(session: MontySession) -> None:
    error = raised(session, "def f():\n    return 1/0\n\nf()")
    assert isinstance(error.exception(), ZeroDivisionError) and str(error.exception()) == "division by zero"
    outer, inner = (frame.dict() for frame in error.traceback())
    assert (outer["line"], outer["column"], outer["end_column"], outer["function_name"]) == (4, 1, 4, "<module>"), outer
    assert (inner["line"], inner["column"], inner["end_column"], inner["function_name"]) == (2, 12, 15, "f"), inner
    assert inner["source_line"] == "    return 1/0" and inner["filename"].startswith("<python-input-")
    try:
        session.feed_run("x = = 1")
    except MontySyntaxError as syntax_error:
        assert syntax_error.traceback()[0].line == 1
    else:
        raise AssertionError("no syntax error")
    assert str(raised(session, "undefined").exception()) == "name 'undefined' is not defined"
    assert isinstance(raised(session, "undefined(1)").exception(), NameError)
    assert isinstance(raised(session, "raise KeyError('a')").exception(), KeyError)
    assert isinstance(raised(session, "import json\njson.loads('{')").exception(), ValueError)
    assert isinstance(raised(session, "def r(): r()\nr()").exception(), RecursionError)
    check_unknown_names(session)
    assert session.feed_run("x") == 5, "the session survives errors"


def check_unknown_names(session: MontySession) -> None:
    """An exception without a class in the client is its nearest base, and a type a text."""
    error = raised(session, "class OutOfStock(LookupError): pass\nraise OutOfStock('apples')")
    assert isinstance(error.exception(), LookupError) and str(error.exception()) == "OutOfStock: apples", error
    error = raised(session, "import subprocess\nraise subprocess.CalledProcessError(1, 'ls')")
    assert "CalledProcessError: Command 'ls' returned" in str(error.exception()), error
    error = raised(session, "import asyncio\nraise asyncio.CancelledError")
    assert isinstance(error.exception(), BaseException) and str(error.exception()) == "CancelledError", error
    error = raised(session, "raise ExceptionGroup('all', [ValueError()])")
    assert str(error.exception()) == "ExceptionGroup: all (1 sub-exception)", error
    assert isinstance(raised(session, "import re\nre.compile('(')").exception(), re.error)
    for code, expected in (
        ("OutOfStock('apples')", "LookupError('OutOfStock: apples')"),
        (
            "[subprocess.SubprocessError, memoryview]",
            "[\"<class 'subprocess.SubprocessError'>\", \"<class 'memoryview'>\"]",
        ),
        ("callable", "'<built-in function callable>'"),
        ("[LookupError, len, dict, type(None)]", None),
        ("import datetime, pathlib\n[datetime.date, pathlib.PosixPath, range]", None),
    ):
        found = session.feed_run(code)
        assert expected in (None, repr(found)), found
    found = session.feed_run("import dataclasses\n[dataclasses.Field, dataclasses.FrozenInstanceError]")
    # The client has a stand-in for the name of a type of the standard library.
    assert "name='Field'" in repr(found[0]) and found[1] == "<class 'dataclasses.FrozenInstanceError'>", found
    frozen = "@dataclasses.dataclass(frozen=True)\nclass Frozen:\n    x: int = 1\nFrozen().x = 2"
    error = raised(session, frozen).exception()
    assert isinstance(error, dataclasses.FrozenInstanceError) and str(error) == "cannot assign to field 'x'", error
    class_of_code = session.feed_run("OutOfStock")
    assert class_of_code is not None
    try:
        session.feed_run("def f():\n  pass\n pass")
    except MontySyntaxError as error:
        assert "IndentationError: unindent" in str(error), error
    else:
        raise AssertionError("no syntax error")
    found = repr(session.feed_run("import decimal\n[decimal.Decimal('1.5'), decimal.Decimal]"))
    error = raised(session, "raise decimal.InvalidOperation('no')")
    if is_version_5():
        assert found == "[\"Decimal('1.5')\", \"<class 'decimal.Decimal'>\"]", found
        assert str(error.exception()) == "InvalidOperation: no"
    else:
        assert found == "[Decimal('1.5'), <class 'decimal.Decimal'>]", found
        assert str(error.exception()) == "no" and type(error.exception()).__name__ == "InvalidOperation", error


def check_functions(session: MontySession) -> None:
    calls = []

    def add(*args: int, **kwargs: int) -> int:
        calls.append((args, kwargs))
        return sum(args) + sum(kwargs.values())

    def fail(text: str) -> None:
        raise LookupError(text)

    lookup = {"add": add, "fail": fail, "limit": 41}
    assert session.feed_run("add(1, 2, z=3) + add()", external_lookup=lookup) == 6
    assert calls == [((1, 2), {"z": 3}), ((), {})]
    assert session.feed_run("limit + 1", external_lookup=lookup) == 42
    in_function = "def f(x):\n    return add(x, 1)\n[f(i) for i in range(3)] + list(map(add, [1]))"
    assert session.feed_run(in_function, external_lookup=lookup) == [1, 2, 3, 1]
    caught = "try:\n    fail('no')\nexcept LookupError as error:\n    text = repr(error)\ntext"
    assert session.feed_run(caught, external_lookup=lookup) == "LookupError('no')"
    assert isinstance(raised(session, "fail('no')", external_lookup=lookup).exception(), LookupError)
    assert isinstance(raised(session, "add(1)", external_lookup={}).exception(), NameError)


def check_snapshots(session: MontySession) -> None:
    step = session.feed_start("n = first\ny = fetch('a')\n(n, y)")
    assert isinstance(step, NameLookupSnapshot) and step.variable_name == "first"
    step = step.resume(value=1)
    assert isinstance(step, FunctionSnapshot) and (step.function_name, step.args) == ("fetch", ("a",))
    step = step.resume({"return_value": "b"})
    assert isinstance(step, MontyComplete) and step.output == (1, "b")


def check_files(session: MontySession) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "a.txt").write_text("one\ntwo\n")
        mount = MountDir(host_path=directory, virtual_path="/data", mode="read-write")
        code = """
import os
from pathlib import Path
text = open('/data/a.txt').read()
with open('/data/b.txt', 'w') as file:
    file.write(text.upper())
with open('/data/b.txt', 'a') as file:
    file.write('three')
Path('/data/sub').mkdir()
Path('/data/sub/c.bin').write_bytes(bytes(3))
os.rename('/data/a.txt', '/data/d.txt')
found = sorted(p.name for p in Path('/data').iterdir())
walked = sorted(os.path.join(where, name) for where, _, names in os.walk('/data') for name in names)
try:
    open('/data/none')
except FileNotFoundError as error:
    missing = error.errno
[text, found, walked, missing, os.path.getsize('/data/sub/c.bin'), os.getcwd(), Path('b.txt').exists()]
"""
        text, found, walked, missing, size, cwd, exists = session.feed_run(code, mount=mount, cwd="/data")
        assert text == "one\ntwo\n" and found == ["b.txt", "d.txt", "sub"] and missing == 2 and size == 3
        assert walked == ["/data/b.txt", "/data/d.txt", "/data/sub/c.bin"] and (cwd, exists) == ("/data", True)
        assert Path(directory, "b.txt").read_text() == "ONE\nTWO\nthree"
        table = "import csv\n[row for row in csv.reader(open('/data/b.txt'))]"
        assert session.feed_run(table, mount=mount) == [["ONE"], ["TWO"], ["three"]]
        locked = MountDir(host_path=directory, virtual_path="/data", mode="read-only")
        assert isinstance(raised(session, "open('/data/x', 'w')", mount=locked).exception(), PermissionError)
    # The session's own files need no parent.
    assert session.feed_run("open('/tmp/own', 'w').write('x')\nopen('/tmp/own').read()") == "x"


def check_environment(session: MontySession) -> None:
    def answer(*, name: str, args: tuple[Any, ...], **_: Any) -> Any:
        if name == "os.getenv":
            return {"HOME": "/users/me"}.get(args[0], args[1] if len(args) > 1 else None)
        if name == "os.environ":
            return {"HOME": "/users/me"}
        return NOT_HANDLED

    code = "import os\n[os.getenv('HOME'), os.getenv('NONE', 3), os.environ['HOME'], 'NONE' in os.environ]"
    assert session.feed_run(code, os=answer) == ["/users/me", 3, "/users/me", False]
    assert session.feed_run("import time\nbefore = time.time()\ntime.sleep(0.01)\ntime.time() > before") is True


@dataclass
class Point:
    x: int

    def double(self) -> int:
        return self.x * 2


def check_objects(session: MontySession) -> None:
    point = ClassInstance(Point(3), eager_attrs={"x"}, allowed_methods={"double"})
    assert session.feed_run("[p.x, p.double()]", inputs={"p": point}) == [3, 6]
    assert isinstance(raised(session, "p.missing", inputs={"p": point}).exception(), AttributeError)
    made = session.feed_run("class Own:\n    def __init__(self):\n        self.a = [1]\nown = Own()\nown")
    assert (made.name, made.attributes) == ("Own", {"a": [1]})
    assert session.feed_run("given is own", inputs={"given": made}) is True


def check_turn_limit(session: MontySession) -> None:
    calls = []
    lookup = {"tick": lambda: calls.append(1)}
    session.feed_run("kept = 1")
    # Each answer of the host begins a turn.
    spin = """
import time
def spin():
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        pass
    tick()
[spin() for _ in range(2)]
"""
    session.feed_run(spin, external_lookup=lookup)
    assert calls == [1, 1]
    # Code that handles its interrupt asks nothing more: not in a function, which blocks, and not where it awaits.
    in_function = "def ask():\n    tick()\ntry:\n    while True: pass\nexcept BaseException:\n    ask()"
    awaited = "try:\n    while True: pass\nexcept BaseException:\n    tick()"
    for code in ("while True: pass", in_function, awaited):
        error = raised(session, code, external_lookup=lookup).exception()
        assert isinstance(error, TimeoutError), error
        assert "turn time limit exceeded: " in str(error) and "> 4s" in str(error), error
    assert calls == [1, 1] and session.feed_run("kept") == 1


def check_dumps(pool: Monty) -> None:
    with pool.checkout() as session:
        session.feed_run("x = 5")
        idle = session.dump()
        step = session.feed_start("value = approve('now')\n[x, value]")
        assert isinstance(step, FunctionSnapshot)
        during = step.dump()
        done = step.resume({"return_value": "yes"})
        assert isinstance(done, MontyComplete) and done.output == [5, "yes"]
    with pool.checkout() as session:
        session.load_session(idle)
        assert session.feed_run("x + 1") == 6
    with pool.checkout() as session:
        step = session.load_snapshot(during)
        assert isinstance(step, FunctionSnapshot) and (step.function_name, step.args) == ("approve", ("now",))
        done = step.resume({"return_value": "later"})
        assert isinstance(done, MontyComplete) and done.output == [5, "later"]


def check_installation(session: MontySession) -> None:
    """Installs a package that no feed imports before, since imports install, too."""
    version = "import importlib.metadata\nimportlib.metadata.version('humanize')"
    assert isinstance(raised(session, version).exception(), ModuleNotFoundError)
    assert session.install_dependencies(["humanize==4.15.0"]) is None
    assert session.feed_run(version) == "4.15.0"
    assert session.feed_run("import humanize\nhumanize.intcomma(12345)") == "12,345"
    try:
        session.install_dependencies(["humanize==0.0.0.1"])
    except MontyRuntimeError as error:
        assert "humanize" in str(error), error
    else:
        raise AssertionError("a version that does not exist was installed")
    assert session.feed_run("humanize.intcomma(1234)") == "1,234"


def main() -> None:
    with Monty(binary_path=sys.argv[1], max_processes=1) as pool:
        with pool.checkout() as session:
            check_feeds(session)
            for check in (check_values, check_functions, check_snapshots, check_files, check_environment):
                check(session)
            session.feed_run("x = 5")
            check_errors(session)
            check_objects(session)
        with pool.checkout() as session:
            assert isinstance(raised(session, "x").exception(), NameError), "a worker is reset"
        check_dumps(pool)
        with pool.checkout(limits={"max_feed_duration_secs": 4}) as session:
            session.feed_run("kept = 1")
            assert isinstance(raised(session, "while True: pass").exception(), TimeoutError)
            assert session.feed_run("kept") == 1
        with pool.checkout(limits={"max_turn_duration_secs": 4}) as session:
            check_turn_limit(session)
        with pool.checkout(limits={"max_memory": 50_000_000}) as session:
            assert isinstance(raised(session, "x = 'a' * 400_000_000").exception(), MemoryError)
            assert session.feed_run("1") == 1
        with pool.checkout() as session:
            error = raised(session, "import os\nos.abort()")
            assert isinstance(error.exception(), RuntimeError) and "variables are lost" in str(error.exception()), error
            assert isinstance(raised(session, "import os\nos._exit(3)").exception(), SystemExit)
            assert session.feed_run("1") == 1
        with pool.checkout() as session:
            assert isinstance(raised(session, "import none_such_module").exception(), ModuleNotFoundError)
            check_installation(session)
        if ExternalModule is None:
            assert is_version_5()
            return
        module = ExternalModule({"answer": lambda: 42, "limit": 7})
        with pool.checkout(external_modules={"tools_of_host": module}) as session:
            code = "import tools_of_host\nfrom tools_of_host import limit\n[tools_of_host.answer(), limit]"
            assert session.feed_run(code) == [42, 7]
            assert isinstance(raised(session, "import none_such_module").exception(), ModuleNotFoundError)


main()

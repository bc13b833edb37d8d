"""The surface of sandboxes: the same programs in this process and on a server, in synchronous code and with asyncio.

`PROGRAMS` has a program for each method. `docs/python.md` lists the methods that servers do not offer.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conftest import ROOT

import belljar
from belljar import (
    AsyncRun,
    AsyncSandbox,
    AsyncSession,
    AsyncSessionFiles,
    Run,
    Sandbox,
    Session,
    SessionFiles,
    connect,
    connect_async,
    tool,
)
from server import TOKEN, Server


async def settle(result: Any) -> Any:
    """Returns the result of a call of either kind of sandbox."""
    return await result if inspect.isawaitable(result) else result


async def run(box: Any) -> Any:
    output: list[str] = []
    errors: list[str] = []
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n{'x': x, 'y': (1, {2})}"
    done = await settle(
        box.run(code, globals={"x": 2**70}, timeout=60, on_stdout=output.append, on_stderr=errors.append)
    )
    failed = await settle(box.run("1 / 0"))
    with pytest.raises(belljar.CodeError, match="division"):
        failed.check()
    limited = await settle(box.run("while True: pass", timeout=0.3))
    ended = await settle(box.run("raise SystemExit(3)"))
    refused = await settle(box.run("import urllib.request as r\nr.urlopen('http://192.0.2.1')", network=[]))
    assert done.check() is done and done.ok and done.stats.peak_memory > 0
    return (
        (done.status, done.value, done.output, done.stdout, done.stderr, "".join(output), "".join(errors)),
        (done.images, done.displays, done.calls, done.connections, done.packages, done.pending, done.text),
        (failed.status, failed.error, failed.ok, failed.hint),
        (limited.status, limited.limit, limited.error and limited.error.name),
        (ended.status, ended.exit_code),
        refused.status,
    )


async def failures_of_arguments(box: Any) -> Any:
    names = []
    for arguments in ({"globals": {"o": object()}}, {"timeout": 0}, {"packages": "rich"}, {"network": 3}):
        with pytest.raises(belljar.BelljarError) as failure:
            await settle(box.run("1", **arguments))
        names.append((type(failure.value).__name__, str(failure.value)))
    with pytest.raises(belljar.ArgumentTypeError, match="dump"):
        box.load("text")
    return names


async def session(box: Any) -> Any:
    output: list[str] = []
    session = box.session(network=[])
    first = await settle(session.run("print('a')\nx = y + 1\nx", globals={"y": 41}, on_stdout=output.append))
    interrupted = await settle(session.run("while True: pass", timeout=0.3))
    again = await settle(session.run("x"))
    await settle(session.restart())
    forgotten = await settle(session.run("x"))
    await settle(session.close())
    with pytest.raises(belljar.SandboxError, match="closed"):
        await settle(session.run("1"))
    return (
        (first.status, first.value, first.text, first.output, "".join(output)),
        (interrupted.status, interrupted.limit),
        (again.value, forgotten.error and forgotten.error.name),
    )


async def files(box: Any) -> Any:
    session = box.session()
    await settle(session.files.write("in.csv", b"a,b\n"))
    await settle(session.run("open('out.txt', 'w').write(open('in.csv').read() * 2)"))
    listed = [(file.path, file.size) for file in await settle(session.files.list())]
    contents = await settle(session.files.read("out.txt"))
    with pytest.raises(belljar.FileMissingError):
        await settle(session.files.read("missing"))
    with pytest.raises(belljar.ArgumentTypeError, match="contents"):
        await settle(session.files.write("f", "text"))
    return sorted(listed), contents


async def fork(box: Any) -> Any:
    session = box.session()
    await settle(session.run("x = 1"))
    other = await settle(session.fork())
    await settle(other.run("x += 1"))
    return (await settle(session.run("x"))).value, (await settle(other.run("x"))).value


async def paused(box: Any) -> Any:
    session = box.session()
    await settle(session.run("x = 1"))
    done = await settle(box.run("1"))
    for method in (lambda: done.resume({}), done.dump):
        with pytest.raises(belljar.SandboxError, match="not paused"):
            await settle(method())
    return await settle(session.paused())


async def prepare(box: Any) -> Any:
    await settle(box.prepare())
    await settle(box.prepare(sessions=True))
    return (await settle(box.run("1"))).value


async def tool_stubs(box: Any) -> Any:
    return await settle(box.tool_stubs())


async def close(box: Any) -> Any:
    session = box.session()
    await settle(session.run("1"))
    await settle(box.close())
    names = []
    for method in (lambda: box.run("1"), box.session, lambda: box.load(b""), box.prepare, lambda: session.run("1")):
        with pytest.raises(belljar.SandboxError, match="closed") as failure:
            await settle(method())
        names.append(type(failure.value).__name__)
    return names


Program = Callable[[Any], Awaitable[Any]]

PROGRAMS: list[Program] = [
    run,
    failures_of_arguments,
    session,
    files,
    fork,
    paused,
    prepare,
    tool_stubs,
    close,
]


async def dump_of_session(box: Any) -> Any:
    session = box.session()
    await settle(session.run("x = 42"))
    dump = await settle(session.dump())
    loaded = await settle(box.load(dump))
    return (await settle(loaded.run("x"))).value


async def load(box: Any) -> Any:
    # The bytes of a sandbox in this process.
    with Sandbox(install=False) as other, other.session() as session:
        session.run("x = 42")
        dump = session.dump()
    return (await settle((await settle(box.load(dump))).run("x"))).value


ONLY_IN_PROCESS: dict[str, tuple[Program, str]] = {
    "Session.dump": (dump_of_session, "dump: .*fork"),
    "Sandbox.load": (load, "load: .*Sandbox in this process"),
}
"""The methods that a server does not offer, with their errors."""


def in_process(kind: str) -> Any:
    return Sandbox(install=False) if kind == "sync" else AsyncSandbox(install=False)


def on_server(kind: str, server: Server) -> Any:
    return (connect if kind == "sync" else connect_async)(server.url, token=TOKEN)


def perform(program: Program, box: Any) -> Any:
    async def main() -> Any:
        try:
            return await program(box)
        finally:
            await settle(box.close())

    return asyncio.run(main())


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """The results of the programs in this process, in synchronous code, by name."""
    return {}


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("place", ["in process", "on a server"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_has_the_same_result_everywhere(
    program: Program, place: str, kind: str, server: Server, expected: dict[str, Any]
) -> None:
    name = program.__name__
    if name not in expected:
        expected[name] = perform(program, in_process("sync"))
    box = in_process(kind) if place == "in process" else on_server(kind, server)
    assert perform(program, box) == expected[name]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("name", ONLY_IN_PROCESS)
def test_what_only_this_process_offers_is_an_error_with_the_alternative(name: str, kind: str, server: Server) -> None:
    program, message = ONLY_IN_PROCESS[name]
    assert perform(program, in_process(kind)) == 42
    with pytest.raises(belljar.UnsupportedError, match=message):
        perform(program, on_server(kind, server))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_functions_and_pauses_are_only_for_this_process(kind: str, server: Server) -> None:
    async def weather(city: str) -> str:
        return f"sun in {city}"

    @tool(deferred=True)
    async def approve() -> bool:
        """Asks a person."""
        raise AssertionError

    async def program(box: Any) -> Any:
        run = await settle(box.run("[await weather('Oslo'), await approve()]"))
        loaded = await settle(box.load(await settle(run.dump())))
        results = []
        for each in (run, loaded):
            results.append((await settle(each.resume({each.pending[0].id: True}))).check().value)
        return results

    tools = [weather, approve]
    box = Sandbox(tools=tools, install=False) if kind == "sync" else AsyncSandbox(tools=tools, install=False)
    assert perform(program, box) == [["sun in Oslo", True]] * 2
    make = connect if kind == "sync" else connect_async
    with pytest.raises(belljar.UnsupportedError, match="tools: .*--server"):
        make(server.url, token=TOKEN, tools=tools)


def public_methods(kind: type) -> set[str]:
    names = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    return {name for name in names if not isinstance(inspect.getattr_static(kind, name), property)}


PAIRS: list[tuple[type, type]] = [
    (Sandbox, AsyncSandbox),
    (Session, AsyncSession),
    (SessionFiles, AsyncSessionFiles),
    (Run, AsyncRun),
]


@pytest.mark.parametrize(("sync_kind", "async_kind"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_kinds_have_the_same_methods_with_the_same_arguments(sync_kind: type, async_kind: type) -> None:
    assert public_methods(sync_kind) == public_methods(async_kind)
    for name in public_methods(sync_kind):
        signatures = [inspect.signature(getattr(kind, name)) for kind in (sync_kind, async_kind)]
        first, second = (signature.parameters for signature in signatures)
        assert first == second, f"{sync_kind.__name__}.{name}"


def test_every_method_is_called_by_a_program_and_listed_in_the_documentation() -> None:
    with warnings.catch_warnings():
        programs = [*PROGRAMS, *(program for program, _ in ONLY_IN_PROCESS.values())]
        source = "\n".join(map(inspect.getsource, [*programs, test_functions_and_pauses_are_only_for_this_process]))
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    table = text[text.index("## On a server") : text.index("## asyncio")]
    for kind, _ in PAIRS:
        for name in public_methods(kind):
            assert f".{name}" in source, f"no program calls {kind.__name__}.{name}"
            owner = {"SessionFiles": "Session.files"}.get(kind.__name__, kind.__name__)
            assert re.search(rf"`{re.escape(owner)}\.{name}`", table), f"docs/python.md lacks {owner}.{name}"

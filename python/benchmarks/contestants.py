"""The libraries that `library.py` measures: how each runs code, keeps a session and calls a function of the host."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

PLAIN = "python -c pass"

Execute = Callable[[str], str]
"""Runs code in a session and returns its output."""


class Unsupported(Exception):
    """A library does not have what is measured. The text is the reason."""


class Contestant:
    """A library. Methods that a library does not have raise `Unsupported`."""

    name: str
    program = ""
    """A program that imports the library and makes it compute once."""
    most_alive = 1000
    """The number of interpreters that are measured at the same time."""

    @contextlib.contextmanager
    def runner(self) -> Iterator[Callable[[str], Any]]:
        """Yields a function that runs code in a fresh interpreter."""
        raise Unsupported("it has no fresh interpreters")
        yield

    @contextlib.contextmanager
    def opened(self, most: int = 1) -> Iterator[Callable[[], AbstractContextManager[Execute]]]:
        """Yields a function that creates a session, up to `most` at the same time."""
        raise Unsupported("it has no sessions")
        yield

    @contextlib.contextmanager
    def replaying(self) -> Iterator[Callable[[], AbstractContextManager[Execute]]]:
        """The same, but a library without sessions runs the earlier code again."""
        with self.opened() as create:
            yield create

    @contextlib.contextmanager
    def calling(self, function: Callable[[int], int]) -> Iterator[Callable[[int], Any]]:
        """Yields a function that makes code call `function` so many times."""
        raise Unsupported("its code cannot call functions of the host")
        yield

    @contextlib.contextmanager
    def transfers(self, size: int) -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
        """Yields functions that bring so many bytes into the code, and back."""
        raise Unsupported("it takes no large values")
        yield


class Belljar(Contestant):
    name = "belljar"
    program = "from belljar import Sandbox; assert Sandbox().run('1').value == 1"

    @contextlib.contextmanager
    def runner(self) -> Iterator[Callable[[str], Any]]:
        from belljar import Sandbox

        with Sandbox() as box:
            yield lambda code: box.run(code).check()

    @contextlib.contextmanager
    def opened(self, most: int = 1) -> Iterator[Callable[[], AbstractContextManager[Execute]]]:
        from belljar import Sandbox

        @contextlib.contextmanager
        def create() -> Iterator[Execute]:
            with box.session() as session:
                yield lambda code: session.run(code).check().output

        with Sandbox() as box:
            yield create

    @contextlib.contextmanager
    def calling(self, function: Callable[[int], int]) -> Iterator[Callable[[int], Any]]:
        from belljar import Sandbox, tool

        with Sandbox(tools=[tool(name="host")(function)]) as box, box.session() as session:
            yield lambda count: session.run(f"for number in range({count}): await host(number)").check()

    @contextlib.contextmanager
    def transfers(self, size: int) -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
        import numpy
        from belljar import Sandbox

        wheels = os.environ.get("BELLJAR_NUMPY_WHEELS")
        array = numpy.random.default_rng(1).random(size // 8)
        with Sandbox(["numpy"], find_links=[wheels] if wheels else []) as box, box.session() as session:
            yield (
                lambda: session.run("array = received; None", globals={"received": array}).check(),
                lambda: session.run("array").check().value.sum(),
            )


class Eryx(Contestant):
    name = "pyeryx"
    program = "import eryx; assert eryx.Sandbox().execute('print(1)').stdout_text.strip() == '1'"
    most_alive = 900  # It allows 1,000 in a process.

    @contextlib.contextmanager
    def runner(self) -> Iterator[Callable[[str], Any]]:
        import eryx

        sandbox = eryx.Sandbox()
        yield sandbox.execute

    @contextlib.contextmanager
    def opened(self, most: int = 1) -> Iterator[Callable[[], AbstractContextManager[Execute]]]:
        import eryx

        @contextlib.contextmanager
        def create() -> Iterator[Execute]:
            session = eryx.Session()
            yield lambda code: str(session.execute(code).stdout_text)

        yield create

    @contextlib.contextmanager
    def calling(self, function: Callable[[int], int]) -> Iterator[Callable[[int], Any]]:
        import eryx

        def host(number: int) -> int:
            return function(number)

        session = eryx.Session(callbacks=[{"name": "host", "fn": host, "description": "Returns its argument"}])
        yield lambda count: session.execute(f"for number in range({count}): await host(number=number)")

    @contextlib.contextmanager
    def transfers(self, size: int) -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
        raise Unsupported("values cross as JSON, in the results of functions of the host")
        yield


class Monty(Contestant):
    name = "pydantic-monty"
    program = """
from pydantic_monty import Monty
with Monty() as pool:
    with pool.checkout() as session:
        assert session.feed_run('1') == 1
"""
    most_alive = 100

    @contextlib.contextmanager
    def runner(self) -> Iterator[Callable[[str], Any]]:
        import pydantic_monty

        def once(code: str) -> None:
            with pool.checkout() as session:
                session.feed_run(code)

        with pydantic_monty.Monty() as pool:
            yield once

    @contextlib.contextmanager
    def opened(self, most: int = 1) -> Iterator[Callable[[], AbstractContextManager[Execute]]]:
        import pydantic_monty

        @contextlib.contextmanager
        def create() -> Iterator[Execute]:
            def run(code: str) -> str:
                collector = pydantic_monty.CollectString()
                session.feed_run(code, print_callback=collector)
                return collector.output

            with pool.checkout() as session:
                yield run

        with pydantic_monty.Monty(max_processes=most) as pool:
            yield create

    @contextlib.contextmanager
    def calling(self, function: Callable[[int], int]) -> Iterator[Callable[[int], Any]]:
        import pydantic_monty

        with pydantic_monty.Monty() as pool, pool.checkout() as session:
            yield lambda count: session.feed_run(
                f"for number in range({count}): host(number)", external_lookup={"host": function}
            )

    @contextlib.contextmanager
    def transfers(self, size: int) -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
        import pydantic_monty

        data = os.urandom(size)
        with pydantic_monty.Monty() as pool, pool.checkout() as session:
            yield (
                lambda: session.feed_run("data = received\nNone", inputs={"received": data}),
                lambda: len(session.feed_run("data")),
            )


class McpRunPython(Contestant):
    name = "mcp-run-python"
    program = """
import asyncio
from mcp_run_python import code_sandbox
async def main():
    async with code_sandbox() as sandbox:
        assert (await sandbox.eval('1'))['return_value'] == 1
asyncio.run(main())
"""

    @contextlib.contextmanager
    def runner(self) -> Iterator[Callable[[str], Any]]:
        from mcp_run_python import code_sandbox

        loop = asyncio.new_event_loop()
        sandbox = code_sandbox()
        try:
            entered = loop.run_until_complete(sandbox.__aenter__())
        except RuntimeError as error:
            raise Unsupported(f"Deno failed: {last_error(str(error))}") from None
        try:
            yield lambda code: loop.run_until_complete(entered.eval(code))
        finally:
            loop.run_until_complete(sandbox.__aexit__(None, None, None))

    @contextlib.contextmanager
    def replaying(self) -> Iterator[Callable[[], AbstractContextManager[Execute]]]:
        with self.runner() as once:
            yield lambda: replay(lambda code: "\n".join(once(code)["output"]))


class Subprocess(Contestant):
    name = "subprocess of python"
    program = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True, check=True)"
    )

    @contextlib.contextmanager
    def runner(self) -> Iterator[Callable[[str], Any]]:
        yield self.start

    @contextlib.contextmanager
    def replaying(self) -> Iterator[Callable[[], AbstractContextManager[Execute]]]:
        yield lambda: replay(self.start)

    @staticmethod
    def start(code: str) -> str:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


class Exec(Contestant):
    name = "`exec` without a sandbox"

    @contextlib.contextmanager
    def opened(self, most: int = 1) -> Iterator[Callable[[], AbstractContextManager[Execute]]]:
        if most > 1:
            raise Unsupported("a namespace is not an interpreter")

        @contextlib.contextmanager
        def create() -> Iterator[Execute]:
            def execute(code: str) -> str:
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    exec(code, variables)
                return output.getvalue()

            variables: dict[str, Any] = {}
            yield execute

        yield create


@contextlib.contextmanager
def replay(run: Execute) -> Iterator[Execute]:
    """Yields a session that runs all of its code again each time, for code whose last piece alone writes."""
    history: list[str] = []

    def execute(code: str) -> str:
        history.append(code)
        return run("\n".join(history))

    yield execute


def last_error(text: str) -> str:
    """Returns the reason at the end of a log, without colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).strip() or "it gave no reason"
    reason = plain[plain.rfind("error: ") :].removeprefix("error: ") if "error: " in plain else plain.splitlines()[-1]
    return re.split(r"\.? ?at file:|Stack backtrace|\n", reason)[0].strip().rstrip(".")[:200]


CONTESTANTS = [Belljar(), Eryx(), Monty(), McpRunPython(), Subprocess(), Exec()]

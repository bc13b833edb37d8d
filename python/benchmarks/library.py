"""Measures the library against others that run Python in a sandbox, and prints tables in Markdown.

    pip install belljar pyeryx pydantic-monty mcp-run-python deno numpy
    BELLJAR_NUMPY_WHEELS=wheels python python/benchmarks/library.py [--rounds 200] [--sandboxes 1000] [NAME …]

A library that is not installed, or that does not start, is named with the reason instead. Names select measurements.
mcp-run-python starts Deno, which fetches Pyodide. `BELLJAR_NUMPY_WHEELS` is a directory with numpy for WebAssembly;
without it, numpy comes from Pyodide's CDN.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from contestants import CONTESTANTS, PLAIN, Contestant, Execute, Unsupported, last_error

# The commands of one turn of an agent, each of which builds on those before: what Monty's
# `scripts/startup_performance.py` measures (literals, a function, comprehensions, `sum`, `max`, `json`, an f-string).
COMMANDS = [
    "trips = [{'to': 'Oslo', 'km': 120, 'rate': 0.5}, {'to': 'Rome', 'km': 30, 'rate': 2.0}, "
    "{'to': 'Bern', 'km': 8, 'rate': 1.5}]",
    "def cost(trip):\n    return trip['km'] * trip['rate']",
    "costs = [cost(trip) for trip in trips]",
    "total = sum(costs)",
    "longest = max(trips, key=lambda trip: trip['km'])['to']",
    "import json\ntext = json.dumps({'total': total, 'longest': longest})",
    "tax = 0.25 if total > 100 else 0",
    "gross = round(total * (1 + tax), 2)",
    "line = f'{len(trips)} trips cost {gross}; the longest: {longest}'",
    "print(line)",
]
LAST_LINE = "3 trips cost 165.0; the longest: Oslo"

Row = list[str]


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def milliseconds(samples: Iterable[float]) -> Row:
    """Returns the median, the minimum and the 95th percentile."""
    ordered = sorted(samples)
    values = (statistics.median(ordered), ordered[0], ordered[int(len(ordered) * 0.95)])
    return [f"{value * 1000:.3f}" for value in values]


def table(title: str, heads: Row, measure: Callable[[Contestant], Row], note: str = "") -> None:
    """Prints a table with a row for each library."""
    print(f"\n### {title}\n\n| library | {' | '.join(heads)} |\n|{' --- |' * (len(heads) + 1)}", flush=True)
    reasons = []
    for contestant in CONTESTANTS:
        try:
            row = measure(contestant)
        except Unsupported as error:
            reasons.append(f"{contestant.name}: {error}.")
        except Exception as error:  # A library that fails must not end the others' measurement.
            reasons.append(f"{contestant.name}: {type(error).__name__}: {last_error(str(error))}.")
        else:
            print(f"| {contestant.name} | {' | '.join(row)} |", flush=True)
    for text in [note, *reasons]:
        if text:
            print(f"\n{text}", flush=True)


def start(options: argparse.Namespace) -> None:
    """From the start of a process to its first result, interleaved with `python -c pass`."""
    programs = {PLAIN: "pass"}
    for contestant in CONTESTANTS:
        if contestant.program:
            programs[contestant.name] = contestant.program
    samples: dict[str, list[float]] = {name: [] for name in programs}
    processor: dict[str, list[float]] = {name: [] for name in programs}
    failed: dict[str, str] = {}
    for _ in range(max(5, options.rounds // 8)):
        for name, program in programs.items():
            if name not in failed:
                command = [sys.executable, "-c", program]
                before, begin = processor_time_of_children(), time.perf_counter()
                result = subprocess.run(command, capture_output=True, text=True, check=False)
                samples[name].append(time.perf_counter() - begin)
                processor[name].append(processor_time_of_children() - before)
                if result.returncode != 0:
                    failed[name] = last_error(result.stderr)
    base = statistics.median(samples[PLAIN])
    processor_base = statistics.median(processor[PLAIN])

    def row(contestant: Contestant) -> Row:
        if contestant.name in failed:
            raise Unsupported(failed[contestant.name])
        if contestant.name not in programs:
            raise Unsupported("it has no process of its own")
        more = statistics.median(samples[contestant.name]) - base
        work = statistics.median(processor[contestant.name])
        return [*milliseconds(samples[contestant.name]), f"{more * 1000:.1f}", f"{work * 1000:.1f}"]

    heads = ["median ms", "min ms", "p95 ms", "more than `python -c pass`", "processor time, ms"]
    note = f"`python -c pass`: {base * 1000:.1f} ms in the median, processor time {processor_base * 1000:.1f} ms."
    table("From the start of a process to the first result", heads, row, note)


def run(options: argparse.Namespace) -> None:
    """One piece of code in a fresh interpreter."""

    def row(contestant: Contestant) -> Row:
        with contestant.runner() as once:
            for _ in range(3):
                once("1")
            return milliseconds(timed(lambda: once("1")) for _ in range(options.rounds))

    table('`run("1")`: a fresh interpreter each time', ["median ms", "min ms", "p95 ms"], row)


def session(options: argparse.Namespace) -> None:
    """A statement in an interpreter that remembers."""

    def row(contestant: Contestant) -> Row:
        with contestant.opened() as create, create() as execute:
            execute("x = 0")
            samples = [timed(lambda: execute("x += 1")) for _ in range(options.rounds)]
            if execute("print(x)").strip() != str(options.rounds):
                raise RuntimeError("the session has lost its variable")
            return milliseconds(samples)

    table('`session.run("x += 1")`', ["median ms", "min ms", "p95 ms"], row)


def call(options: argparse.Namespace) -> None:
    """A function of the host, called from the code in a loop."""

    def row(contestant: Contestant) -> Row:
        count = 80  # Monty allows 1,000 calls in a session.
        with contestant.calling(lambda number: number) as execute:
            execute(1)
            empty = min(timed(lambda: execute(0)) for _ in range(5))
            samples = [(timed(lambda: execute(count)) - empty) / count for _ in range(9)]
        return [f"{statistics.median(samples) * 1e6:.1f}", f"{min(samples) * 1e6:.1f}"]

    table("A call of a host function from the code and back", ["median µs", "min µs"], row)


def pause(options: argparse.Namespace) -> None:
    """Runs of belljar that pause for an answer, in memory and as bytes, and a call of an async function."""
    import asyncio

    from belljar import AsyncSandbox, Run, Sandbox, tool

    @tool(deferred=True)
    async def ask() -> None:
        """Asks a person."""

    async def echo(number: int) -> int:
        return number

    def resumed(loaded: object) -> Run:
        assert isinstance(loaded, Run)
        return loaded.resume({0: 1}).check()

    async def calls() -> float:
        code = """
import time
samples = []
for number in range(2000):
    begin = time.perf_counter()
    await echo(number)
    samples.append(time.perf_counter() - begin)
sorted(samples)[1000]
"""
        async with AsyncSandbox(tools=[echo]) as box:
            await box.run("1")
            seconds: float = (await box.run(code)).check().value
            return seconds

    print("\n### Runs that pause\n\n| belljar | median ms | min ms | p95 ms |\n| --- | --- | --- | --- |")
    with Sandbox(tools=[ask]) as box:
        box.run("1")
        runs = [box.run("await ask()") for _ in range(options.rounds)]
        paused = box.run("await ask()")
        dump = paused.dump()
        session = box.session()
        session.run("1")
        work: dict[str, Callable[[], Any]] = {
            "from the start of a run to its pause": lambda: box.run("await ask()"),
            "from the answer to the end": lambda: runs.pop().resume({0: 1}),
            f"a dump ({len(dump) / 1000:.0f} KB)": paused.dump,
            "from a dump and the answer to the end": lambda: resumed(box.load(dump)),
            "a cell that pauses, is answered and ends": lambda: session.run("await ask()").resume({0: 1}),
        }
        for name, function in work.items():
            row = milliseconds(timed(function) for _ in range(options.rounds))
            print(f"| {name} | {' | '.join(row)} |", flush=True)
    print(f"\nA call of an async function on an event loop of the host: {asyncio.run(calls()) * 1e6:.0f} µs (median).")


def array(options: argparse.Namespace) -> None:
    """A large array, into the code and out of it."""

    def row(contestant: Contestant) -> Row:
        with contestant.transfers(100_000_000) as (send, receive):
            for work in (send, receive):
                work()
            return [f"{statistics.median(timed(work) for _ in range(5)) * 1000:.0f}" for work in (send, receive)]

    table("100 MB in and out", ["in, ms", "out, ms"], row)


def alive(options: argparse.Namespace) -> None:
    """Many interpreters at once, each with a variable."""

    def row(contestant: Contestant) -> Row:
        # In a process of its own, which has freed no memory of earlier measurements.
        command = [sys.executable, __file__, f"--alive={contestant.name}", f"--sandboxes={options.sandboxes}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise Unsupported(result.stderr.strip().splitlines()[-1].removeprefix("contestants.Unsupported: "))
        return result.stdout.split()

    note = "Private memory of a process and of its children, after `x = N` in each interpreter."
    table("Interpreters alive", ["number", "MB each", "s to start all"], row, note)


def alive_of(contestant: Contestant, most: int) -> None:
    """Prints the row of one library."""
    count = min(most, contestant.most_alive)
    with contextlib.ExitStack() as stack:
        create = stack.enter_context(contestant.opened(count))
        with create() as execute:
            execute("x = 0")
        before = private_memory()
        begin = time.perf_counter()
        executes = [stack.enter_context(create()) for _ in range(count)]
        for number, execute in enumerate(executes):
            execute(f"x = {number}")
        seconds = time.perf_counter() - begin
        memory = private_memory() - before
        if any(execute("print(x)").strip() != str(number) for number, execute in enumerate(executes)):
            raise RuntimeError("an interpreter has lost its variable")
    print(count, f"{memory / count / 1e6:.2f}", f"{seconds:.1f}")


def repl(options: argparse.Namespace) -> None:
    """Ten commands of a REPL."""

    def row(contestant: Contestant) -> Row:
        def feed(create: Callable[[], AbstractContextManager[Execute]]) -> None:
            with create() as execute:
                output = "".join(execute(command) for command in COMMANDS)
            if output.strip() != LAST_LINE:
                raise RuntimeError(f"unexpected output {output!r}")

        begin = time.perf_counter()
        with contestant.replaying() as create:
            feed(create)
            first = time.perf_counter() - begin
            samples = [timed(lambda: feed(create)) for _ in range(max(5, options.rounds // 10))]
        return [f"{first * 1000:.3f}", *milliseconds(samples)]

    note = (
        "Each time a new session; the first with a new pool or sandbox. A library without sessions runs all commands "
        "so far for each command, as Monty's script does."
    )
    table("Ten commands of a REPL", ["first ms", "then median ms", "min ms", "p95 ms"], row, note)


def processor_time_of_children() -> float:
    """Returns the processor time of the processes that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def private_memory() -> int:
    """Returns the private memory of this process and its descendants, in bytes."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    family = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    total = 0
    for member in family:
        try:
            with open(f"/proc/{member}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
        except OSError:
            continue
    return total * 1024


MEASUREMENTS = [start, run, session, call, pause, array, alive, repl]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [measurement.__name__ for measurement in MEASUREMENTS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--sandboxes", type=int, default=1000)
    parser.add_argument("--alive", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alive is not None:
        alive_of(next(each for each in CONTESTANTS if each.name == options.alive), options.sandboxes)
        return
    if unknown := set(options.names) - set(names):
        parser.error(f"no measurement is called {', '.join(sorted(unknown))}; they are {', '.join(names)}")
    versions = []
    for distribution in ("belljar", "pyeryx", "pydantic-monty", "mcp-run-python"):
        try:
            versions.append(f"{distribution} {importlib.metadata.version(distribution)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{distribution} not installed")
    print(f"{', '.join(versions)}; CPython {platform.python_version()}; {os.cpu_count()} processors.")
    print(f"\nThe machine's load was {os.getloadavg()[0]:.2f} before the measurements", end="")
    print(f", which began at {time.strftime('%H:%M')}.")
    for measurement in MEASUREMENTS:
        if not options.names or measurement.__name__ in options.names:
            measurement(options)
    print(f"\nThe machine's load was {os.getloadavg()[0]:.2f} afterwards.")


if __name__ == "__main__":
    main()

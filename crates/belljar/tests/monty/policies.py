"""Checks policies, limits and the bridge to the host: `policies.py WORKER`, or `policies.py URL TOKEN`."""

import asyncio
import datetime
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from pydantic_monty import (
    NOT_HANDLED,
    AsyncMonty,
    AsyncMontySession,
    AsyncMontyWebsocket,
    CollectStreams,
    MontyRuntimeError,
    MountDir,
)

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=datetime.timezone.utc)
CLOCKS = """
import datetime, time
zone = datetime.timezone.utc
[datetime.datetime.now(), datetime.datetime.now(zone), datetime.date.today(), time.time()]
"""


def pool(target: list[str]) -> Any:
    if target[0].startswith("ws"):
        headers = {"Authorization": f"Bearer {target[1]}"}
        return AsyncMontyWebsocket(target[0], connect_headers=lambda: headers, request_timeout=120)
    return AsyncMonty(binary_path=target[0], max_processes=1)


class Host:
    """Answers the questions that it knows, and lists all of them."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answers = {name.replace("_", "."): answer for name, answer in answers.items()}

    def __call__(self, *, name: str, args: tuple[Any, ...], **_: Any) -> Any:
        self.asked.append((name, *args))
        return self.answers.get(name, NOT_HANDLED)


async def raised(session: AsyncMontySession, code: str, **options: Any) -> BaseException:
    try:
        value = await session.feed_run(code, **options)
    except MontyRuntimeError as error:
        return error.exception()
    raise AssertionError(f"{code!r} returned {value!r}")


async def check_clocks(workers: Any) -> None:
    naive = MOMENT.replace(tzinfo=None)
    async with workers.checkout(os_policy={"datetime": MOMENT}) as session:
        found = await session.feed_run(CLOCKS)
        assert found == [naive, MOMENT, naive.date(), MOMENT.timestamp()], found
        assert await session.feed_run(CLOCKS) == found, "a fixed clock goes on"
    host = Host(datetime_now=MOMENT, date_today=datetime.date(1999, 12, 31), time_time=1.5)
    async with workers.checkout(os_policy={"datetime": "call_host"}) as session:
        _, aware, today, seconds = await session.feed_run(CLOCKS, os=host)
        assert (aware, today, seconds) == (MOMENT, datetime.date(1999, 12, 31), 1.5), (aware, today, seconds)
        names = [name for name, *_ in host.asked]
        assert names == ["datetime.now", "datetime.now", "date.today", "time.time"], names
    zone = datetime.timezone(datetime.timedelta(hours=-11), "SST")
    async with workers.checkout(os_policy={"datetime": MOMENT.astimezone(zone)}) as session:
        # The day before.
        naive = MOMENT.astimezone(zone).replace(tzinfo=None)
        assert await session.feed_run(CLOCKS) == [naive, MOMENT, naive.date(), MOMENT.timestamp()]
    summer = MOMENT.replace(month=7)
    async with workers.checkout(os_policy={"datetime": summer, "timezone": "Europe/Oslo"}) as session:
        naive = summer.replace(tzinfo=None) + datetime.timedelta(hours=2)
        assert await session.feed_run(CLOCKS) == [naive, summer, naive.date(), summer.timestamp()]
    async with workers.checkout(os_policy={"timezone": {"offset_seconds": 7200, "name": "CEST"}}) as session:
        naive, aware, today, _ = await session.feed_run(CLOCKS)
        ahead = naive - aware.replace(tzinfo=None) - datetime.timedelta(hours=2)
        assert abs(ahead) < datetime.timedelta(seconds=60), (naive, aware)
        assert (today - naive.date()).days in (0, 1), (naive, today)
    before = datetime.datetime.now(datetime.timezone.utc)
    async with workers.checkout() as session:
        found = await session.feed_run(CLOCKS)
        assert abs(found[1] - before) < datetime.timedelta(seconds=120), found


async def check_sleeps(workers: Any) -> None:
    code = "import asyncio, time\ntime.sleep(3600)\nawait asyncio.sleep(3600)\n'awake'"
    async with workers.checkout(os_policy={"sleep": "zero"}) as session:
        assert await session.feed_run(code) == "awake"
    host = Host(time_sleep=None, asyncio_sleep=None)
    async with workers.checkout(os_policy={"sleep": "call_host"}) as session:
        assert await session.feed_run(code, os=host) == "awake"
        assert host.asked == [("time.sleep", 3600), ("asyncio.sleep", 3600)], host.asked
    async with workers.checkout(limits={"max_total_sleep_secs": 0.05}) as session:
        await session.feed_run("import time\nkept = 1\ntime.sleep(0.01)")
        # The client ends the feed, also if the code handles that.
        error = await raised(session, "try:\n    time.sleep(5)\nexcept BaseException:\n    pass")
        assert isinstance(error, TimeoutError), repr(error)
        assert await session.feed_run("kept") == 1


async def check_random(workers: Any) -> None:
    code = "import random\n[random.random(), random.randint(1, 1000)]"
    for seed in (7, 2**70, "a text", b"bytes", 1.5):
        generator = random.Random(seed)
        expected = [generator.random(), generator.randint(1, 1000)]
        async with workers.checkout(os_policy={"random_start": {"seed": seed}}) as session:
            found = await session.feed_run(code)
            assert found == expected, (seed, found, expected)
    found = []
    for _ in range(2):
        host = Host(os_urandom=bytes(range(1, 209)) * 12)
        async with workers.checkout(os_policy={"random_start": "call_host"}) as session:
            found.append(await session.feed_run(code, os=host))
        assert host.asked == [("os.urandom", 2496)], host.asked
    assert found[0] == found[1], found
    async with workers.checkout() as session:
        assert await session.feed_run(code) != found[0]


async def check_limits(workers: Any) -> None:
    calls = []
    lookup = {"call": lambda: calls.append(1)}
    async with workers.checkout(limits={"max_suspensions": 6}) as session:
        await session.feed_run("kept = 1\ndef ask():\n    for _ in range(100):\n        call()")
        # The client ends the feed, in a plain function and at the top level: code that handles that asks nothing more.
        for ask in ("ask()", "for _ in range(100):\n        call()"):
            code = f"try:\n    {ask}\nexcept BaseException:\n    call()"
            error = await raised(session, code, external_lookup=lookup)
            assert isinstance(error, RuntimeError) and "suspension" in str(error), repr(error)
        assert len(calls) < 10, calls
        assert await session.feed_run("kept") == 1
    deep = "def depth(n):\n    return n and 1 + depth(n - 1)\n"
    async with workers.checkout(limits={"max_recursion_depth": 200}) as session:
        assert await session.feed_run(f"{deep}depth(50)") == 50
        assert isinstance(await raised(session, "depth(1000)"), RecursionError)
        assert await session.feed_run("depth(50)") == 50
    async with workers.checkout(limits={"max_feed_duration_secs": 0.3}) as session:
        assert isinstance(await raised(session, "while True: pass"), TimeoutError)


async def check_host(workers: Any) -> None:
    """Mounts, the environment, and output."""
    host = Host(os_getenv="/users/me", os_environ={"HOME": "/users/me"})
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "a.txt").write_text("one")
        shared = MountDir(host_path=directory, virtual_path="/data", mode="read-write")
        layered = MountDir(host_path=directory, virtual_path="/data", mode="overlay")
        async with workers.checkout() as session:
            code = "import os\n[os.getenv('HOME'), os.environ['HOME']]"
            assert await session.feed_run(code, os=host) == ["/users/me", "/users/me"]
            code = "text = open('/data/a.txt').read()\nopen('/data/b.txt', 'w').write(text * 2)\ntext"
            assert await session.feed_run(code, mount=shared) == "one"
            assert Path(directory, "b.txt").read_text() == "oneone"
            code = "open('/data/b.txt', 'w').write('new')\nopen('/data/b.txt').read()"
            assert await session.feed_run(code, mount=layered) == "new"
            assert Path(directory, "b.txt").read_text() == "oneone"
            streams = CollectStreams()
            code = "import sys\nprint('a', end='')\nprint('b', file=sys.stderr)"
            await session.feed_run(code, print_callback=streams)
            assert streams.output == [("stdout", "a"), ("stderr", "b\n")], streams.output


async def check_reset_and_installation(workers: Any, is_belljar: bool) -> None:
    async with workers.checkout() as session:
        await session.feed_run("left = 1")
    async with workers.checkout() as session:
        assert isinstance(await raised(session, "left"), NameError), "a worker is reset"
        if is_belljar:
            await session.install_dependencies(["humanize==4.15.0"])
            assert await session.feed_run("import humanize\nhumanize.intcomma(12345)") == "12,345"


async def main(target: list[str]) -> None:
    async with pool(target) as workers:
        for check in (check_clocks, check_sleeps, check_random, check_limits, check_host):
            await check(workers)
        # To compare these checks with Monty's own worker, which installs nothing.
        await check_reset_and_installation(workers, target[-1] != "--monty")


asyncio.run(main(sys.argv[1:]))
# The client's threads sometimes abort a Python that ends by itself, with Monty's own worker, too.
os._exit(0)

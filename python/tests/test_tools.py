"""Functions of this process that sandboxed code calls."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

import belljar
from belljar import AsyncSandbox, Sandbox, tool


async def weather(city: str, *, days: int = 1) -> dict[str, Any]:
    """Returns the weather of a city."""
    await asyncio.sleep(0)
    return {"city": city, "celsius": 21.5, "days": days}


def add(a: Any, b: Any = 2) -> Any:
    """Adds two numbers."""
    return a + b


@tool(blocking=True, name="lookup", description="Looks a key up.")
def find(key: str) -> bytes:
    return {"a": b"\x00" * 10_000}[key]


@pytest.fixture(scope="module")
def box() -> Sandbox:
    return Sandbox(tools=[weather, add, find], install=False)


def test_code_calls_async_and_sync_functions(box: Sandbox) -> None:
    run = box.run("x = await weather(city='Berlin', days=3)\n(x, await add(1), await add('a', b='b'))")
    assert run.check().value == ({"city": "Berlin", "celsius": 21.5, "days": 3}, 3, "ab")


def test_blocking_tool_is_called_without_await(box: Sandbox) -> None:
    assert box.run("len(lookup('a'))").check().value == 10_000


def test_calls_are_recorded(box: Sandbox) -> None:
    run = box.run("await add(1, b=5)\ntry:\n    lookup('b')\nexcept KeyError: pass")
    first, second = run.check().calls
    assert (first.name, first.args, first.kwargs, first.result, first.error) == ("add", (1,), {"b": 5}, 6, None)
    assert second.error is not None and second.error.name == "KeyError" and second.seconds is not None


def test_signature_and_docstring_reach_the_code(box: Sandbox) -> None:
    code = "import inspect\nstr(inspect.signature(weather)), weather.__doc__, weather.__name__, lookup.__doc__"
    signature, doc, name, other = box.run(code).check().value
    assert signature == "(city: str, *, days: int = 1) -> dict[str, Any]"
    assert (doc, name, other) == ("Returns the weather of a city.", "weather", "Looks a key up.")


def test_exceptions_cross_by_name(box: Sandbox) -> None:
    class Refused(Exception):
        pass

    def fail(kind: str) -> None:
        raise {"value": ValueError("bad"), "key": KeyError("k"), "own": Refused("no")}[kind]

    box = Sandbox(tools=[fail], install=False)
    code = """
names = []
for kind in ('value', 'key', 'own'):
    try:
        await fail(kind)
    except Exception as error:
        names.append((type(error).__name__, str(error), isinstance(error, (ValueError, KeyError))))
names
"""
    assert box.run(code).check().value == [
        ("ValueError", "bad", True),
        ("KeyError", "'k'", True),
        ("Refused", "no", False),
    ]
    error = box.run("await fail('own')").error
    assert error is not None and (error.name, error.message) == ("Refused", "no")


def test_wrong_arguments_are_a_type_error_in_the_code(box: Sandbox) -> None:
    error = box.run("await weather(town='x')").error
    assert error is not None and error.name == "TypeError" and "town" in error.message


def test_calls_run_side_by_side() -> None:
    waiting = threading.Barrier(3, timeout=60)

    async def meet(number: int) -> int:
        await asyncio.get_running_loop().run_in_executor(None, waiting.wait)
        return number

    box = Sandbox(tools=[meet], install=False)
    code = "import asyncio\nawait asyncio.gather(*(meet(n) for n in range(3)))"
    assert box.run(code).check().value == [0, 1, 2]


def test_time_in_functions_does_not_count() -> None:
    def slow() -> int:
        time.sleep(3.5)
        return 1

    async def slow_async() -> int:
        await asyncio.sleep(3.5)
        return 2

    box = Sandbox(tools=[slow, slow_async], limits={"timeout": 3}, install=False)
    assert box.run("[await slow(), await slow_async()]").check().value == [1, 2]


def test_code_can_time_a_call_out() -> None:
    cancelled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    box = Sandbox(tools=[forever], install=False)
    code = """
import asyncio
try:
    # Long enough for the call to begin.
    await asyncio.wait_for(forever(), 3)
except TimeoutError:
    result = 'timed out'
result
"""
    assert box.run(code).check().value == "timed out"
    assert cancelled.wait(60)


def test_call_that_nothing_waits_for_is_cancelled_at_the_end() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    def has_begun() -> bool:
        return begun.is_set()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    box = Sandbox(tools=[forever, has_begun], install=False)
    code = (
        "import asyncio\ntask = asyncio.create_task(forever())\n"
        "while not await has_begun(): await asyncio.sleep(0.05)\n1"
    )
    assert box.run(code).check().value == 1
    assert cancelled.wait(60)
    begun.clear()
    session = box.session()
    assert session.run(code).check().value == 1
    assert session.run("await asyncio.sleep(0)\ntask.cancelled()").check().value is True
    session.close()


async def soon(number: int) -> int:
    """Returns its argument, but not before it is awaited."""
    await asyncio.sleep(0.001)
    return number


@pytest.mark.parametrize(
    ("code", "value"),
    [
        pytest.param("[await soon(n) for n in range(3)]", [0, 1, 2], id="one after the other"),
        # A timer may not wait until the code stops to call.
        pytest.param(
            """
try:
    async with asyncio.timeout(0.3):
        while True:
            await soon(1)
except TimeoutError:
    result = "timed out"
result
""",
            "timed out",
            id="timer",
        ),
        pytest.param(
            """
async def count():
    return [await soon(n) for n in range(3)]
task = asyncio.create_task(count())
[await soon(9), await task]
""",
            [9, [0, 1, 2]],
            id="another task",
        ),
        pytest.param(
            """
asyncio.current_task().cancel()
try:
    await soon(1)
except asyncio.CancelledError:
    result = "cancelled"
    asyncio.current_task().uncancel()
[result, await soon(2)]
""",
            ["cancelled", 2],
            id="own cancellation",
        ),
        pytest.param(
            """
import threading
ran = []
thread = threading.Thread(target=ran.append, args=(1,))
thread.start()
[await soon(1), ran]
""",
            [1, [1]],
            id="thread",
        ),
        pytest.param(
            """
asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_later(0.01, ran.append, 1))
ran = []
while not ran:
    await soon(1)
ran
""",
            [1],
            id="callback",
        ),
    ],
)
def test_waiting_for_a_call_holds_nothing_up(code: str, value: Any) -> None:
    box = Sandbox(tools=[soon], install=False)
    # The first call is sent at once. Later ones are sent when the code waits.
    assert box.run(f"import asyncio\nawait soon(0)\n{code}", timeout=600).check().value == value


def test_tasks_that_begin_at_once_call_side_by_side() -> None:
    waiting = threading.Barrier(2, timeout=60)

    async def meet(number: int) -> int:
        await asyncio.get_running_loop().run_in_executor(None, waiting.wait)
        return number

    box = Sandbox(tools=[meet, soon], install=False)
    code = """
import asyncio
await soon(0)
loop = asyncio.get_running_loop()
loop.set_task_factory(asyncio.eager_task_factory)
try:
    result = await asyncio.gather(*(asyncio.create_task(meet(n)) for n in range(2)))
finally:
    loop.set_task_factory(None)
result
"""
    assert box.run(code).check().value == [0, 1]


def test_functions_run_in_the_context_of_the_caller() -> None:
    user = contextvars.ContextVar("user", default="unset")

    def who() -> str:
        return user.get()

    async def who_async() -> str:
        return user.get()

    box = Sandbox(tools=[who, who_async], install=False)
    user.set("alice")
    assert box.run("[await who(), await who_async()]").check().value == ["alice", "alice"]


def test_number_of_calls_is_limited() -> None:
    box = Sandbox(tools=[add], limits={"calls": 3}, install=False)
    run = box.run("for n in range(10): await add(n)")
    assert run.error is not None and "3 times" in run.error.message and len(run.calls) == 3


def test_unknown_function_and_forged_requests_are_refused(box: Sandbox) -> None:
    code = """
import _belljar.host as host
try:
    host.call('call_function', name='open', wait=True, buffers=[], arguments=[[], {}])
except Exception as error:
    result = str(error)
result
"""
    run = box.run(code)
    if run.error is None:
        assert run.value is not None
    for request in ("name=1", "name='add', wait=True, buffers=['../../etc/passwd'], arguments=[[], {}]"):
        run = box.run(f"import _belljar.host as host\nhost.call('call_function', {request})")
        assert run.status == "error"


def test_tools_work_in_sessions_and_forks(box: Sandbox) -> None:
    with box.session() as session:
        assert session.run("x = await add(20, 22); x").check().value == 42
        assert session.run("async def twice(n): return await add(n, n)\nawait twice(4)").check().value == 8
        with session.fork() as other:
            assert other.run("await twice(x)").check().value == 84
        with box.load(session.dump()) as loaded:
            assert loaded.run("await twice(x)").check().value == 84


def test_functions_run_on_the_callers_loop() -> None:
    loops = []

    async def where() -> int:
        loops.append(asyncio.get_running_loop())
        return len(loops)

    async def main() -> None:
        async with AsyncSandbox(tools=[where], install=False) as box:
            run = await box.run("await where()")
            assert run.check().value == 1
            assert loops == [asyncio.get_running_loop()]

    asyncio.run(main())


def test_value_that_cannot_cross_is_a_type_error_in_the_code() -> None:
    box = Sandbox(tools=[tool(name="bad")(lambda: object())], install=False)
    error = box.run("await bad()").error
    assert error is not None and "cannot cross" in error.message


@pytest.mark.parametrize("name", ["not a name", "class", ""])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(belljar.ArgumentError, match="name"):
        belljar.Tool(add, name=name)


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(belljar.ArgumentError, match="'add'"):
        Sandbox(tools=[add, tool(name="add")(weather)])

"""A program that waits in many ways, drawn from `SEED`. Its log does not depend on how long each wait takes."""

import asyncio
import contextvars
import random
from contextlib import aclosing

marker = contextvars.ContextVar("marker", default=None)


class Failure(Exception):
    pass


async def nap(depth, rng):
    await asyncio.sleep(rng.choice([0, 0, 0.001, 0.004]))


async def gather(depth, rng):
    return await asyncio.gather(*(steps(depth + 1, rng.getrandbits(32)) for _ in range(rng.randrange(1, 4))))


async def gather_errors(depth, rng):
    results = await asyncio.gather(fail(0.001), steps(depth + 1, rng.getrandbits(32)), return_exceptions=True)
    return [repr(each) for each in results]


async def group(depth, rng):
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(steps(depth + 1, rng.getrandbits(32))) for _ in range(rng.randrange(1, 3))]
    return [task.result() for task in made]


async def failing_group(depth, rng):
    ended, failures = [], []
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(until_cancelled(ended))
            tasks.create_task(fail(0.002))
    except* Failure as errors:
        failures = [str(error) for error in errors.exceptions]
    return failures, ended


async def timeout(depth, rng):
    try:
        async with asyncio.timeout(0.003):
            await asyncio.sleep(60)
    except TimeoutError:
        return "timeout"


async def wait_for(depth, rng):
    try:
        return await asyncio.wait_for(asyncio.Event().wait(), 0.002)
    except TimeoutError:
        return "wait_for"


async def cancelled(depth, rng):
    ended = []
    task = asyncio.create_task(until_cancelled(ended))
    await asyncio.sleep(rng.choice([0, 0.001]))
    task.cancel("enough")
    try:
        await task
    except asyncio.CancelledError as error:
        return ended, error.args


async def queue(depth, rng):
    numbers, total = asyncio.Queue(2), 0

    async def produce():
        for number in range(6):
            await numbers.put(number)
            await asyncio.sleep(0.001 if number == 3 else 0)
        await numbers.put(None)

    task = asyncio.create_task(produce())
    while (number := await numbers.get()) is not None:
        total += number
    await task
    return total


async def locks(depth, rng):
    lock, order = asyncio.Semaphore(1), []

    async def hold(number):
        async with lock:
            await asyncio.sleep(0.001)
            order.append(number)

    await asyncio.gather(*map(hold, range(3)))
    return order


async def event(depth, rng):
    happened, log = asyncio.Event(), []

    async def wait(number):
        await happened.wait()
        log.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(3)]
    asyncio.get_running_loop().call_later(0.002, happened.set)
    await asyncio.wait(tasks)
    return log


async def generator(depth, rng):
    log = []

    async def count():
        try:
            for number in range(5):
                await asyncio.sleep(0.001 if number == 1 else 0)
                yield number
        finally:
            await asyncio.sleep(0.001)
            log.append("closed")

    async with aclosing(count()) as numbers:
        async for number in numbers:
            log.append(number)
            if number == 3:
                break
    return log


async def shield(depth, rng):
    inner = asyncio.create_task(asyncio.sleep(0.004, "kept"))
    try:
        await asyncio.wait_for(asyncio.shield(inner), 0.001)
    except TimeoutError:
        return await inner


async def thread(depth, rng):
    return await asyncio.to_thread(sum, [1, 2, 3])


async def fail(seconds):
    await asyncio.sleep(seconds)
    raise Failure("on purpose")


async def until_cancelled(ended):
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.001)
        ended.append("ended")


LEAVES = [nap, gather_errors, failing_group, timeout, wait_for, cancelled, queue, locks, event, generator, shield, thread]


async def steps(depth, seed):
    rng, log = random.Random(seed), []
    marker.set(seed)
    for _ in range(rng.randrange(1, 4)):
        step = rng.choice(LEAVES if depth > 1 else [gather, group, *LEAVES])
        if step is gather_errors and depth > 2:
            continue
        log.append((step.__name__, await step(depth, rng)))
        assert marker.get() == seed
    return log

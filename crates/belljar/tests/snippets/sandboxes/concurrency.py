# Threads, processes and event loops.
# %% 5 threading
import threading

counter = 0
lock = threading.Lock()


def increment(times):
    global counter
    for _ in range(times):
        with lock:
            counter += 1


threads = [threading.Thread(target=increment, args=(1000,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(counter)
#> 4000
# %% 6 ThreadPoolExecutor
from concurrent.futures import ThreadPoolExecutor, as_completed


def square(n):
    return n, n * n


with ThreadPoolExecutor(max_workers=4) as executor:
    futures = [executor.submit(square, n) for n in range(6)]
    results = dict(future.result() for future in as_completed(futures))
print(sorted(results.items()))
#> [(0, 0), (1, 1), (2, 4), (3, 9), (4, 16), (5, 25)]
# %% 7 ProcessPoolExecutor
from concurrent.futures import ProcessPoolExecutor


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


if __name__ == "__main__":
    with ProcessPoolExecutor() as executor:
        numbers = [1000003, 1000033, 15, 17]
        for number, prime in zip(numbers, executor.map(is_prime, numbers)):
            print(number, prime)
#> 1000003 True
#> 1000033 True
#> 15 False
#> 17 True
# %% 8 multiprocessing.Pool
from multiprocessing import Pool, cpu_count


def cube(n):
    return n**3


if __name__ == "__main__":
    with Pool(processes=min(4, cpu_count())) as pool:
        print(pool.map(cube, range(5)))
        print(pool.apply_async(cube, (10,)).get(timeout=30))
#> [0, 1, 8, 27, 64]
#> 1000
# %% 9 threading.Timer + Event
import threading

done = threading.Event()


def ring():
    print("ring")
    done.set()


timer = threading.Timer(0.1, ring)
timer.start()
print("finished" if done.wait(timeout=20) else "timed out")
#> ring
#> finished
# %% 10 queue producer/consumer
import queue
import threading

tasks = queue.Queue()
results = []


def producer():
    for item in range(5):
        tasks.put(item)
    tasks.put(None)


def consumer():
    while (item := tasks.get()) is not None:
        results.append(item * 10)
        tasks.task_done()


workers = [threading.Thread(target=producer), threading.Thread(target=consumer)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(results)
#> [0, 10, 20, 30, 40]
# %% 11 subprocess.run ls
import pathlib
import subprocess

pathlib.Path("notes.txt").write_text("x")
result = subprocess.run(["ls", "-1"], capture_output=True, text=True)
print(result.returncode, "notes.txt" in result.stdout.split())
#> 0 True
# %% 12 subprocess sys.executable
import subprocess
import sys

script = "import sys; print('args', sys.argv[1:]); sys.exit(3)"
result = subprocess.run([sys.executable, "-c", script, "a", "b"], capture_output=True, text=True)
print(result.stdout.strip(), result.returncode)
#> args ['a', 'b'] 3
# %% 13 os.system
import os

status = os.system("echo hello > greeting.txt")
print(status, open("greeting.txt").read().strip())
#wasm! without pipes and redirections
#native> 0 hello
# %% 15 asyncio gather
import asyncio


async def work(name, delay):
    await asyncio.sleep(delay)
    return f"{name} done"


async def main():
    results = await asyncio.gather(work("a", 0.03), work("b", 0.01), work("c", 0.02))
    print(results)
    try:
        await asyncio.wait_for(asyncio.sleep(5), timeout=0.05)
    except asyncio.TimeoutError:
        print("timed out")


asyncio.run(main())
#> ['a done', 'b done', 'c done']
#> timed out
# %% 16 asyncio.to_thread/run_in_executor
import asyncio
import time


def blocking(n):
    time.sleep(0.01)
    return n * 2


async def main():
    loop = asyncio.get_running_loop()
    print(await asyncio.to_thread(blocking, 4))
    print(await asyncio.gather(*(loop.run_in_executor(None, blocking, n) for n in range(3))))


asyncio.run(main())
#> 8
#> [0, 2, 4]
# %% 17 asyncio subprocess
import asyncio
import sys


async def main():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print('from the child')", stdout=asyncio.subprocess.PIPE
    )
    stdout, _ = await process.communicate()
    print(stdout.decode().strip(), process.returncode)


asyncio.run(main())
#wasm! process
#native> from the child 0
# %% 18 nest_asyncio
import asyncio

import nest_asyncio

nest_asyncio.apply()


async def inner():
    await asyncio.sleep(0)
    return "inner"


async def outer():
    return asyncio.get_event_loop().run_until_complete(inner())


print(asyncio.run(outer()))
#> inner
# %% 59 deep recursion
import sys

sys.setrecursionlimit(10000)


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


print(depth(5000))
#> 5000
# %% 60 signal.alarm timeout
import signal
import time


def handler(signum, frame):
    raise TimeoutError("too slow")


signal.signal(signal.SIGALRM, handler)
signal.alarm(1)
try:
    time.sleep(5)
except TimeoutError as error:
    print(error)
finally:
    signal.alarm(0)
#wasm! alarm
#native> too slow
# %% 63 fcntl/os.fork
import fcntl
import os

with open("lock", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    _, status = os.waitpid(pid, 0)
    print(os.WEXITSTATUS(status))
#wasm! fork
#native> 7
# %% 101 time.sleep + perf_counter
import time

start = time.perf_counter()
time.sleep(0.2)
elapsed = time.perf_counter() - start
print(0.19 < elapsed < 5)
#> True
# %% asyncio.Queue with workers
import asyncio


async def worker(name, tasks, log):
    while True:
        item = await tasks.get()
        await asyncio.sleep(0.001)
        log.append(item)
        tasks.task_done()


async def main():
    tasks, log = asyncio.Queue(), []
    workers = [asyncio.create_task(worker(f"worker-{n}", tasks, log)) for n in range(3)]
    for item in range(9):
        tasks.put_nowait(item)
    await tasks.join()
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    print(sorted(log))


asyncio.run(main())
#> [0, 1, 2, 3, 4, 5, 6, 7, 8]
# %% Top-level await
import asyncio

async def answer():
    await asyncio.sleep(0.01)
    return 42

print(await answer())
#> 42
# %% An async generator and an async context manager
import asyncio
from contextlib import asynccontextmanager


@asynccontextmanager
async def resource(name):
    print("open", name)
    yield name.upper()
    print("close", name)


async def countdown(n):
    while n:
        yield n
        n -= 1
        await asyncio.sleep(0)


async def main():
    async with resource("db") as handle:
        print(handle, [n async for n in countdown(3)])


asyncio.run(main())
#> open db
#> DB [3, 2, 1]
#> close db

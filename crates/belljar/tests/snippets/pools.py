# %% A pool of threads maps in order
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(max_workers=3) as pool:
    print(list(pool.map(lambda n: n * n, range(6))))
#> [0, 1, 4, 9, 16, 25]
# %% Futures have results, exceptions and states
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool:
    good, bad = pool.submit(pow, 2, 10), pool.submit(int, "x")
    print(good.result(timeout=5), good.done(), good.running(), good.cancel())
    print(type(bad.exception()).__name__)
    try:
        bad.result()
    except ValueError as error:
        print(error)
#> 1024 True False False
#> ValueError
#> invalid literal for int() with base 10: 'x'
# %% as_completed and wait
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait
with ThreadPoolExecutor(max_workers=4) as pool:
    futures = {pool.submit(str.upper, name): name for name in ("a", "b", "c")}
    print(sorted((futures[future], future.result()) for future in as_completed(futures)))
    done, not_done = wait([pool.submit(abs, -1), pool.submit(abs, -2)])
    print(sorted(future.result() for future in done), len(not_done))
    done, _ = wait([pool.submit(abs, -3)], return_when=FIRST_COMPLETED)
    print(done.pop().result())
#> [('a', 'A'), ('b', 'B'), ('c', 'C')]
#> [1, 2] 0
#> 3
# %% Callbacks of futures
from concurrent.futures import ThreadPoolExecutor
got = []
with ThreadPoolExecutor() as pool:
    pool.submit(len, "four").add_done_callback(lambda future: got.append(future.result()))
print(got)
#> [4]
# %% Workers have names and an initializer
import threading
from concurrent.futures import ThreadPoolExecutor
local = threading.local()
def prepare(value):
    local.value = value
def work(_):
    return local.value, threading.current_thread().name.startswith("crew_")
with ThreadPoolExecutor(2, thread_name_prefix="crew", initializer=prepare, initargs=("ready",)) as pool:
    print(set(pool.map(work, range(4))), hasattr(local, "value"))
#> {('ready', True)} False
# %% Jobs submit jobs
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(max_workers=2)
def outer():
    return pool.submit(lambda: "inner").result()
print(pool.submit(outer).result())
pool.shutdown()
try:
    pool.submit(print)
except RuntimeError as error:
    print(error)
#> inner
#> cannot schedule new futures after shutdown
# %% A lock shared by jobs
import threading
from concurrent.futures import ThreadPoolExecutor
total, lock = 0, threading.Lock()
def add(n):
    global total
    with lock:
        total += n
with ThreadPoolExecutor(8) as pool:
    list(pool.map(add, range(100)))
print(total)
#> 4950
# %% A job that raises does not disturb the others
from concurrent.futures import ThreadPoolExecutor
def work(n):
    if n == 2:
        raise ValueError(f"bad {n}")
    return n
with ThreadPoolExecutor() as pool:
    for future in [pool.submit(work, n) for n in range(4)]:
        try:
            print(future.result())
        except ValueError as error:
            print(error)
#> 0
#> 1
#> bad 2
#> 3
# %% The pool's end waits for its jobs
import time
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool:
    future = pool.submit(lambda: (time.sleep(0.01), print("worked")))
print(future.done())
#> worked
#> True
# %% A timeout of map
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool:
    print(list(pool.map(abs, [-1, -2], timeout=30)))
#> [1, 2]
# %% asyncio.to_thread
import asyncio, threading
def work(n):
    return n + 1, threading.current_thread() is threading.main_thread()
async def main():
    print(await asyncio.to_thread(work, 1))
    print(await asyncio.gather(*(asyncio.to_thread(work, n) for n in range(3))))
asyncio.run(main())
#> (2, False)
#> [(1, False), (2, False), (3, False)]
# %% run_in_executor
import asyncio
from concurrent.futures import ThreadPoolExecutor
async def main():
    loop = asyncio.get_running_loop()
    print(await loop.run_in_executor(None, sum, [1, 2, 3]))
    with ThreadPoolExecutor() as pool:
        print(await loop.run_in_executor(pool, max, 4, 5))
    try:
        await loop.run_in_executor(None, int, "x")
    except ValueError as error:
        print("ValueError")
asyncio.run(main())
#> 6
#> 5
#> ValueError
# %% Tasks go on while a thread's work is waited for
import asyncio
async def tick(ticks):
    for _ in range(3):
        ticks.append(1)
        await asyncio.sleep(0)
async def main():
    ticks = []
    task = asyncio.create_task(tick(ticks))
    print(await asyncio.to_thread(lambda: "threaded"))
    await task
    print(len(ticks))
asyncio.run(main())
#> threaded
#> 3
# %% Context variables reach asyncio.to_thread
import asyncio, contextvars
variable = contextvars.ContextVar("variable")
async def main():
    variable.set("seen")
    print(await asyncio.to_thread(variable.get))
asyncio.run(main())
#> seen
# %% A thread with a loop of its own
import asyncio, threading
async def work():
    await asyncio.sleep(0.001)
    return "from the loop"
got = []
thread = threading.Thread(target=lambda: got.append(asyncio.run(work())))
thread.start()
thread.join()
print(got)
#> ['from the loop']
# %% A loop in a background thread
import asyncio, threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
async def work():
    await asyncio.sleep(0.001)
    return "answer"
print(asyncio.run_coroutine_threadsafe(work(), loop).result(timeout=5))
#> answer
# %% call_soon_threadsafe
import asyncio, threading
async def main():
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(event.set)).start()
    await event.wait()
    print("set")
asyncio.run(main())
#> set
# %% A pool of processes
from multiprocessing import Pool
def square(n):
    return n * n
if __name__ == "__main__":
    with Pool(processes=4) as pool:
        print(pool.map(square, range(10)))
        print(pool.starmap(pow, [(2, 3), (3, 2)]), pool.apply(square, (5,)))
        print(list(pool.imap(square, range(4))), sorted(pool.imap_unordered(square, range(4))))
        print(pool.map_async(square, [1, 2]).get(timeout=5), pool.apply_async(square, (6,)).get())
#> [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]
#> [8, 9] 25
#> [0, 1, 4, 9] [0, 1, 4, 9]
#> [1, 4] 36
# %% Callbacks and errors of a pool
from multiprocessing import Pool
def fail(n):
    raise ValueError(f"bad {n}")
if __name__ == "__main__":
    got = []
    with Pool(2) as pool:
        pool.apply_async(abs, (-1,), callback=got.append).wait()
        result = pool.apply_async(fail, (1,), error_callback=lambda error: got.append(str(error)))
        result.wait()
        print(got, result.ready(), result.successful())
        try:
            pool.map(fail, [2])
        except ValueError as error:
            print(error)
#> [1, 'bad 1'] True False
#> bad 2
# %% A pool that is closed and joined
from multiprocessing import Pool
if __name__ == "__main__":
    pool = Pool(2)
    results = [pool.apply_async(pow, (n, 2)) for n in range(4)]
    pool.close()
    pool.join()
    print([result.get() for result in results])
    try:
        pool.map(abs, [1])
    except ValueError as error:
        print(error)
#> [0, 1, 4, 9]
#> Pool not running
# %% An initializer of processes
import multiprocessing
def prepare(value):
    global shared
    shared = value
def work(n):
    return shared + n
if __name__ == "__main__":
    with multiprocessing.Pool(2, prepare, (10,)) as pool:
        print(pool.map(work, range(3)))
#> [10, 11, 12]
# %% A pool of threads of multiprocessing
from multiprocessing.dummy import Pool as DummyPool
from multiprocessing.pool import ThreadPool
with ThreadPool(3) as pool:
    print(pool.map(str, range(3)))
with DummyPool(3) as pool:
    print(pool.map(str, range(3)))
#> ['0', '1', '2']
#> ['0', '1', '2']
# %% ProcessPoolExecutor
from concurrent.futures import ProcessPoolExecutor
def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))
if __name__ == "__main__":
    with ProcessPoolExecutor(max_workers=2) as pool:
        print(list(pool.map(is_prime, range(6), chunksize=2)), pool.submit(is_prime, 97).result())
#> [False, False, True, True, False, True] True
# %% A process
import multiprocessing
def work(queue, n):
    queue.put((multiprocessing.current_process().name, n * 2))
if __name__ == "__main__":
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=work, args=(queue, 21), name="worker")
    print(process.exitcode, process.is_alive())
    process.start()
    print(queue.get(timeout=10))
    process.join()
    print(process.exitcode, process.is_alive(), process.pid > 0, process.name)
#> None False
#> ('worker', 42)
#> 0 False True worker
# %% Exit codes of processes
import multiprocessing, sys
def leave(code):
    sys.exit(code)
def fail():
    raise ValueError("in the process")
if __name__ == "__main__":
    for target, args in ((leave, (3,)), (leave, (None,)), (fail, ())):
        process = multiprocessing.Process(target=target, args=args)
        process.start()
        process.join()
        print(process.exitcode)
#> 3
#> 0
#> 1
#! ValueError: in the process
# %% Shared values, locks, pipes and managers
import multiprocessing
def work(value, array, lock, managed, connection):
    with lock:
        value.value += 1
    array[0] = 7
    managed["key"] = [1, 2]
    connection.send({"sent": True})
    connection.close()
if __name__ == "__main__":
    value, array, lock = multiprocessing.Value("i", 1), multiprocessing.Array("d", 2), multiprocessing.Lock()
    mine, theirs = multiprocessing.Pipe()
    with multiprocessing.Manager() as manager:
        managed = manager.dict()
        process = multiprocessing.Process(target=work, args=(value, array, lock, managed, theirs))
        process.start()
        print(mine.recv())
        process.join()
        print(value.value, list(array), dict(managed))
#> {'sent': True}
#> 2 [7.0, 0.0] {'key': [1, 2]}
# %% A process that is terminated before it ran
import multiprocessing, time
if __name__ == "__main__":
    process = multiprocessing.Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join()
    print(process.exitcode, process.is_alive())
#> -15 False
# %% Attributes of a process object stay in the process
import multiprocessing
class Worker(multiprocessing.Process):
    def run(self):
        self.result = 42
if __name__ == "__main__":
    worker = Worker()
    worker.start()
    worker.join()
    print(hasattr(worker, "result"), worker.exitcode)
#> False 0

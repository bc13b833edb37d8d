# Waits that real threads would leave by taking turns, or never: the errors here say so. The last program sleeps.
# %% A queue that nothing fills
import queue
try:
    queue.Queue().get()
except RuntimeError as error:
    print(str(error).partition(":")[0])
#> this waits for something that cannot happen
# %% An event that nothing sets
import threading
try:
    threading.Event().wait()
except RuntimeError as error:
    print(str(error).partition(":")[0])
#> this waits for something that cannot happen
# %% A lock that is held
import threading
lock = threading.Lock()
lock.acquire()
try:
    lock.acquire()
except RuntimeError as error:
    print(str(error).partition(":")[0])
#> this waits for something that cannot happen
# %% A barrier that is never full
import threading
barrier = threading.Barrier(2)
thread = threading.Thread(target=barrier.wait, name="lonely")
thread.start()
thread.join()
print("goes on")
#> goes on
#! Exception in thread lonely:
#! RuntimeError: this waits for something that cannot happen
# %% Two threads that wait for each other
import threading
one, two = threading.Lock(), threading.Lock()
def first():
    with one:
        threads[1].join()
def second():
    with two, one:
        print("unreached")
threads = [threading.Thread(target=first), threading.Thread(target=second)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("goes on")
#> goes on
#! RuntimeError: this waits for something that cannot happen
# %% Threads that alternate
import threading
turn, printed = threading.Condition(), []
state = 0
def say(mine):
    global state
    for _ in range(2):
        with turn:
            while state != mine:
                turn.wait()
            printed.append(mine)
            state = 1 - mine
            turn.notify()
threads = [threading.Thread(target=say, args=(n,)) for n in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(printed[:2])
#> [0, 1]
#! ThreadEnded: the thread is ended here
# %% A loop that handles every error still ends
import queue, threading
errors = []
def serve():
    while True:
        try:
            queue.Queue().get()
        except Exception as error:
            errors.append(error)
thread = threading.Thread(target=serve)
thread.start()
thread.join()
print(len(errors) < 10, thread.is_alive())
#> True False
#! ThreadEnded
# %% A loop that ends by a variable that is set later
import threading, time
running, count = True, 0
def loop():
    global count
    while running:
        count += 1
        if count > 300:
            break
        time.sleep(0.0001)
thread = threading.Thread(target=loop)
thread.start()
time.sleep(0.01)
running = False
thread.join()
print(count > 1)
#> True
# %% Many threads that wait for one
import queue, threading
jobs, done = queue.Queue(), []
def serve():
    while (job := jobs.get()) is not None:
        done.append(job)
threads = [threading.Thread(target=serve) for _ in range(100)]
[thread.start() for thread in threads]
for n in range(5):
    jobs.put(n)
for _ in threads:
    jobs.put(None)
[thread.join() for thread in threads]
print(done)
#> [0, 1, 2, 3, 4]
# %% asyncio still reports its own deadlocks
import asyncio
try:
    asyncio.run(asyncio.Event().wait())
except RuntimeError as error:
    print(str(error).partition(":")[0])
#> asyncio is waiting for something that cannot happen
# %% A thread that waits for the loop below it
import asyncio, threading
async def answer():
    return 42
async def main():
    loop = asyncio.get_running_loop()
    def ask():
        return asyncio.run_coroutine_threadsafe(answer(), loop).result()
    try:
        await asyncio.to_thread(ask)
    except RuntimeError as error:
        print(str(error).partition(":")[0])
asyncio.run(main())
#> the thread is ended here
# %% A sleep is at least as long as asked, and wrong arguments are errors
import time
for seconds in (0, 0.0, 0.0005, 0.0015, 0.029, 0.05, True):
    begin = time.monotonic()
    time.sleep(seconds)
    print(time.monotonic() - begin >= seconds)
for wrong in (-1, -0.001, float("nan"), "1", None, 1e300):
    try:
        time.sleep(wrong)
    except (ValueError, TypeError, OverflowError) as error:
        print(type(error).__name__)
#> True
#> True
#> True
#> True
#> True
#> True
#> True
#> ValueError
#> ValueError
#> ValueError
#> TypeError
#> TypeError
#> OverflowError

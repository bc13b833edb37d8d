# %% A thread does its work before it is joined
import threading
results = []
def work(n):
    results.append(n * n)
threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(results))
#> [0, 1, 4, 9, 16]
# %% Threads have names, identifiers and an end
import threading
seen = []
def note():
    me = threading.current_thread()
    seen.append((me.name, me is thread, me.ident == threading.get_ident(), me.is_alive(), me.daemon))
thread = threading.Thread(target=note, name="worker", daemon=True)
print(thread.ident, thread.is_alive())
thread.start()
thread.join()
print(seen, thread.is_alive(), thread.ident != threading.main_thread().ident)
print(threading.current_thread() is threading.main_thread(), threading.active_count())
#> None False
#> [('worker', True, True, True, True)] False True
#> True 1
#native> None False
#native> [('worker', True, True, True, True)] False True
# %% A subclass overrides run
import threading
class Doubler(threading.Thread):
    def __init__(self, value):
        super().__init__()
        self.value = value
    def run(self):
        self.result = self.value * 2
doublers = [Doubler(n) for n in (1, 2, 3)]
for doubler in doublers:
    doubler.start()
for doubler in doublers:
    doubler.join()
print([doubler.result for doubler in doublers])
#> [2, 4, 6]
# %% Starting twice, joining too early and joining oneself are errors
import threading
thread = threading.Thread(target=lambda: None)
for act in (thread.join, thread.start, thread.start):
    try:
        act()
        print("fine")
    except RuntimeError as error:
        print(error)
thread.join()
def join_self():
    try:
        threading.current_thread().join()
    except RuntimeError as error:
        print(error)
thread = threading.Thread(target=join_self)
thread.start()
thread.join()
#> cannot join thread before it is started
#> fine
#> threads can only be started once
#> cannot join current thread
# %% A lock protects a counter
import threading
count, lock = 0, threading.Lock()
def add():
    global count
    for _ in range(1000):
        with lock:
            count += 1
threads = [threading.Thread(target=add) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(count, lock.locked())
#> 8000 False
# %% A critical section that sleeps stays whole
import threading, time
balance, lock = 100, threading.Lock()
def withdraw(amount):
    global balance
    with lock:
        seen = balance
        time.sleep(0.001)
        balance = seen - amount
threads = [threading.Thread(target=withdraw, args=(10,)) for _ in range(5)]
for thread in threads:
    thread.start()
with lock:
    before = balance
    time.sleep(0.005)
    print(balance == before)
for thread in threads:
    thread.join()
print(balance)
#> True
#> 50
# %% Locks time out, refuse and cannot be pickled
import pickle, threading
lock = threading.Lock()
print(lock.acquire(), lock.acquire(blocking=False), lock.acquire(timeout=0.01))
lock.release()
try:
    lock.release()
except RuntimeError as error:
    print(error)
try:
    pickle.dumps(lock)
except TypeError as error:
    print(error)
#> True False False
#> release unlocked lock
#> cannot pickle '_thread.lock' object
# %% A reentrant lock belongs to its thread
import threading
lock = threading.RLock()
def attempt():
    print(lock.acquire(blocking=False))
    try:
        lock.release()
    except RuntimeError as error:
        print(error)
with lock, lock:
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
print(lock.acquire(blocking=False))
#> False
#> cannot release un-acquired lock
#> True
# %% A producer and a consumer
import queue, threading
items, got = queue.Queue(), []
def produce():
    for n in range(5):
        items.put(n)
    items.put(None)
def consume():
    while (item := items.get()) is not None:
        got.append(item)
consumer, producer = threading.Thread(target=consume), threading.Thread(target=produce)
consumer.start()
producer.start()
producer.join()
consumer.join()
print(got)
#> [0, 1, 2, 3, 4]
# %% A producer of a bounded queue
import queue, threading
items, got = queue.Queue(maxsize=2), []
def produce():
    for n in range(10):
        items.put(n)
    items.put(None)
def consume():
    while True:
        item = items.get()
        if item is None:
            break
        got.append(item)
threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(got)
#> [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
# %% Daemons serve a queue until it is empty
import queue, threading
jobs, done = queue.Queue(), []
def serve():
    while True:
        job = jobs.get()
        done.append(job * 2)
        jobs.task_done()
for _ in range(3):
    threading.Thread(target=serve, daemon=True).start()
for n in range(6):
    jobs.put(n)
jobs.join()
print(sorted(done))
#> [0, 2, 4, 6, 8, 10]
# %% Workers end when the queue stays empty
import queue, threading
jobs, done = queue.Queue(), []
def serve():
    while True:
        try:
            job = jobs.get(timeout=1)
        except queue.Empty:
            break
        done.append(job)
threads = [threading.Thread(target=serve) for _ in range(2)]
for thread in threads:
    thread.start()
for n in range(4):
    jobs.put(n)
for thread in threads:
    thread.join()
print(sorted(done))
#> [0, 1, 2, 3]
# %% Priority, last-in and simple queues
import queue, threading
for kind in (queue.PriorityQueue, queue.LifoQueue, queue.SimpleQueue):
    items = kind()
    thread = threading.Thread(target=lambda: [items.put(n) for n in (2, 3, 1)])
    thread.start()
    print([items.get() for _ in range(3)] if kind is not queue.LifoQueue else (thread.join(), items.get())[1])
    thread.join()
print(items.empty())
#> [1, 2, 3]
#> 1
#> [2, 3, 1]
#> True
# %% An event that another thread sets
import threading
ready, order = threading.Event(), []
def wait():
    ready.wait()
    order.append("waited")
def prepare():
    order.append("prepared")
    ready.set()
threads = [threading.Thread(target=wait), threading.Thread(target=prepare)]
for thread in threads:
    thread.start()
print(ready.wait(timeout=5))
for thread in threads:
    thread.join()
print(order)
#> True
#> ['prepared', 'waited']
# %% A wait that times out
import threading, time
begin = time.monotonic()
print(threading.Event().wait(0.05), time.monotonic() - begin >= 0.05)
#> False True
# %% A loop that runs until an event is set
import threading, time
stop, beats = threading.Event(), []
def beat():
    while not stop.is_set():
        beats.append(1)
        time.sleep(0.01)
thread = threading.Thread(target=beat, daemon=True)
thread.start()
time.sleep(1)
stop.set()
thread.join()
print(len(beats) >= 2, thread.is_alive())
#> True False
# %% A periodic thread waits for its stop
import threading, time
stop, beats = threading.Event(), []
def beat():
    while not stop.wait(0.01):
        beats.append(1)
thread = threading.Thread(target=beat, daemon=True)
thread.start()
time.sleep(1)
stop.set()
thread.join(timeout=60)
print(len(beats) >= 2, thread.is_alive())
#> True False
# %% A condition
import threading
condition, data = threading.Condition(), []
def consume():
    with condition:
        condition.wait_for(lambda: data)
        print("got", data.pop())
def produce():
    with condition:
        data.append(7)
        condition.notify()
threads = [threading.Thread(target=consume), threading.Thread(target=produce)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
#> got 7
# %% A semaphore limits nothing that is done in turn
import threading, time
limit, active, most = threading.Semaphore(2), 0, 0
def work():
    global active, most
    with limit:
        active += 1
        most = max(most, active)
        time.sleep(0.001)
        active -= 1
threads = [threading.Thread(target=work) for _ in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(most <= 2, active)
#> True 0
# %% A barrier
import threading
barrier, order = threading.Barrier(3), []
def meet(name):
    order.append("before")
    barrier.wait()
    order.append("after")
threads = [threading.Thread(target=meet, args=(n,)) for n in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(order)
#> ['before', 'before', 'before', 'after', 'after', 'after']
# %% Thread-local data
import threading
local = threading.local()
local.value = "main"
seen = []
def look(n):
    seen.append(hasattr(local, "value"))
    local.value = n
    seen.append(local.value)
threads = [threading.Thread(target=look, args=(n,)) for n in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(seen, local.value)
#> [False, 0, False, 1] main
# %% Thread-local data with an initializer
import threading
class Local(threading.local):
    def __init__(self, begin):
        self.numbers = [begin]
local = Local(1)
local.numbers.append(2)
thread = threading.Thread(target=lambda: print(local.numbers))
thread.start()
thread.join()
print(local.numbers)
#> [1]
#> [1, 2]
# %% Context variables begin empty in a thread
import contextvars, threading
variable = contextvars.ContextVar("variable", default="default")
variable.set("main")
thread = threading.Thread(target=lambda: print(variable.get()))
thread.start()
thread.join()
context = contextvars.copy_context()
thread = threading.Thread(target=context.run, args=(lambda: print(variable.get()),))
thread.start()
thread.join()
#> default
#> main
# %% An exception in a thread is printed, and the program goes on
import threading
def fail():
    raise ValueError("in the thread")
thread = threading.Thread(target=fail, name="failing")
thread.start()
thread.join()
print("goes on")
#> goes on
#! Exception in thread failing:
#! raise ValueError("in the thread")
#! ValueError: in the thread
#native> Exception in thread failing:
#native> ValueError: in the thread
#native> goes on
# %% An exception hook
import threading
def hook(args):
    print(args.exc_type.__name__, args.exc_value, args.thread.name)
threading.excepthook = hook
thread = threading.Thread(target=lambda: 1 / 0, name="t")
thread.start()
thread.join()
#> ZeroDivisionError division by zero t
# %% sys.exit ends the thread alone
import sys, threading
thread = threading.Thread(target=sys.exit, args=(3,))
thread.start()
thread.join()
print("still here")
#> still here
# %% A timer
import threading
fired = []
timer = threading.Timer(0.02, fired.append, args=["timer"])
timer.start()
print(fired, timer.is_alive())
timer.join()
print(fired, timer.is_alive())
#> [] True
#> ['timer'] False
# %% A timer that is cancelled
import threading, time
fired = []
timer = threading.Timer(30, fired.append, args=["late"])
timer.start()
timer.cancel()
begin = time.monotonic()
timer.join()
print(fired, time.monotonic() - begin < 25)
#> [] True
# %% Timers fire in the order of their times
import threading, time
fired = []
for delay in (0.6, 0.2, 0.4):
    threading.Timer(delay, fired.append, args=[delay]).start()
time.sleep(1.5)
print(fired)
#> [0.2, 0.4, 0.6]
# %% The end of the program waits for threads, but not for daemons
import threading, time
def late():
    time.sleep(0.02)
    print("late")
threading.Thread(target=late).start()
threading.Thread(target=lambda: (time.sleep(60), print("never")), daemon=True).start()
print("main is done")
#> main is done
#> late
#native> main is done
# %% A thread starts threads
import threading
def child(n):
    print("child", n)
def parent():
    for n in range(2):
        thread = threading.Thread(target=child, args=(n,))
        thread.start()
        thread.join()
    print("parent")
thread = threading.Thread(target=parent)
thread.start()
thread.join()
#> child 0
#> child 1
#> parent
# %% Logging shows the thread's name
import logging, sys, threading
logging.basicConfig(stream=sys.stdout, format="%(threadName)s %(message)s", level=logging.INFO)
thread = threading.Thread(target=logging.info, args=("hello",), name="worker")
thread.start()
thread.join()
logging.info("bye")
#> worker hello
#> MainThread bye
# %% Polling until a thread has ended
import threading
thread = threading.Thread(target=sum, args=([1, 2],))
thread.start()
while thread.is_alive():
    pass
print("ended")
#> ended
# %% The low-level module
import _thread, time
lock = _thread.allocate_lock()
lock.acquire()
def work(text):
    print(text)
    lock.release()
_thread.start_new_thread(work, ("low",))
lock.acquire()
print("done")
#> low
#> done
# %% A singleton with a lock
import threading
class Singleton:
    _instance, _lock = None, threading.Lock()
    def __new__(cls):
        with cls._lock:
            if cls._instance is None:
                cls._instance = super().__new__(cls)
        return cls._instance
found = set()
threads = [threading.Thread(target=lambda: found.add(id(Singleton()))) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(found))
#> 1
# %% SQLite in a thread of its own
import sqlite3, threading
rows = []
def query():
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (x)")
    connection.executemany("insert into t values (?)", [(n,) for n in range(3)])
    rows.extend(connection.execute("select sum(x) from t"))
thread = threading.Thread(target=query)
thread.start()
thread.join()
print(rows)
#> [(3,)]

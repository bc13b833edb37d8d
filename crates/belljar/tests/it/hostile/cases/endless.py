# limits: time=0.3 memory=512MB
# %% a loop => limit time
while True: pass
# %% a loop of generators => limit time
sum(i for i in iter(int, 1))
# %% a sum in C => limit time
sum(range(10**12))
# %% a power => limit time
10 ** 10 ** 8
# %% a long division => limit time
x = 7 ** 3_000_000
str(x // 3)
import sys
sys.set_int_max_str_digits(0)
str(x)
str(7 ** 20_000_000)
# %% a factorial => limit time
import math
math.factorial(10**7)
# %% a search for a prime => limit time
import math
math.comb(10**8, 10**7)
# %% a sort => limit time
import random
l = [random.random() for _ in range(300_000)]
while True: sorted(l)
# %% a sort whose comparison never ends => limit time
class C:
    def __lt__(self, other):
        while True: pass
sorted([C(), C()])
# %% membership of an endless iterator => limit time
import itertools
1 in itertools.repeat(0)
# %% the length of an endless iterator => limit time
import itertools, collections
collections.deque(itertools.repeat(0), maxlen=0)
# %% a hash of much => limit time
import hashlib
b = bytes(100 << 20)
while True: hashlib.sha256(b)
# %% copies => limit time
b = bytearray(100 << 20)
while True: bytes(b)
# %% moves => limit time
b = bytearray(100 << 20)
while True: b[1:] = b[:-1]
# %% a long search => limit time
b = b'a' * (20 << 20)
while True: (b'a' * (5 << 20) + b'b') in b
# %% replacing in a long string => limit time
s = 'ab' * (10 << 20)
while True: s.replace('a', 'bb')
# %% a regular expression that tries everything => limit time
import re
re.match('(?:x+x+)+y', 'x' * 40)
# %% a regular expression over much => limit time
import re
while True: re.findall('[a-z]*?x', 'a' * 100_000)
# %% compressing => limit time
import lzma
while True: lzma.compress(bytes(10 << 20), preset=6)
# %% compressing with zlib => limit time
import zlib, os
b = os.urandom(50 << 20)
while True: zlib.compress(b, 9)
# %% an endless query => limit time
import sqlite3
db = sqlite3.connect(':memory:')
db.execute('with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c').fetchall()
# %% a join of everything => limit time
import sqlite3
db = sqlite3.connect(':memory:')
db.execute('create table t as with recursive c(x) as (select 1 union all select x + 1 from c limit 5000) select x from c')
db.execute('select count(*) from t a, t b, t c, t d').fetchall()
# %% a decimal of many digits => limit time
import decimal
decimal.getcontext().prec = 10_000_000
decimal.Decimal(2).sqrt()
# %% a product of matrices of lists => limit time
m = [[1.5] * 500 for _ in range(500)]
while True: [[sum(a * b for a, b in zip(r, c)) for c in zip(*m)] for r in m]
# %% code of enormous size compiled => limit time
while True: compile('x = [1, 2, 3]\n' * 100_000, '', 'exec')
# %% a KeyboardInterrupt handled in a loop => limit time, time=2, grace=1
while True:
    try:
        while True: pass
    except BaseException: pass
# %% a KeyboardInterrupt handled by going on sleeping => limit time, time=2, grace=1
import time
while True:
    try: time.sleep(1)
    except BaseException: pass
# %% a KeyboardInterrupt handled while sorting => error KeyboardInterrupt, grace=60
sum(i for i in iter(int, 1))
# %% a KeyboardInterrupt ignored by a signal handler => limit time, time=2, grace=1
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass
# %% a KeyboardInterrupt that a handler drops => limit time, time=2, grace=1
import signal
signal.signal(signal.SIGINT, lambda *args: None)
while True: pass
# %% a sleep => limit time
import time
time.sleep(1e6)
# %% a sleep of zero length, again and again => limit time
import time
while True: time.sleep(0)
# %% select => limit time
import select
while True: select.select([], [], [], 1000)
# %% poll => limit time
import select
select.poll().poll(10**6)
# %% poll of an empty pipe => limit time
import os, select
r, w = os.pipe()
p = select.poll()
p.register(r, select.POLLIN)
p.poll()
# %% reading an empty pipe => limit time | error BlockingIOError
import os
r, w = os.pipe()
os.read(r, 1)
# %% writing a full pipe => limit time | error BlockingIOError
import os
r, w = os.pipe()
while True: os.write(w, bytes(1 << 16))
# %% waiting on the event loop => limit time
import asyncio
await asyncio.sleep(1e6)
# %% waiting for what never comes => error RuntimeError, time=60
import asyncio
await asyncio.Future()
# %% a task that never yields => limit time
import asyncio
async def f():
    while True: await asyncio.sleep(0)
await asyncio.gather(f(), f())
# %% a task that will not be cancelled => limit time
import asyncio
async def f():
    while True:
        try: await asyncio.sleep(0.01)
        except asyncio.CancelledError: pass
await asyncio.wait_for(f(), 0.05)
# %% waiting for a lock => error RuntimeError, time=60
import threading
lock = threading.Lock()
lock.acquire()
lock.acquire()
# %% waiting for an event => error RuntimeError, time=60
import threading
threading.Event().wait()
# %% waiting for a queue => error RuntimeError, time=60
import queue
queue.Queue().get()
# %% a thread that computes => limit time
import threading
def compute():
    while True: pass
thread = threading.Thread(target=compute)
thread.start()
thread.join()
# %% threads that start threads and wait for them => limit time | limit memory | error MemoryError
import threading
def start():
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
while True: start()
# %% a flood of threads => limit time | limit memory | error MemoryError
import threading
while True: threading.Thread(target=print).start()
# %% a thread that ignores its end => limit time
import threading
def ignore():
    while True:
        try: threading.Event().wait()
        except BaseException: pass
thread = threading.Thread(target=ignore)
thread.start()
thread.join()
# %% a program that runs itself => limit time | limit memory | error
import subprocess, sys
open('self.py', 'w').write("import subprocess, sys\nsubprocess.run([sys.executable, 'self.py'], check=True)")
subprocess.run([sys.executable, 'self.py'], check=True)
# %% waiting for a child => error OSError
import os
os.wait()
# %% waiting for a signal, which never comes => none | limit time
import signal
signal.pause()
# %% a busy clock => limit time
import time
while True: time.perf_counter_ns()
# %% a processor time => limit cpu, time=100, cpu=0.3
while True: pass
# %% processor time in C => limit cpu, time=100, cpu=0.3
sum(range(10**12))
# %% a finaliser that never ends => limit time
class C:
    def __del__(self):
        while True: pass
C()
None
# %% a weak reference's callback that never ends => limit time
import weakref
class C: pass
def f(r):
    while True: pass
c = C()
r = weakref.ref(c, f)
del c
# %% a value whose repr never ends => limit time
class C:
    def __repr__(self):
        while True: pass
C()
# %% a value that is an endless iterator => limit time
class C:
    def __iter__(self): return iter(int, 1)
    def __repr__(self): return ''.join(str(i) for i in self)
C()
# %% an error whose text never ends => limit time
class E(Exception):
    def __str__(self):
        while True: pass
raise E
# %% an exit whose code never ends => limit time
class C:
    def __str__(self):
        while True: pass
import sys
sys.exit(C())
# %% an error of endless causes => limit time | error E
class E(Exception):
    @property
    def __cause__(self): return E()
raise E
# %% a metaclass whose name never ends => limit time | error E
class M(type):
    def __getattribute__(cls, name):
        while True: pass
class E(Exception, metaclass=M): pass
raise E
# %% a trace that never ends => limit time
import sys
def trace(*args):
    while True: pass
sys.settrace(trace)
(lambda: 1)()
# %% a collector's callback that never ends => limit time
import gc
def f(phase, info):
    while True: pass
gc.callbacks.append(f)
gc.collect()
# %% a loop in C that calls nothing => limit time
import itertools
next(itertools.filterfalse(None.__class__, ()), None)
any(itertools.repeat(0))
# %% memory set in a loop of C => limit time
import ctypes
b = ctypes.create_string_buffer(100 << 20)
while True: ctypes.memset(b, 1, 100 << 20)
# %% memory compared in a loop of C => limit time
a, b = bytes(100 << 20), bytes(100 << 20)
while True: a == b
# %% reading zeros => limit time
f = open('/dev/zero', 'rb')
while True: f.read(1 << 20)
# %% writing nulls => limit time
f = open('/dev/null', 'wb')
while True: f.write(bytes(1 << 20))
# %% random bytes => limit time
import os
while True: os.urandom(1 << 20)
# %% many files made and deleted => limit time
import os
while True:
    open('/tmp/x', 'w').close()
    os.unlink('/tmp/x')
# %% many renames => limit time
import os
open('/tmp/a', 'w').close()
while True:
    os.rename('/tmp/a', '/tmp/b')
    os.rename('/tmp/b', '/tmp/a')
# %% walking in circles => limit time
import os
os.symlink('/tmp', '/tmp/loop')
while True: list(os.walk('/tmp', followlinks=True))
# %% a large file copied => limit time
import shutil
with open('/tmp/a', 'wb') as f: f.write(bytes(5 << 20))
while True: shutil.copyfile('/tmp/a', '/tmp/b')
# %% datetimes => limit time
import datetime
d = datetime.datetime.min
while True: d.strftime('%c' * 1000)
# %% a unicode normalisation => limit time
import unicodedata
while True: unicodedata.normalize('NFKD', '\ufdfa' * 100_000)

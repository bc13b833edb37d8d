# limits: time=100 memory=512MB output=100KB disk=4MB files=200
# %% output without end => limit output
while True: print('x' * 1000)
# %% errors without end => limit output
import sys
while True: sys.stderr.write('x' * 1000)
# %% both without end => limit output
import sys
while True: print('x', file=sys.stdout); print('y', file=sys.stderr)
# %% one enormous write => limit output
print('x' * (200 << 20))
# %% output by way of the descriptor => limit output
import os
while True: os.write(1, b'x' * 1000)
# %% output by way of the device => limit output
f = open('/dev/stdout', 'wb', buffering=0)
while True: f.write(b'x' * 1000)
# %% output by way of a copy of the descriptor => limit output
import os
d = os.dup(2)
while True: os.write(d, b'x' * 1000)
# %% output in very small pieces => limit output
import os
while True: os.write(1, b'x')
# %% empty output without end => limit time, time=0.5
import os
while True: os.write(1, b'')
# %% warnings without end => limit output
import warnings
warnings.simplefilter('always')
while True: warnings.warn('x' * 1000)
# %% destructors that fail without end => limit output
class C:
    def __del__(self): raise ValueError('x' * 1000)
while True: C()
# %% an error with an enormous message => error ValueError
raise ValueError('x' * (50 << 20))
# %% an error with enormous notes => error ValueError
e = ValueError()
for _ in range(1000): e.add_note('x' * 100_000)
raise e
# %% an error with an enormous group => error ExceptionGroup
raise ExceptionGroup('x', [ValueError(i) for i in range(100_000)])
# %% an error from a line of enormous length => error ZeroDivisionError
exec('x = "' + 'a' * 10_000_000 + '"; 1/0')
# %% an enormous line that is not Python => error SyntaxError
exec('x = "' + 'a' * 10_000_000 + '" 1')
# %% an exit with an enormous message => limit output | exit 1
import sys
sys.exit('x' * (10 << 20))
# %% one enormous file => error OSError
f = open('/tmp/x', 'wb')
while True: f.write(bytes(1 << 20))
# %% many small files => error OSError
i = 0
while True:
    open(f'/tmp/{i}', 'w').write('x')
    i += 1
# %% many directories => error OSError
import os
i = 0
while True:
    os.mkdir(f'/tmp/{i}')
    i += 1
# %% many links => error OSError
import os
i = 0
while True:
    os.symlink('x' * 1000, f'/tmp/{i}')
    i += 1
# %% a file with a hole of an exabyte => error OSError | error OverflowError
f = open('/tmp/x', 'wb')
f.seek(1 << 60)
f.write(b'x')
f.flush()
# %% a file truncated to an exabyte => error OSError | error OverflowError
f = open('/tmp/x', 'wb')
f.truncate(1 << 60)
# %% many files with holes => error OSError
i = 0
while True:
    with open(f'/tmp/{i}', 'wb') as f: f.truncate(1 << 20)
    i += 1
# %% space of deleted files comes back => value 50
import os
for _ in range(50):
    with open('/tmp/x', 'wb') as f: f.write(bytes(3 << 20))
    os.unlink('/tmp/x')
50
# %% space of deleted but open files counts => error OSError
import os
held = []
while True:
    f = open('/tmp/x', 'wb', buffering=0)
    f.write(bytes(1 << 18))
    held.append(f)
    os.unlink('/tmp/x')
# %% directories within directories => error OSError
import os
os.chdir('/tmp')
while True:
    os.mkdir('d' * 200)
    os.chdir('d' * 200)
# %% a path of enormous length => error OSError
open('/tmp/' + 'x/' * 1_000_000)
# %% a name of enormous length => error OSError
open('/tmp/' + 'x' * 100_000, 'w')
# %% links to themselves => error OSError
import os
os.symlink('/tmp/b', '/tmp/a')
os.symlink('/tmp/a', '/tmp/b')
open('/tmp/a')
# %% links that double in length => error OSError
import os
os.symlink('.', '/tmp/a')
open('/tmp/' + 'a/' * 200 + 'x')
# %% many open files => error OSError
held = []
while True: held.append(open('/dev/null'))
# %% many pipes => error OSError
import os
while True: os.pipe()
# %% many duplicates => error OSError
import os
while True: os.dup(1)
# %% a duplicate at an enormous number => error OSError
import os
os.dup2(1, 2**31 - 1)
# %% pipes filled with all that they take => error BlockingIOError | error OSError | error MemoryError | limit time, time=2
import os
while True:
    r, w = os.pipe()
    os.set_blocking(w, False)
    try:
        while True: os.write(w, bytes(1 << 16))
    except BlockingIOError: pass
# %% files open for ever, then closed => none
import os
for _ in range(10_000):
    os.close(os.open('/dev/null', os.O_RDONLY))
# %% an environment that grows => error MemoryError | error OSError | limit time, time=5, memory=64MB
import os
i = 0
while True:
    os.environ[f'x{i}'] = 'x' * 100_000
    i += 1
# %% temporary files without end => error OSError
import tempfile
held = []
while True: held.append(tempfile.NamedTemporaryFile())
# %% a database without end => error sqlite3.OperationalError
import sqlite3
db = sqlite3.connect('/tmp/x.db')
db.execute('create table t(x)')
while True: db.execute('insert into t values (randomblob(100000))')
# %% a log without end => limit output
import logging
while True: logging.warning('x' * 1000)
# %% a traceback without end => limit output
import traceback
def f(n):
    try: 1 / 0
    except ZeroDivisionError: traceback.print_exc()
    f(n) if n % 100 else None
    f(n + 1)
try: f(0)
except RecursionError: pass
while True: traceback.print_stack()
# %% interned strings without end => error MemoryError, memory=64MB, spoiled
import sys
i, held = 0, []
while True:
    held.append(sys.intern(f'name{i}' * 100))
    i += 1
# %% types without end => error MemoryError, memory=64MB, spoiled
held = []
while True: held.append(type('x', (), {}))
# %% modules without end => error MemoryError | error RuntimeError, memory=64MB, spoiled
import sys, types
i = 0
while True:
    sys.modules[f'm{i}'] = types.ModuleType(f'm{i}' * 1000)
    i += 1
# %% callbacks of ctypes without end => error MemoryError | error OSError | error RuntimeError | crash, memory=64MB, spoiled
import ctypes
kind = ctypes.CFUNCTYPE(None)
held = []
while True: held.append(kind(lambda: None))

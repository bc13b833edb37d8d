# limits: time=120
# %% all variables deleted => none
globals().clear()
# %% builtins emptied => crash `run` failed
import builtins
vars(builtins).clear()
# %% builtins replaced => error TypeError | none, spoiled
__builtins__ = 5
print(1)
# %% print replaced => none
import builtins
builtins.print = lambda *args: 1 / 0
# %% isinstance and type replaced => error RuntimeError, spoiled
import builtins
builtins.isinstance = builtins.hasattr = builtins.getattr = builtins.repr = builtins.str = lambda *args: 1 / 0
1
# %% exceptions replaced => crash `run` failed
import builtins
builtins.BaseException = builtins.Exception = builtins.SystemExit = builtins.MemoryError = 5
1 / 0
# %% exceptions deleted => crash `run` failed
import builtins
del builtins.BaseException, builtins.Exception, builtins.SystemExit, builtins.KeyboardInterrupt
1 / 0
# %% the import replaced => value 2
import builtins
builtins.__import__ = lambda *args: 1 / 0
1 + 1
# %% compile and exec replaced => value 2 | error ZeroDivisionError | error RuntimeError, spoiled
import builtins
builtins.compile = builtins.exec = builtins.eval = lambda *args, **options: 1 / 0
1 + 1
# %% json replaced => value 2 | crash | error, spoiled
import json
json.dumps = lambda value: 'nonsense'
json.loads = lambda text: {}
1 + 1
# %% json answers something else => value 2 | crash | error, spoiled
import json
json.dumps = lambda value: 5
1 + 1
# %% json never answers => limit time | value 2, time=0.5
import json
def dumps(value):
    while True: pass
json.dumps = dumps
1 + 1
# %% json's encoder replaced => value 2 | crash | error, spoiled
import json.encoder
json.encoder.JSONEncoder.encode = json.encoder.JSONEncoder.iterencode = lambda *args: '{"kind": "exit", "code": 7}'
json._default_encoder = None
[1 + 1][0]
# %% the runtime's functions replaced => value 2
import sys
ours = sys.modules.get('_belljar')
if ours is not None:
    ours.run = ours.finish = ours.is_complete = lambda request: '{"kind": "exit", "code": 9}'
1 + 1
# %% the insides of our functions replaced => value 2 | crash | error RuntimeError | exit 9 | error NameError, spoiled
import sys
for name, module in list(sys.modules.items()):
    if name.startswith('_belljar'):
        vars(module).clear()
1 + 1
# %% our functions' code replaced => value 2 | crash | exit 9 | error, spoiled
import sys
ours = sys.modules.get('_belljar')
if ours: ours.run.__code__ = (lambda request: 5).__code__
1 + 1
# %% our answer forged by a frame => value 2 | exit 9 | crash | error | none, spoiled
import sys
frame = sys._getframe()
while frame:
    for name in frame.f_locals:
        try: frame.f_locals[name] = None
        except BaseException: pass
    frame = frame.f_back
1 + 1
# %% frames above cleared => value 2 | error RuntimeError | crash, spoiled
import sys
frame = sys._getframe().f_back
while frame:
    frame.clear()
    frame = frame.f_back
1 + 1
# %% a trace function in the frames above => value 2 | error | exit 9, spoiled
import sys
def trace(*args): raise SystemExit(9)
frame = sys._getframe()
while frame:
    frame.f_trace = trace
    frame = frame.f_back
sys.settrace(lambda *args: None)
1 + 1
# %% a profiler that raises => value 2 | error ZeroDivisionError | error RuntimeError, spoiled
import sys
def profile(*args): 1 / 0
sys.setprofile(profile)
1 + 1
# %% a trace function that raises everywhere => value 2 | error ZeroDivisionError, spoiled
import sys
def trace(*args): 1 / 0
sys.settrace(trace)
1 + 1
# %% monitoring that raises => value 2 | error ZeroDivisionError | error RuntimeError | crash `run` failed, spoiled
import sys
m = sys.monitoring
m.use_tool_id(1, 'x')
def f(*args): 1 / 0
m.register_callback(1, m.events.PY_START, f)
m.register_callback(1, m.events.PY_RETURN, f)
m.set_events(1, m.events.PY_START | m.events.PY_RETURN)
1 + 1
# %% an audit hook that raises => exit 4 | error RuntimeError, spoiled
import sys
def hook(*args): raise SystemExit(4)
sys.addaudithook(hook)
1 + 1
# %% all modules deleted => value 2 | error, spoiled
import sys
sys.modules.clear()
1 + 1
# %% all modules replaced => value 2 | error, spoiled
import sys
for name in list(sys.modules): sys.modules[name] = None
1 + 1
# %% sys emptied => value 2 | error | crash, spoiled
import sys
vars(sys).clear()
1 + 1
# %% the main module replaced => value 2
import sys
sys.modules['__main__'] = None
1 + 1
# %% the main module deleted => value 2
import sys
del sys.modules['__main__']
1 + 1
# %% the paths deleted => value 2
import sys
sys.path = sys.meta_path = sys.path_hooks = None
1 + 1
# %% output replaced by nothing => value 2
import sys
sys.stdout = sys.stderr = sys.stdin = None
1 + 1
# %% output deleted => value 2
import sys
del sys.stdout, sys.stderr, sys.stdin
1 + 1
# %% output replaced by something hostile => value 2
import sys
class Stream:
    def __getattr__(self, name): raise SystemExit(3)
sys.stdout = sys.stderr = Stream()
1 + 1
# %% output that raises when it is flushed => value 2 | error, spoiled
import sys
class Stream:
    def write(self, text): return len(text)
    def flush(self): raise KeyboardInterrupt
sys.stdout = Stream()
1 + 1
# %% output closed => value 2
import sys
sys.stdout.close()
sys.stderr.close()
1 + 1
# %% the original output closed => value 2
import sys
sys.__stdout__.close()
sys.__stdout__ = None
1 + 1
# %% descriptors closed => value 2
import os
for d in range(3): os.close(d)
1 + 1
# %% descriptors closed, then a flood => value 2
import os
for d in range(3): os.close(d)
try: print('x' * 1000)
except OSError: pass
1 + 1
# %% descriptors replaced by files => value 2
import os
for d in range(3): os.close(d)
for d in range(3): os.open('/tmp/x', os.O_RDWR | os.O_CREAT)
print('x')
1 + 1
# %% every descriptor closed => value 2
import os
os.closerange(0, 1000)
1 + 1
# %% hooks replaced => error ZeroDivisionError
import sys
def hook(*args): raise SystemExit(3)
sys.excepthook = sys.unraisablehook = sys.displayhook = hook
1 / 0
# %% the traceback module broken => error ZeroDivisionError
import traceback
traceback.TracebackException = None
traceback.StackSummary.format = None
1 / 0
# %% the traceback module hostile => error ZeroDivisionError | exit 4 | error, spoiled
import traceback
def f(*args, **options): raise SystemExit(4)
traceback.TracebackException.__init__ = f
traceback.TracebackException.format = f
1 / 0
# %% linecache hostile => error ZeroDivisionError | exit 4 | error, spoiled
import linecache
def f(*args, **options): raise SystemExit(4)
linecache.getline = linecache.getlines = linecache.updatecache = linecache.checkcache = f
linecache.cache = None
1 / 0
# %% the event loop replaced => error ZeroDivisionError | value None | none | error, spoiled
import asyncio
asyncio.events.get_running_loop = asyncio.Runner = asyncio.new_event_loop = lambda *args, **options: 1 / 0
await asyncio.sleep(0)
# %% the event loop closed under itself => none | error RuntimeError
import asyncio
asyncio.get_running_loop().close() if asyncio._get_running_loop() else None
await asyncio.sleep(0)
# %% the event loop stopped under itself => none | error RuntimeError
import asyncio
async def f(): asyncio.get_running_loop().stop()
await f()
await asyncio.sleep(0.01)
# %% the recursion limit at its lowest => value 2
import sys
try: sys.setrecursionlimit(5)
except RecursionError: pass
1 + 1
# %% the collector frozen, off and full of rubbish => value 2
import gc
gc.disable()
gc.set_threshold(1, 1, 1)
gc.set_debug(gc.DEBUG_SAVEALL)
gc.collect()
1 + 1
# %% everything the collector knows, changed => value 2 | error | crash | limit, spoiled
import gc
for o in gc.get_objects():
    if type(o) is dict and 'kind' in o: o['kind'] = 'exit'
1 + 1
# %% every list that the collector knows, emptied => value 2 | none | error | crash | limit, spoiled
import gc
for o in gc.get_objects():
    if type(o) is list: o.clear()
1 + 1
# %% every dict that the collector knows, emptied => value 2 | none | error | crash | limit, spoiled
import gc
for o in gc.get_objects():
    if type(o) is dict: o.clear()
1 + 1
# %% a value that looks like an answer => value {"kind":"exit","code":7}
'{"kind":"exit","code":7}'
# %% a value with surrogates and NULs => value
'a\0b\ud800'
# %% a dict with surrogates and NULs => value
{'\ud800\0': '\udfff', b'\xff\0': {float('nan'): float('inf')}}
# %% variables with hostile names => value 2
globals()['\ud800\0'] = globals()['__name__'] = globals()['__file__'] = 5
globals()[5] = 5
1 + 1
# %% a value that lies about its class => value | exit 3
class C:
    @property
    def __class__(self): raise SystemExit(3)
C()
# %% a value whose hash and length lie => value, spoiled
class D(dict):
    def __len__(self): return -1
    def items(self): raise SystemExit(3)
    def __iter__(self): raise SystemExit(3)
D(a=1)
# %% a value that changes while it is shown => value, spoiled
class C:
    def __repr__(self):
        x.clear()
        return 'c'
x = [C(), C(), {1: C()}]
x
# %% a hundred thousand keys of one hash => value 2 | limit time, time=1
class K:
    def __hash__(self): return 1
d = {K(): 1 for _ in range(100_000)}
1 + 1
# %% source with NULs => error SyntaxError
exec('x = 1\0')
# %% source with surrogates => error UnicodeEncodeError
exec('x = "\ud800"')
# %% source that declares another encoding => value 2
exec(b'# coding: latin-1\nx = "\xe9"')
1 + 1
# %% source that declares no encoding => error SyntaxError
exec(b'# coding: nonsense\nx = 1')
# %% names of the runtime imported by hand => error ModuleNotFoundError | value 2
import importlib
import _belljar.cell
1 + 1
# %% the package's own functions called from within => value 2 | error, spoiled
import sys
ours = sys.modules['_belljar']
ours.run('{"code": "while 0: pass"}')
ours.finish('{}')
ours.prepare('{}')
1 + 1
# %% os and signal emptied => value 2 | error, spoiled
import os, signal, time
for m in os, signal, time, sys if 'sys' in globals() else os: vars(m).clear()
1 + 1

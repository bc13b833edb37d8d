# limits: time=120 memory=512MB
# %% reading where nothing is => crash the program crashed: wasm trap: out of bounds memory access
import ctypes
ctypes.string_at(0xfffffff0, 100)
# %% reading from null => none | value
import ctypes
ctypes.string_at(0, 0)
None
# %% writing where nothing is => crash the program crashed: wasm trap: out of bounds memory access
import ctypes
ctypes.memset(0xf0000000, 1, 100)
# %% writing over everything => crash, spoiled
import ctypes
ctypes.memset(0, 0xff, 30 << 20)
# %% writing zeros over everything => crash, spoiled
import ctypes
ctypes.memset(0, 0, 30 << 20)
# %% copying over everything => crash, spoiled
import ctypes
ctypes.memmove(1 << 20, 0, 20 << 20)
# %% a length that wraps around => crash, spoiled
import ctypes
ctypes.memmove(100, 200, 0xffffffff)
# %% calling a number => error SystemError
import ctypes
ctypes.CFUNCTYPE(ctypes.c_int)(0x7fffffff)()
# %% calling null => error SystemError
import ctypes
ctypes.CFUNCTYPE(ctypes.c_int)(0)()
# %% calling what takes other arguments => error SystemError
import ctypes
ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)(1)(1.0, 2)
# %% calling every function there is => crash | exit, spoiled
import ctypes
for i in range(1, 20_000):
    try: ctypes.CFUNCTYPE(ctypes.c_int)(i)()
    except SystemError: pass
# %% calling a function of C with too few arguments => error TypeError
import ctypes
ctypes.pythonapi.PyObject_CallOneArg()
# %% calling a function of C with no object => crash | error, spoiled
import ctypes
ctypes.pythonapi.PyObject_Repr(ctypes.c_void_p(12345))
raise SystemError
# %% an object's head overwritten => crash | limit | error | none | value, spoiled
import ctypes
x = [1, 2, 3]
ctypes.memset(id(x), 0xff, 16)
x.append(1)
# %% an object's type replaced => crash | limit | error | none | value, spoiled
import ctypes
x = 'abc' * 10
ctypes.c_uint32.from_address(id(x) + 4).value = 12
x.upper()
# %% a reference let go of too often => crash | limit | error | none | value, spoiled
import ctypes
x = object()
for _ in range(10): ctypes.pythonapi.Py_DecRef(ctypes.py_object(x))
# %% None let go of => crash | limit | error | none | value, spoiled
import ctypes
for _ in range(10**6): ctypes.pythonapi.Py_DecRef(ctypes.py_object(None))
# %% the interpreter finalised under itself => crash | limit | error | none | value, spoiled
import ctypes
ctypes.pythonapi.Py_FinalizeEx()
# %% memory freed twice => crash | limit | error | none | value, spoiled
import ctypes
ctypes.pythonapi.free.restype = None
p = ctypes.pythonapi.malloc(100)
for _ in range(3): ctypes.pythonapi.free(p)
[bytearray(100) for _ in range(1000)]
None
# %% memory freed that never was allocated => crash | limit | error | none | value, spoiled
import ctypes
ctypes.pythonapi.free(12345)
ctypes.pythonapi.free(0x7ffffff0)
# %% a long jump to nowhere => crash | error, spoiled
import ctypes
ctypes.pythonapi.longjmp(0, 1)
raise AttributeError
# %% a system call of one's own => crash | error, spoiled
import ctypes
ctypes.pythonapi.open(-1, -1, -1)
raise AttributeError
# %% a fatal error => crash, spoiled
import ctypes
ctypes.pythonapi.Py_FatalError(b'so long')
# %% invalid bytecode => crash | limit | error | none | value, spoiled
f = lambda: 1
f.__code__ = f.__code__.replace(co_code=bytes(range(256)) * 4)
f()
# %% bytecode that runs off its end => crash | limit | error | none | value, spoiled
f = lambda: 1
f.__code__ = f.__code__.replace(co_code=b'', co_stacksize=0)
f()
# %% bytecode that pops what is not there => crash | limit | error | none | value, spoiled
import dis
f = lambda: 1
f.__code__ = f.__code__.replace(co_code=bytes([dis.opmap['POP_TOP'], 0]) * 1000)
f()
# %% bytecode that loads what is not there => crash | limit | error | none | value, spoiled
import dis
f = lambda: 1
f.__code__ = f.__code__.replace(co_code=bytes([dis.opmap['LOAD_CONST'], 255, dis.opmap['RETURN_VALUE'], 0]) * 10)
f()
# %% marshal of garbage => error ValueError | error EOFError | error TypeError | crash, spoiled
import marshal, random
random.seed(1)
for _ in range(20_000):
    try: marshal.loads(random.randbytes(50))
    except (ValueError, EOFError, TypeError, MemoryError, SystemError, UnicodeDecodeError, OverflowError): pass
raise ValueError
# %% a code object from damaged marshal => crash | limit | error | none | value, spoiled
import marshal, random
random.seed(2)
good = marshal.dumps(compile('def f(x):\n  return [x + i for i in range(3)]\nf(1)', '', 'exec'))
for _ in range(3000):
    bad = bytearray(good)
    for _ in range(3): bad[random.randrange(len(bad))] = random.randrange(256)
    try: exec(marshal.loads(bad))
    except BaseException: pass
# %% a structure larger than its memory => crash | limit | error | none | value, spoiled
import ctypes
class S(ctypes.Structure): _fields_ = [('x', ctypes.c_char * 1_000_000)]
bytes(S.from_address(0xfff00000))
# %% a callback that outlives its function => crash | limit | error | none | value, spoiled
import ctypes
kind = ctypes.CFUNCTYPE(ctypes.c_int)
address = ctypes.cast(kind(lambda: 1), ctypes.c_void_p).value
kind(address)()
# %% a callback that raises => none
import ctypes
@ctypes.CFUNCTYPE(ctypes.c_int)
def f(): raise ValueError
f();
# %% a callback that exits => exit 3 | none
import ctypes, sys
@ctypes.CFUNCTYPE(ctypes.c_int)
def f(): sys.exit(3)
f();
# %% a callback that is stopped => limit time, time=0.5
import ctypes
@ctypes.CFUNCTYPE(ctypes.c_int)
def f():
    while True: pass
f()
# %% a comparison by callback that wants no end => limit time, time=0.5
import ctypes
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
@kind
def compare(a, b):
    while True: pass
array = (ctypes.c_int * 10)()
ctypes.pythonapi.qsort(array, 10, 4, compare)
# %% a structure by value that is enormous => crash | limit | error | none | value, spoiled
import ctypes
class S(ctypes.Structure): _fields_ = [('x', ctypes.c_char * 10_000_000)]
@ctypes.CFUNCTYPE(S, S)
def f(s): return s
f(S())
None
# %% a function with a thousand arguments => value 1
import ctypes
f = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * 1000)(lambda *args: 1)
f(*range(1000))

# limits: time=100
# %% a function that calls itself => error RecursionError
def r(n): return r(n + 1)
r(0)
# %% a function that calls itself, with the highest recursion limit => error RecursionError
import sys
sys.setrecursionlimit(10**6)
def r(n): return r(n + 1)
r(0)
# %% a recursion limit that no int of C holds => none
import sys
sys.setrecursionlimit(10**30)
# %% a repr that asks for itself => error RecursionError
class A:
    def __repr__(self): return repr(self) + ''
repr(A())
# %% an attribute that asks for another => error RecursionError
class B:
    def __getattr__(self, name): return getattr(self, name + 'x')
B().a
# %% repr of a deep list => error RecursionError
x = []
for _ in range(200_000): x = [x]
repr(x)
# %% a deep list let go of => none
x = []
for _ in range(2_000_000): x = [x]
del x
# %% a deep tuple let go of => none
x = ()
for _ in range(2_000_000): x = (x,)
del x
# %% a deep dict let go of => none
x = {}
for _ in range(500_000): x = {1: x}
del x
# %% a deep chain of objects let go of => none
class Node:
    __slots__ = 'next',
x = None
for _ in range(1_000_000):
    node = Node()
    node.next = x
    x = node
del x, node
# %% a deep chain of instances with destructors let go of => none
class Node:
    def __init__(self, next): self.next = next
    def __del__(self): pass
x = None
for _ in range(100_000): x = Node(x)
del x
# %% a deep chain of closures let go of => none
def wrap(f): return lambda: f
x = None
for _ in range(500_000): x = wrap(x)
del x
# %% a deep chain of generators let go of => none
def wrap(g):
    yield
    yield from g
x = iter(())
for _ in range(100_000):
    x = wrap(x)
    next(x)
del x
# %% a deep chain of map objects, advanced => limit stack
x = iter([1])
for _ in range(200_000): x = map(int, x)
next(x)
# %% a deep chain of itertools, let go of => none
import itertools
x = iter([1])
for _ in range(200_000): x = itertools.chain(x)
del x
# %% a deep chain of exceptions => error ValueError
e = None
for _ in range(100_000):
    new = ValueError()
    new.__cause__ = e
    e = new
raise e
# %% a deep group of exceptions => error ExceptionGroup
e = ValueError()
for _ in range(20_000): e = ExceptionGroup('deep', [e])
raise e
# %% json of a deep list => error RecursionError
import json
x = []
for _ in range(200_000): x = [x]
json.dumps(x)
# %% a deep list from json => error RecursionError
import json
json.loads('[' * 1_000_000)
# %% deep objects from json => error RecursionError
import json
json.loads('{"a":' * 1_000_000)
# %% a deep copy of a deep list => error RecursionError
import copy
x = []
for _ in range(100_000): x = [x]
copy.deepcopy(x)
# %% a pickle of a deep list => error RecursionError
import pickle
x = []
for _ in range(100_000): x = [x]
pickle.dumps(x)
# %% marshal of a deep list => error ValueError
import marshal
x = []
for _ in range(100_000): x = [x]
marshal.dumps(x)
# %% a deep list from marshal => error ValueError | error RecursionError
import marshal
marshal.loads(b'[\x01\0\0\0' * 1_000_000)
# %% many signs => error RecursionError | error MemoryError | error SyntaxError
eval('-' * 100_000 + '1')
# %% many opening parentheses => error SyntaxError | error MemoryError
eval('(' * 100_000)
# %% many nested brackets => error SyntaxError | error MemoryError | error RecursionError
eval('[' * 10_000 + ']' * 10_000)
# %% many attributes => error RecursionError | error MemoryError
compile('a' + '.b' * 100_000, '', 'eval')
# %% many operators => error RecursionError | error MemoryError
compile('+'.join('a' * 100_000), '', 'eval')
# %% many nested blocks => error IndentationError
exec(''.join(' ' * i + 'if 1:\n' for i in range(5000)))
# %% many elifs => error RecursionError | error MemoryError | error SyntaxError
exec('if 0: pass\n' + 'elif 0: pass\n' * 100_000)
# %% many nested lambdas => error RecursionError | error MemoryError | error SyntaxError
compile('lambda: ' * 50_000 + '1', '', 'eval')
# %% many nested f-strings => error SyntaxError | error MemoryError
s = '1'
for _ in range(170): s = "f'{" + s + "}'"
eval(s)
# %% many decorators => none
code = compile('@f\n' * 20_000 + 'def g(): pass', '', 'exec');
# %% a deep syntax tree compiled => error RecursionError
import ast
x = ast.Constant(1)
for _ in range(100_000): x = ast.UnaryOp(ast.USub(), x)
compile(ast.fix_missing_locations(ast.Expression(x)), '', 'eval')
# %% a deep syntax tree compiled as it is => error RecursionError
import ast
where = dict(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
x = ast.Constant(1, **where)
for _ in range(100_000): x = ast.UnaryOp(ast.USub(), x, **where)
compile(ast.Expression(x), '', 'eval')
# %% a syntax tree that contains itself => error RecursionError
import ast
where = dict(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
x = ast.UnaryOp(ast.USub(), None, **where)
x.operand = x
compile(ast.Expression(x), '', 'eval')
# %% a literal of ast.literal_eval => error MemoryError | error RecursionError | error SyntaxError
import ast
ast.literal_eval('(' * 10_000 + '1' + ',)' * 10_000)
# %% many groups in a pattern => error RecursionError
import re
re.compile('(' * 5000 + ')' * 5000)
# %% the hash of a deep tuple => error RecursionError | limit stack
a = 1
for _ in range(3_000_000): a = (a,)
hash(a)
# %% deep tuples compared => error RecursionError
a = b = 1
for _ in range(200_000): a, b = (a,), (b,)
a == b
# %% a deep partial called => value 1 | limit stack
import functools
f = lambda: 1
for _ in range(200_000):
    f = functools.partial(f)
    f.apart = True
f()
# %% a deep chain of bound methods => error MemoryError
import types
f = lambda *a: 1
for _ in range(100_000): f = types.MethodType(f, 1)
f()
# %% a generator of itself => error RecursionError
def g():
    yield from g()
list(g())
# %% a coroutine of itself => error RecursionError
async def c():
    await c()
await c()
# %% isinstance that asks isinstance => error RecursionError
class M(type):
    def __instancecheck__(c, x): return isinstance(x, M2)
class M2(metaclass=M): pass
isinstance(1, M2)
# %% isinstance with a deep tuple => error RecursionError | limit stack
t = int
for _ in range(3_000_000): t = (t,)
isinstance('', t)
# %% a deep union of types => none | error RecursionError
import typing
t = int
for i in range(20_000): t = list[t]
repr(t)
None
# %% a sort whose key sorts, with the highest recursion limit => error RecursionError
import sys
sys.setrecursionlimit(10**6)
def q(l): return max(l, key=lambda x: q(l))
q([1, 2])
# %% a class whose init makes another, with the highest recursion limit => error RecursionError
import sys
sys.setrecursionlimit(10**6)
class A:
    def __init__(self): A()
A()
# %% an eval that evals, with the highest recursion limit => error MemoryError
import sys
sys.setrecursionlimit(10**6)
s = 'eval(s)'
eval(s)
# %% recursion in a comparison that is called from C, with the highest recursion limit => error RecursionError
import sys
sys.setrecursionlimit(10**6)
class C:
    def __lt__(self, other): return sorted([C(), C()])
sorted([C(), C()])
# %% recursion through ctypes callbacks => error RecursionError | limit stack, spoiled
import ctypes
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
@kind
def f(n): return f(n + 1)
f(0)
raise RecursionError
# %% an import that imports itself again => error RecursionError
import sys, os
os.chdir('/tmp')
open('again.py', 'w').write('import sys; del sys.modules["again"]; import again')
import again
# %% a trace function that is traced => error RecursionError
import sys
def f(): f()
def trace(*args): return trace
sys.settrace(trace)
try:
    f()
finally:
    sys.settrace(None)
# %% an unpickled deep object => error RecursionError | error UnpicklingError
import pickle
pickle.loads(b'(' * 100_000 + b't' * 100_000 + b'.')
raise RecursionError
# %% deep xml => none | error ParseError | error RecursionError
import xml.etree.ElementTree as E
E.fromstring('<a>' * 200_000 + '</a>' * 200_000)
None
# %% a deep chain of weak references and properties => error RecursionError
class P:
    @property
    def p(self): return self.p
P().p
# %% an error whose message recurses => error RecursionError
class E(Exception):
    def __str__(self): return str(self)
str(E())
# %% recursion caught at the bottom, again and again => none
def f(n):
    try: f(n + 1)
    except RecursionError: return
for _ in range(50): f(0)
# %% recursion caught at every level => limit time, time=1
def f():
    try: f()
    except RecursionError: pass
    try: f()
    except RecursionError: pass
f()

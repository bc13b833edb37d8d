# limits: time=120
# %% os._exit => exit 3
import os
os._exit(3)
# %% os._exit with a large number => exit 44
import os
os._exit(300)
# %% os._exit with a negative number => exit 255
import os
os._exit(-1)
# %% os.abort => crash the program aborted
import os
os.abort()
# %% a signal that kills => crash | exit | error OSError, spoiled
import os, signal
os.kill(os.getpid(), 9)
# %% a signal that terminates => crash | exit | error OSError | none, spoiled
import os, signal
os.kill(os.getpid(), signal.SIGTERM)
# %% a signal that interrupts => error KeyboardInterrupt
import os, signal
os.kill(os.getpid(), signal.SIGINT)
for _ in range(1000): pass
# %% a raised signal => error KeyboardInterrupt
import signal
signal.raise_signal(signal.SIGINT)
# %% an abort signal => crash
import signal
signal.raise_signal(signal.SIGABRT)
# %% a signal that a handler takes => value 2
import signal
got = []
signal.signal(signal.SIGINT, lambda number, frame: got.append(number))
signal.raise_signal(signal.SIGINT)
got[0]
# %% an alarm => error AttributeError | none | limit time | exit | crash, time=0.5, spoiled
import signal, time
signal.alarm(1)
time.sleep(3)
# %% a fault on purpose => crash
import faulthandler
faulthandler._sigsegv()
# %% another fault on purpose => crash
import faulthandler
faulthandler._sigabrt()
# %% a stack overflow on purpose => crash | limit stack | error AttributeError | error RuntimeError, spoiled
import faulthandler
faulthandler._stack_overflow()
# %% a fault in another thread on purpose => error RuntimeError | error AttributeError
import faulthandler
faulthandler._read_null()
faulthandler._fatal_error_c_thread()
# %% an exit within a call => exit 5
import sys
(lambda: [sys.exit(5) for _ in 'x'])()
# %% an exit within a class body => exit 6
import sys
class C: sys.exit(6)
# %% an exit within a destructor => none
import sys
class C:
    def __del__(self): sys.exit(7)
C()
None
# %% an exit while the value is shown => exit 8 | value, spoiled
import sys
class C:
    def __repr__(self): sys.exit(8)
C()
# %% an exit while an error is shown => error E | exit 9
import sys
class E(Exception):
    def __str__(self): sys.exit(9)
raise E
# %% an exit within a task => exit 10
import asyncio, sys
async def f(): sys.exit(10)
await asyncio.gather(f(), asyncio.sleep(1))
# %% an exit with an exit => exit 1
raise SystemExit(SystemExit(3))
# %% an exit with text that cannot be encoded => exit 1
raise SystemExit('\ud800\0')
# %% an exit with a number beyond C's => exit 0 | exit 255
import sys
sys.exit(1 << 100)
# %% an exit with a bool => exit 1
import sys
sys.exit(True)
# %% an exit in a group => error BaseExceptionGroup
raise BaseExceptionGroup('x', [SystemExit(3)])
# %% an exit with a lying int => exit 3 | exit 1 | error, spoiled
class I(int):
    def __and__(self, other): 1 / 0
    def __int__(self): 1 / 0
    def __index__(self): 1 / 0
raise SystemExit(I(3))
# %% an exit while handling an error => exit 11
import sys
try: 1 / 0
except ZeroDivisionError: sys.exit(11)
# %% an exit within a comprehension of an import hook => exit 12
import sys
class F:
    def find_spec(*args): sys.exit(12)
sys.meta_path.insert(0, F())
import nothing_of_the_kind
# %% a base exception of one's own => error B
class B(BaseException): pass
raise B
# %% a generator's exit => error GeneratorExit
raise GeneratorExit
# %% a stop of iteration => error StopIteration
raise StopIteration(1)
# %% a cancelled error => error asyncio.exceptions.CancelledError
import asyncio
raise asyncio.CancelledError
# %% an assertion => error AssertionError
assert False
# %% an error whose text is not a string => error E
class E(Exception):
    def __str__(self): return 1
raise E
# %% an error whose text fails => error E
class E(Exception):
    def __str__(self): raise self
raise E
# %% an error whose class lies about its name => error \n\x1b[31mE
class E(Exception): pass
E.__qualname__ = E.__name__ = '\\n\\x1b[31mE'
raise E
# %% an error with a module that is not a string => error <unknown>.E
class E(Exception): pass
E.__module__ = 1
raise E
# %% an error with a traceback that goes round => error E | error TypeError | error ValueError
class E(Exception): pass
try: raise E
except E as e: error = e
error.__traceback__.tb_next = error.__traceback__
raise error
# %% an error that is its own cause => error E
class E(Exception): pass
e = E()
e.__cause__ = e
e.__context__ = e
raise e
# %% an error with invalid notes => error E
e = type('E', (Exception,), {})()
e.__notes__ = 5
raise e
# %% an error with notes that fail => error E
class N:
    def __str__(self): 1 / 0
    def __repr__(self): 1 / 0
e = type('E', (Exception,), {})()
e.__notes__ = [N()]
raise e
# %% a syntax error with absurd places => error SyntaxError
raise SyntaxError('x', ('main.py', -5, 10**9, 'abc', 10**9, -7))
# %% a syntax error with an invalid text => error SyntaxError
e = SyntaxError('x')
e.lineno, e.text, e.filename, e.offset = 'a', b'\xff', object(), None
raise e
# %% an error from a frame with an absurd line => error ZeroDivisionError
import ast
tree = ast.parse('1/0')
for node in ast.walk(tree):
    if hasattr(node, 'lineno'): node.lineno = node.end_lineno = 2**31 - 1
exec(compile(tree, 'main.py', 'exec'))
# %% an error from a file with an absurd name => error ZeroDivisionError
exec(compile('1/0', '\ud800\n\x1b[31m' * 1000, 'exec'))
# %% an error from a loader that lies => error ZeroDivisionError
class L:
    def get_source(self, name): raise SystemExit(5)
exec(compile('1/0', 'lies.py', 'exec'), {'__loader__': L(), '__name__': 'lies'})
# %% an attribute error that suggests by calling => error AttributeError
class C:
    def __dir__(self): raise SystemExit(4)
C().x
# %% a name error with hostile names around => error NameError
class S(str):
    def __eq__(self, other): raise SystemExit(4)
    __hash__ = str.__hash__
globals()[S('spamm')] = 1
spam
# %% a group with hostile members => error ExceptionGroup
class E(Exception):
    def __str__(self): raise MemoryError
    def __repr__(self): raise MemoryError
raise ExceptionGroup('x', [E(), ExceptionGroup('y', [E()])])
# %% input at its end => error EOFError
input()
# %% reading at its end => value ''
import sys
repr(sys.stdin.read())

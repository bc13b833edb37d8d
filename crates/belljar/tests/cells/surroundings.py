sorted(globals())
# %%
__name__, sorted(dir(__builtins__)) == sorted(dir(__import__('builtins')))
# %%
import __main__
vars(__main__) is globals()
# %%
import sys, os
sys.argv, os.getcwd() == os.path.abspath(''), any('belljar' in path for path in sys.path)
# %% Modules of the working directory can be imported
open('neighbour.py', 'w').write('value = 1')
import neighbour
neighbour.value
# %% A future statement holds for later cells
from __future__ import annotations
def f(x: Undefined): pass
f.__annotations__
# %%
def g(x: Undefined): pass
g.__annotations__
# %% Sources can be read
import inspect
def h():
    return 1
print(inspect.getsource(h))
# %%
import dataclasses, pickle, collections
@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5
pickle.loads(pickle.dumps(Point(1)))
# %% Classes, closures and comprehensions see the globals
n = 3
[n * i for i in range(n)], (lambda: n)()
# %% help, copyright and the like are there
help(len)
# %% Signatures of the functions that replace others can be read
import micropip
print([*inspect.signature(sys.unraisablehook).parameters], [*inspect.signature(micropip.uninstall).parameters])
# %% Damage to builtins or modules does not take the interpreter down
import builtins, json
json.dumps = None
json.loads = None
len = print
sys.modules['__main__'] = None
# %%
'still' + ' here'
# %%
builtins.isinstance = None

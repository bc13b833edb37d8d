def f(n): return 0 if n == 0 else 1 + f(n - 1)
f(900)
# %%
def r(n): return r(n + 1)
r(0)
# %% Larger limits are lowered
import sys
sys.setrecursionlimit(10**6)
sys.getrecursionlimit()
# %%
def r(n): return r(n + 1)
r(0)
# %% Mutual recursion is cut in the middle
def a(n): return b(n + 1)
def b(n): return a(n + 1)
try: a(0)
except RecursionError: print('caught')
# %% Tiny ones are raised
sys.setrecursionlimit(60)
sys.getrecursionlimit()
# %%
r(0)
# %%
sys.setrecursionlimit(0)
# %% Recursion in C
sys.setrecursionlimit(1000)
class A:
    def __repr__(self): return repr(self)
try: repr(A())
except RecursionError as e: print(type(e).__name__)
A()

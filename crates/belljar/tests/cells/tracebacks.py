def f():
    return 1/0
print('before')
f()
# %% Functions of earlier cells show their own lines
# (this cell is longer than
# the first one, and its
# lines are others)
f()
# %%
def f(:
    pass
# %%
if True:
print(1)
# %% Errors that the compiler finds after parsing
def g():
    return 1
return 5
# %%
yield 5
# %%
x = 'unfinished
# %%
class E(Exception): pass
raise E('x\ny')
# %%
import not_a_module
# %% Suggestions
import colections
# %%
prnt(1)
# %% Chains
try:
    1/0
except ZeroDivisionError as e:
    raise KeyError('k') from e
# %%
try:
    {}['a']
except KeyError:
    [][1]
# %% Chains through an await keep their context
import asyncio
try:
    await asyncio.sleep(0)
    {}['a']
except KeyError:
    [][1]
# %% Groups
raise ExceptionGroup('g', [ValueError('a'), ExceptionGroup('h', [TypeError('b')])])
# %% Notes
e = ValueError('v'); e.add_note('a note'); raise e
# %% Exceptions that cannot be shown
class Bad(Exception):
    def __str__(self): raise ValueError
raise Bad
# %%
class Worse(Exception):
    __cause__ = __context__ = __traceback__ = property(lambda self: 1/0)
raise Worse
# %%
raise ValueError('\ud800')
# %% Other files
exec(compile('1/0', 'other.py', 'exec'))
# %%
eval('1+')
# %%
"abc".encode('utf-8').decode('utf-16-be')
# %% Null bytes and odd text in code
eval('1\0')

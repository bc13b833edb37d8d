import sys
print('out')
print('err', file=sys.stderr)
print('out2')
# %% In order, and whole
print('no newline', end='')
print(' err', end='', file=sys.stderr)
sys.stdout.write(' text')
sys.stdout.buffer.write(b' bytes')
import os
os.write(1, b' descriptor');
# %% Standard input is at its end
input('name? ')
# %%
sys.stdin.read()
# %% A cell's changes to the streams end with it
sys.stdout = open('/tmp/elsewhere', 'w')
print('hidden')
# %%
print('shown', repr(open('/tmp/elsewhere').read()))
# %%
sys.stdout.close(); sys.stderr.close(); sys.stdin.close()
# %%
print('out again'); print('err again', file=sys.stderr)
sys.stdin.read()
# %%
del sys.stdout, sys.stderr
# %%
print('and again')
# %%
class Broken:
    def flush(self): raise KeyError
    closed = property(lambda self: 1 / 0)
sys.stdout = Broken()
# %%
print('fine')
# %%
sys.stdout.detach();
# %%
print('attached again')
# %%
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as held:
    print('held')
held.getvalue()
# %% Text that UTF-8 cannot encode
print('π ☃ 😀')
print('\ud800')
# %%
print('\ud800', file=sys.stderr)
# %% Warnings
import warnings
warnings.warn('careful')
def old(): warnings.warn('old', DeprecationWarning)
old()
# %% are shown again in a later cell
warnings.warn('careful')
# %%
'\d' is 'x'
# %% Logging
import logging
logging.warning('watch out')
# %% Destructors that fail
class D:
    def __del__(self): 1/0
D();

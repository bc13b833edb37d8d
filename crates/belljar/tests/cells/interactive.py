# mode: interactive
x = 5
x
x * 2
# %%
_
# %%
None
# %%
1 + 1;
# %%
for i in range(2):
    i
# %%
import asyncio
await asyncio.sleep(0, 'awaited')
# %%
def f():
    return 1/0
f()
# %%
x
1/0
x
# %%
import sys
sys.last_exc

class Unprintable:
    def __repr__(self): raise ValueError('no')
[1, Unprintable(), {'a': Unprintable()}]
# %% Structures that contain themselves
a = [1]; a.append(a); d = {'a': a}; d['d'] = d
[a, d]
# %% Deep ones
deep = []
for _ in range(100_000): deep = [deep]
str(len(repr.__name__)), deep is not None
# %%
deep;
# %% Endless ones
import itertools
len(str(itertools.count())) > 0
# %% A generator that fails halfway
(1 // (2 - i) for i in range(5))
# %% An int that Python itself refuses to write
10 ** 5000 % 10 ** 20, len(str(10 ** 4000))
# %%
[2 ** 1_000_000]
# %% Bytes that are not text
[b'abc', b'\xff', {b'\xff': 1}]
# %% A file is not read to its end by being the value
open('/tmp/file', 'w').write('x')
open('/tmp/file')
# %% Code of the value changes what is being shown
class Growing:
    def __repr__(self):
        items.append(1)
        return 'growing'
items = [Growing(), Growing()]
items
# %% Attributes that lie
class Liar:
    __class__ = property(lambda self: 1 / 0)
    def __getattr__(self, name): raise SystemError(name)
    def __repr__(self): return 'liar'
[Liar()]
# %% A subclass's own iteration is not asked
class Strange(list):
    def __iter__(self): raise RuntimeError
    def __len__(self): return -1
Strange([1, 2])

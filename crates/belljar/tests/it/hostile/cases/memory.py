# limits: time=100 memory=256MB
# %% one large object => error MemoryError
b'a' * (1 << 30)
# %% an object larger than the address space => error MemoryError | error OverflowError
bytearray(1 << 40)
# %% a list of millions => error MemoryError
[0] * (1 << 30)
# %% pieces until it is full => error MemoryError
pieces = []
while True: pieces.append(bytearray(1 << 20))
# %% a string that doubles => error MemoryError
s = 'x' * 1000
while True: s += s
# %% a dict that grows => error MemoryError
d, i = {}, 0
while True:
    d[i] = [i]
    i += 1
# %% memory given back is there again => value 100
for _ in range(100):
    piece = bytearray(100 << 20)
    del piece
100
# %% an error handled while memory is full => value done
pieces = []
try:
    while True: pieces.append(bytearray(1 << 16))
except MemoryError:
    pieces.clear()
'done'
# %% small objects until it is full, kept => error MemoryError, spoiled
pieces = []
while True: pieces.append(object())
# %% an integer of very many digits => error MemoryError | error OverflowError
1 << (1 << 33)
# %% a shift that just does not fit => error MemoryError
x = 1 << (1 << 32)
# %% a format of enormous width => error MemoryError | error ValueError | error OverflowError
f'{1:1000000000}'
# %% a product of enormous length => error MemoryError
import itertools
list(itertools.product(range(10**6), repeat=3))
# %% a set of combinations => error MemoryError
set(range(10**9))
# %% a bytearray that grows => error MemoryError
b = bytearray()
while True: b += b'x' * 100_000
# %% a bomb of zeros => error MemoryError
import zlib
z = zlib.compress(zlib.compress(b'\0' * (64 << 20)))
zlib.decompress(zlib.decompress(z) * 1 + b'')
b = b'\0' * (64 << 20)
pieces = [zlib.decompress(zlib.decompress(z)) for _ in range(100)]
# %% a bomb in xz => error MemoryError
import lzma
z = lzma.compress(b'\0' * (32 << 20), preset=0)
[lzma.decompress(z) for _ in range(20)]
# %% a bomb in zip => error MemoryError | error OSError
import io, zipfile
buffer = io.BytesIO()
with zipfile.ZipFile(buffer, 'w', zipfile.ZIP_DEFLATED) as z:
    for i in range(20): z.writestr(f'f{i}', b'\0' * (16 << 20))
with zipfile.ZipFile(buffer) as z:
    all = [z.read(name) for name in z.namelist()]
# %% entities that multiply => error xml.etree.ElementTree.ParseError
import xml.etree.ElementTree as E
text = '<!DOCTYPE x [<!ENTITY a0 "x">'
for i in range(30): text += f'<!ENTITY a{i+1} "&a{i};&a{i};&a{i};&a{i};">'
E.fromstring(text + ']><x>&a30;</x>')
# %% a regular expression of enormous size => error re.PatternError
import re
re.compile('(?:' * 25 + 'a' + '{1000}){1000}' * 25)
# %% sqlite asked for a large blob => error MemoryError | error DataError | error OperationalError
import sqlite3
sqlite3.connect(':memory:').execute('select randomblob(900000000)').fetchall()
# %% sqlite filled to the brim => error MemoryError | error OperationalError
import sqlite3
db = sqlite3.connect(':memory:')
db.execute('create table t(x)')
while True: db.execute('insert into t values (zeroblob(1000000))')
# %% a mapping of more than there is => error OSError | error MemoryError | error OverflowError
import mmap
mmap.mmap(-1, 1 << 30)
# %% mappings until it is full => error OSError | error MemoryError
import mmap
maps = []
while True: maps.append(mmap.mmap(-1, 1 << 20))
# %% a ctypes array of more than there is => error MemoryError | error OverflowError
import ctypes
(ctypes.c_char * (1 << 31 - 1))()
# %% a deque that grows => error MemoryError | error SystemError
import collections, itertools
collections.deque(itertools.count())
# %% a name that grows => error MemoryError
names = {}
while True: names['x' * 1_000_000 + str(len(names))] = 1
# %% a value of enormous size => value | error MemoryError
x = 'x' * (100 << 20)
[x, x, x, x]
# %% sums of strings => error MemoryError | error OverflowError
'%1000000000d' % 1
# %% the stack of a generator expression => error MemoryError
tuple(bytearray(100_000) for _ in iter(int, 1))
# %% a file read that does not fit => error MemoryError
open('/dev/zero', 'rb').read(1 << 30)
# %% random bytes that do not fit => error MemoryError | error OverflowError
import os
os.urandom(1 << 30)

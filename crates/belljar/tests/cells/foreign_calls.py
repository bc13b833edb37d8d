import ctypes
from ctypes import pythonapi
libc = ctypes.CDLL(None)
text = ctypes.create_string_buffer(100)
# %% Variadic functions of CPython, with and without declared types
pythonapi.PyBytes_FromFormat.restype = ctypes.py_object
pythonapi.PyBytes_FromFormat(b'nothing more'), pythonapi.PyBytes_FromFormat(b'%d', 5)
# %%
from_format = pythonapi.PyUnicode_FromFormat
from_format.argtypes, from_format.restype = [ctypes.c_char_p], ctypes.py_object
from_format(b'nothing more'), from_format(b'%s: %R', b'a', ctypes.py_object([1]))
# %%
pythonapi.PyTuple_Pack.restype = ctypes.py_object
pythonapi.PyTuple_Pack(3, ctypes.py_object('a'), ctypes.py_object('b'), ctypes.py_object(None))
# %% Variadic functions of C
values = 5, b'text', ctypes.c_double(2.5), ctypes.c_longlong(1 << 40), ctypes.c_short(-3), ctypes.c_float(0.5)
libc.snprintf(text, 100, b'%d %s %.2f %lld %d %g', *values), text.value
# %%
libc.sprintf(text, b'%%'), text.value
# %%
number, word = ctypes.c_int(), ctypes.create_string_buffer(10)
libc.sscanf(b'42 words', b'%d %9s', ctypes.byref(number), word), number.value, word.value
# %%
libc.printf(b'%s has %d\n', b'printf', 6)
libc.fflush(None)
# %% Calls that a function's type does not permit
libc.strlen()
# %%
pythonapi.PyLong_FromLong(1, 2)
# %%
libc.labs(ctypes.c_double(1))
# %%
libc.snprintf(text)
# %%
ctypes.CFUNCTYPE(ctypes.c_char_p)(0)()
# %%
try:
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)(1)(1)
except SystemError as error:
    print(type(error.__cause__))
libc.labs(-3), libc.strlen(b'four')

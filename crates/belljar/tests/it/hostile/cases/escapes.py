# limits: time=120
# %% the JavaScript around it => error ModuleNotFoundError
import js
# %% Pyodide's own module => error ModuleNotFoundError
import pyodide
# %% the bridge to JavaScript => error ModuleNotFoundError | error ImportError | crash, spoiled
import _pyodide_core
# %% Pyodide's other modules => error ModuleNotFoundError
import pyodide_js
# %% Pyodide's foreign functions called by hand => crash | error AttributeError | error TypeError, spoiled
import ctypes
ctypes.pythonapi.JsProxy_create(1)
# %% evaluating JavaScript by hand => crash | error AttributeError | error TypeError, spoiled
import ctypes
ctypes.pythonapi.emscripten_run_script(b'1')
# %% a fork => error OSError
import os
os.fork()
# %% a process => error OSError
import subprocess
subprocess.run(['/bin/sh', '-c', 'id'])
# %% a shell => error OSError
import os
os.system('/bin/id')
# %% another program in its place => error OSError
import os
os.execv('/bin/sh', ['sh'])
# %% a process by the lowest module => error OSError | error ModuleNotFoundError | error AttributeError
import posix
posix.posix_spawn('/bin/sh', ['sh'], {})
# %% a socket => error OSError
import socket
socket.socket().connect(('127.0.0.1', 80))
# %% a socket by the lowest module => error OSError | error ModuleNotFoundError
import _socket
_socket.socket(2, 1, 0)
# %% a pair of sockets => error OSError
import socket
socket.socketpair()
# %% a request => error urllib.error.URLError
import urllib.request
urllib.request.urlopen('http://example.com')
# %% a name looked up => error socket.gaierror
import socket
socket.getaddrinfo('example.com', 80)
# %% a name looked up the old way => error socket.gaierror
import socket
socket.gethostbyname('localhost')
# %% accounts of the machine => error FileNotFoundError
open('/etc/passwd')
# %% accounts of the machine by module => error KeyError | error ModuleNotFoundError | error AttributeError
import pwd
pwd.getpwuid(4242)
# %% what the kernel shows => error FileNotFoundError
open('/proc/self/environ')
# %% devices of the machine => value []
import os
sorted(set(os.listdir('/dev')) - {'fd', 'full', 'null', 'pts', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'tty', 'urandom', 'zero'})
# %% a disk of the machine => error FileNotFoundError
open('/dev/sda')
# %% up out of the root => value true
import os
os.listdir('/') == os.listdir('/../../../../..')
# %% the root holds nothing of the machine => value []
import os
sorted(set(os.listdir('/')) - {'dev', 'home', 'lib', 'mnt', 'tmp'})
# %% the environment holds nothing of the machine => value []
import os
sorted(set(os.environ) - {'HOME', 'LANG', 'MPLBACKEND', 'PATH', 'TZ', 'USER'})
# %% the environment as C sees it => value None | none
import ctypes
ctypes.pythonapi.getenv.restype = ctypes.c_char_p
ctypes.pythonapi.getenv(b'CARGO_MANIFEST_DIR')
# %% the standard library overwritten, in a copy that only this interpreter sees => error OSError
import sys
with open(next(p for p in sys.path if p.endswith('.zip')), 'r+b') as f: f.write(b'PK' * (20 << 20))
# %% the standard library deleted, for this interpreter alone => error FileNotFoundError
import os, sys
os.unlink(next(p for p in sys.path if p.endswith('.zip')))
import wave
# %% another root => error OSError | error AttributeError | error PermissionError | none
import os
os.chroot('/tmp')
# %% another user => error OSError | error PermissionError | error AttributeError | none
import os
os.setuid(4242)
# %% another process's death => error OSError | error ProcessLookupError | error PermissionError | none
import os
os.kill(1, 9)
None
# %% limits lifted => error OSError | error ValueError | error ModuleNotFoundError | none | value
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (10**6, 10**6))
None
# %% a library that the code wrote => error OSError
import ctypes
open('/tmp/x.so', 'wb').write(b'\0asm\1\0\0\0')
ctypes.CDLL('/tmp/x.so')
# %% a whole library that the code wrote => error OSError
import ctypes
dylink = bytes([0, 15]) + b'\x08dylink.0' + bytes([1, 4, 0, 0, 0, 0])
open('/tmp/x.so', 'wb').write(b'\0asm\1\0\0\0' + dylink)
ctypes.CDLL('/tmp/x.so')
# %% an extension that the code wrote => error ImportError
import importlib.machinery, sys
suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
dylink = bytes([0, 15]) + b'\x08dylink.0' + bytes([1, 4, 0, 0, 0, 0])
open('/tmp/evil' + suffix, 'wb').write(b'\0asm\1\0\0\0' + dylink)
sys.path.insert(0, '/tmp')
import evil
# %% a library found by a link => error OSError
import ctypes, os
open('/tmp/x.so', 'wb').write(b'\0asm\1\0\0\0')
os.symlink('/tmp/x.so', '/tmp/y.so')
ctypes.CDLL('/tmp/y.so')
# %% a library where packages are => error OSError | error PermissionError
import ctypes, sys
where = next(p for p in sys.path if p.endswith('site-packages')) + '/x.so'
open(where, 'wb').write(b'\0asm\1\0\0\0')
ctypes.CDLL(where)
# %% a library with a name of enormous length => error OSError
import ctypes
ctypes.CDLL('x' * 10_000_000)
# %% dlopen by hand with a wild pointer => crash | error | none | value, spoiled
import ctypes
ctypes.pythonapi.dlopen(0xfffffff0, 2)
# %% a debugger attached => error OSError | error RuntimeError | error NotImplementedError | error FileNotFoundError
import sys
sys.remote_exec(1, '/tmp/x.py')
# %% a browser opened => value false
import webbrowser
webbrowser.open('http://example.com')
# %% a terminal => error OSError
import os
os.get_terminal_size()
# %% a pseudo-terminal => error OSError | error AttributeError
import os
os.openpty()
# %% shared memory => error OSError | error ImportError | error ModuleNotFoundError
from multiprocessing import shared_memory
shared_memory.SharedMemory(create=True, size=100)
# %% a named semaphore => error ModuleNotFoundError
import _multiprocessing
_multiprocessing.SemLock
# %% a memory file => error OSError | error AttributeError
import os
os.memfd_create('x')
# %% another interpreter => error ImportError | error ModuleNotFoundError | error RuntimeError | error InterpreterError | value 2 | none, spoiled
import _interpreters
i = _interpreters.create()
_interpreters.exec(i, 'x = 1 + 1')
None
# %% the clock set => error OSError | error PermissionError | error AttributeError
import time
time.clock_settime(time.CLOCK_REALTIME, 0)

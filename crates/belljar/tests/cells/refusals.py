import subprocess
try: subprocess.run(['git', 'status'])
except OSError as e: print(e)
# %%
import os
for name in ('system', 'popen', 'fork', 'execv', 'posix_spawn'):
    if hasattr(os, name):
        try: getattr(os, name)('git')
        except OSError as e: print(name, e.errno == __import__('errno').ENOTSUP)
# %%
import socket
try: socket.socket()
except OSError as e: print(e)
# %%
import urllib.request
try: urllib.request.urlopen('http://example.com')
except OSError as e: print(e)
# %%
import js
# %%
import pyodide
# %%
import _pyodide
# %% Patched modules look like others
import multiprocessing.pool
multiprocessing.pool.__spec__.loader is multiprocessing.context.__spec__.loader, multiprocessing.pool.__loader__ is multiprocessing.pool.__spec__.loader
# %% Locks and events work without other threads
import threading
with threading.Lock(): print('locked')
threading.current_thread().name
# %% Modules that Python in WebAssembly lacks
import curses
# %%
import shelve
# %%
input('name: ')

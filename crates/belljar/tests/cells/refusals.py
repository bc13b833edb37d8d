import threading
threading.Thread(target=print).start()
# %%
import _thread
_thread.start_new_thread(print, ())
# %%
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool:
    try: pool.submit(print)
    except RuntimeError as e: print(e)
# %%
import subprocess
try: subprocess.run(['ls'])
except OSError as e: print(e)
# %%
import multiprocessing
try: multiprocessing.Process(target=print).start()
except OSError as e: print(e)
# %%
try: multiprocessing.Pool(2)
except OSError as e: print(e)
# %%
from concurrent.futures import ProcessPoolExecutor
try: ProcessPoolExecutor()
except OSError as e: print(e)
# %%
import os
for name in ('system', 'popen', 'fork', 'execv', 'posix_spawn'):
    if hasattr(os, name):
        try: getattr(os, name)('ls')
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
multiprocessing.process.__spec__.loader is multiprocessing.context.__spec__.loader, multiprocessing.process.__loader__ is multiprocessing.process.__spec__.loader
# %% Locks and events work without other threads
with threading.Lock(): print('locked')
threading.current_thread().name

"""Modules and functions of the standard library that Python in WebAssembly lacks, with what to do instead."""

_NO_TERMINAL = "there is no terminal here: print text instead"
_NO_DISPLAY = "there is no display here: draw with matplotlib or Pillow, and save or show the image"
_NO_USERS = "there are no users and groups here"
_NO_PIP = "packages are installed by `%pip install` or by importing them"
_WINDOWS = "it exists on Windows only"
_REMOVED = "it was removed from Python; look for its replacement in the documentation of this version"

_ADVICE = {
    "_curses": _NO_TERMINAL,
    "_posixshmem": "there is one process, whose objects need no shared memory: pass them on",
    "_tkinter": _NO_DISPLAY,
    "asynchat": "it was removed from Python 3.12: use asyncio",
    "asyncore": "it was removed from Python 3.12: use asyncio",
    "cgi": _REMOVED,
    "crypt": "it was removed from Python 3.13: use hashlib.pbkdf2_hmac",
    "curses": _NO_TERMINAL,
    "dbm": "use sqlite3, or write a dictionary with json or pickle",
    "distutils": "it was removed from Python 3.12; setuptools provides it",
    "ensurepip": _NO_PIP,
    "grp": _NO_USERS,
    "idlelib": _NO_DISPLAY,
    "imghdr": _REMOVED,
    "imp": "it was removed from Python 3.12: use importlib",
    "lib2to3": _REMOVED,
    "msvcrt": _WINDOWS,
    "nis": _NO_USERS,
    "pipes": "it was removed from Python 3.13: use shlex and subprocess",
    "pwd": _NO_USERS,
    "readline": _NO_TERMINAL,
    "resource": "limits are set outside of the sandbox; time.process_time and tracemalloc measure time and memory",
    "spwd": _NO_USERS,
    "syslog": "there is no system log here: use logging",
    "telnetlib": _REMOVED,
    "test": "CPython's own tests are left out",
    "tkinter": _NO_DISPLAY,
    "turtle": _NO_DISPLAY,
    "turtledemo": _NO_DISPLAY,
    "venv": _NO_PIP,
    "winreg": _WINDOWS,
    "winsound": _WINDOWS,
}


_NO_SIGNALS = "no signals arrive here: limit a call with its timeout, or compare time.monotonic() with a deadline"
_FUNCTIONS = {
    "hashlib.scrypt": "CPython has it from OpenSSL, which is left out: use hashlib.pbkdf2_hmac",
    "signal.SIGALRM": _NO_SIGNALS,
    "signal.alarm": _NO_SIGNALS,
    "signal.getitimer": _NO_SIGNALS,
    "signal.setitimer": _NO_SIGNALS,
}


def advice_for_attribute(module: str, name: str) -> str | None:
    """Returns what a program can do without an attribute of a module, or None for attributes that are not listed."""
    full = f"{module}.{name}"
    return None if full not in _FUNCTIONS else f"Python in WebAssembly has no {full}: {_FUNCTIONS[full]}"


def advice(module: str) -> str | None:
    """Returns what a program can do without the module, in one sentence, or None for modules that are not listed."""
    top = module.partition(".")[0]
    found = _ADVICE.get(top)
    return None if found is None else f"Python in WebAssembly has no module {top}: {found}"

"""The parent's environment, sleeps and modules in a Monty session.

Only the code of feeds asks: libraries read the session's own environment, and import what is installed.
"""

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import time
import types
from typing import Any

from . import host, monty_calls, pip
from .monty_encoding import Encoder
from .monty_objects import printable

_MAX_SLEEP = 10.0
"""The longest sleep in seconds, unless the parent says otherwise."""

_UNKNOWN = "no package provides the module"
"""The host's reply about a module without a package."""

_namespace: dict[str, Any] = {}
_real_getenv = os.getenv
_real_sleep = time.sleep
_real_async_sleep = asyncio.sleep
_sleep_mode: dict[str, Any] = {}
_refused: set[str] = set()
"""The modules that neither the parent nor a package provides, in this feed."""


def install(namespace: dict[str, Any], policy: dict[str, Any]) -> None:
    """Replaces the functions that read the environment and that sleep, and adds the parent's modules."""
    global _namespace, _sleep_mode
    _namespace = namespace
    _sleep_mode = policy.get("sleep") or {"system": {"max_micros": None}}
    os.getenv = _getenv
    os.environ.__class__ = _Environment
    time.sleep = _sleep
    asyncio.sleep = asyncio.tasks.sleep = _async_sleep  # type: ignore[assignment]
    sys.meta_path.append(_Finder())


def begin_feed() -> None:
    """Begins a feed."""
    _refused.clear()


def _is_feed(depth: int) -> bool:
    """Returns whether the code that calls the caller is that of a feed."""
    return sys._getframe(depth + 1).f_globals is _namespace


def _ask(operation: str, content: Any, **fields: Any) -> dict[str, Any] | None:
    """Returns the parent's answer, or None if it does not handle the operation."""
    answer = monty_calls.ask({"os": {"call": {operation: content}, **fields}})
    return answer if "value" in answer else None


def _getenv(key: str, default: Any = None) -> Any:
    if _is_feed(1) and isinstance(key, str):
        return _variable(key, default)
    return _real_getenv(key, default)


def _variable(key: str, default: Any) -> Any:
    encoder = Encoder()
    index = encoder.add(default)
    answer = _ask("getenv", {"key": printable(key), "default": index}, values=encoder.arena())
    return _real_getenv(key, default) if answer is None else monty_calls.value(answer)


_MISSING = object()


class _Environment(os._Environ):  # type: ignore[misc]
    """`os.environ`, which has the parent's variables for the code of feeds."""

    def _of_parent(self) -> dict[str, str] | None:
        answer = _ask("get_environ", {})
        return None if answer is None else dict(monty_calls.value(answer))

    def __getitem__(self, key: str) -> str:
        if _is_feed(1) and isinstance(key, str) and (variables := self._of_parent()) is not None:
            return variables[key]
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        if _is_feed(1) and isinstance(key, str) and (variables := self._of_parent()) is not None:
            return variables.get(key, default)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        if _is_feed(1) and (variables := self._of_parent()) is not None:
            return key in variables
        return super().__contains__(key)

    def __iter__(self) -> Any:
        if _is_feed(1) and (variables := self._of_parent()) is not None:
            return iter(variables)
        return super().__iter__()

    def items(self) -> Any:
        if _is_feed(1) and (variables := self._of_parent()) is not None:
            return variables.items()
        return super().items()

    def copy(self) -> dict[str, str]:
        if _is_feed(1) and (variables := self._of_parent()) is not None:
            return variables
        return super().copy()


def _operation(is_async: bool) -> tuple[str, float | None]:
    """Returns the question about a sleep, and the longest one."""
    ((mode, content),) = _sleep_mode.items()
    if mode == "call_host":
        return "async_sleep" if is_async else "sleep", None
    maximum = (content or {}).get("max_micros")
    longest = _MAX_SLEEP if maximum is None else maximum / 1e6
    return "async_system_sleep" if is_async else "system_sleep", longest


def _seconds(given: Any, longest: float | None) -> float:
    seconds = float(given)
    if not 0 <= seconds < 1e9:
        raise ValueError("sleep length must be non-negative and finite")
    return seconds if longest is None else min(seconds, longest)


def _sleep(seconds: Any, /) -> None:
    if not _is_feed(1):
        return _real_sleep(seconds)
    if "zero" in _sleep_mode:
        return None
    operation, longest = _operation(False)
    length = _seconds(seconds, longest)
    if _ask(operation, {"seconds": length}) is None:
        _real_sleep(length)
    return None


async def _async_sleep(delay: Any, result: Any = None) -> Any:
    if not delay > 0:
        return await _real_async_sleep(delay, result)
    if "zero" in _sleep_mode:
        return await _real_async_sleep(0, result)
    operation, longest = _operation(True)
    length = _seconds(delay, longest)
    answer = await monty_calls.ask_later({"os": {"call": {operation: {"seconds": length}}, "allow_eager_await": True}})
    if "value" not in answer:
        return await _real_async_sleep(length, result)
    return result


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules of the parent, and installs packages of modules that are missing, for imports of feeds."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if path is not None:
            return self._submodule(name)
        if name in _refused or not self._is_of_feed():
            return None
        if (answer := _ask("import", {"module": name})) is not None:
            return self._spec(name, monty_calls.value(answer))
        try:
            pip.install([], modules=[name])
        except host.HostCallError as refusal:
            _refused.add(name)
            if (reason := str(refusal)) == _UNKNOWN:
                return None
            raise ModuleNotFoundError(f"No module named {name!r} [not installed: {reason}]", name=name) from None
        importlib.invalidate_caches()
        return importlib.machinery.PathFinder.find_spec(name)

    def _is_of_feed(self) -> bool:
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        return frame is not None and frame.f_globals is _namespace

    def _submodule(self, name: str) -> importlib.machinery.ModuleSpec | None:
        parent, _, attribute = name.rpartition(".")
        module = sys.modules.get(parent)
        found = getattr(module, attribute, None) if getattr(module, "__path__", None) == [] else None
        return self._spec(name, found) if isinstance(found, types.ModuleType) else None

    def _spec(self, name: str, module: Any) -> importlib.machinery.ModuleSpec | None:
        if not isinstance(module, types.ModuleType):
            return None
        module.__path__ = []
        return importlib.machinery.ModuleSpec(name, _Loader(module), is_package=True)


class _Loader(importlib.abc.Loader):
    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        pass

"""Calls of the extension module: starting jobs, waiting for them, and their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _native
from ._errors import ArgumentTypeError, from_native
from ._run import ErrorInfo, Run, from_native as run_from_native

if TYPE_CHECKING:
    from ._base import BaseSandbox
    from ._calls import Callbacks


def contents_of(contents: object) -> bytes:
    """Returns the contents of a file as bytes."""
    if not isinstance(contents, (bytes, bytearray, memoryview)):
        raise ArgumentTypeError(f"contents: bytes are needed, not {type(contents).__name__}")
    return bytes(contents)


def native_call(function: Callable[..., _native.Job], *arguments: Any) -> _native.Job:
    """Calls a method of the extension module."""
    try:
        return function(*arguments)
    except _native.NativeError as error:
        raise from_native(error) from None


def start(
    callbacks: Callbacks | None,
    function: Callable[..., _native.Job],
    text: str,
    buffers: list[bytes],
    streams: bool,
    on_end: Callable[[], object] | None,
) -> _native.Job:
    """Starts code."""
    return begin_job(callbacks, function, text, buffers, callbacks, streams, on_end)


def begin_job(callbacks: Callbacks | None, function: Callable[..., _native.Job], *arguments: Any) -> _native.Job:
    """Starts a job that runs code."""
    job = native_call(function, *arguments)
    if callbacks is not None:
        callbacks.job = job
    return job


def wait(job: _native.Job) -> Any:
    """Waits for a job and returns its result."""
    try:
        return job.wait()
    except _native.NativeError as error:
        raise from_native(error) from None


def finish(job: _native.Job, callbacks: Callbacks | None, sandbox: BaseSandbox[Any] | None = None) -> Run:
    """Waits for code and returns its run. Only code with a sandbox may pause."""
    try:
        return to_run(job.wait, callbacks, sandbox)
    finally:
        if callbacks is not None:
            callbacks.end()


def to_run(take: Callable[[], Any], callbacks: Callbacks | None, sandbox: BaseSandbox[Any] | None = None) -> Run:
    """Returns the run of a job that has ended. Raises what a function of the caller that receives output has raised."""
    try:
        result = take()
    except _native.NativeError as error:
        if callbacks is not None and callbacks.error is not None:
            raise callbacks.error from None
        kind, message = error.args
        if kind == "install":
            return Run("install-error", ErrorInfo("InstallError", message, ""))
        if kind == "cancelled":
            return Run("cancelled", ErrorInfo("Stopped", "the code was stopped before it ended", ""))
        raise from_native(error) from None
    if callbacks is not None and callbacks.error is not None:
        raise callbacks.error
    calls = callbacks.calls if callbacks is not None else []
    kind = sandbox._run_type if sandbox is not None else Run
    if sandbox is None or (native := result.get("paused")) is None:
        return run_from_native(result, calls, kind)
    from . import _paused

    run = _paused.to_run(result, calls, kind)
    run.paused = _paused.Paused(sandbox, native, callbacks)
    return run

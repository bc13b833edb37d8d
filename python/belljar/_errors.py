"""The exceptions of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _native

if TYPE_CHECKING:
    from ._run import Run


class BelljarError(Exception):
    """The base of all exceptions of this package."""


class ArgumentError(BelljarError, ValueError):
    """An argument has a value that is not valid. The message names the argument."""


class ArgumentTypeError(BelljarError, TypeError):
    """An argument has a type that is not valid. The message names the argument."""


class SandboxError(BelljarError):
    """The sandbox could not be started or used."""


class ForkError(SandboxError):
    """The process was forked after the first use of the package."""


class ServerError(SandboxError):
    """A server cannot be reached, refuses a call, or sends an invalid answer."""


class UnsupportedError(SandboxError):
    """A sandbox on a server does not support the operation. A sandbox in this process does."""


class DumpError(SandboxError):
    """The bytes are not a session that this version can continue."""


class FileError(BelljarError, OSError):
    """A file of a session cannot be read or written."""


class FileMissingError(FileError, FileNotFoundError):
    """A session has no such file."""


class RunFailedError(BelljarError):
    """Code did not succeed: raised by `Run.check`."""

    run: Run
    """The run."""

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run

    def __reduce__(self) -> tuple[type[RunFailedError], tuple[str, Run]]:
        # Exceptions are pickled with `args` otherwise, which lacks the run: pools of processes would wait forever.
        return type(self), (str(self), self.run)


class CodeError(RunFailedError):
    """Code raised an exception."""

    @property
    def name(self) -> str:
        """The name of the exception's class: ``ZeroDivisionError``."""
        return self.run.error.name if self.run.error else ""

    @property
    def traceback(self) -> str:
        """The traceback, as Python prints it."""
        return self.run.error.traceback if self.run.error else ""


class LimitError(RunFailedError):
    """Code reached a limit."""

    @property
    def limit(self) -> str:
        """The name of the limit: ``time``, ``cpu``, ``wait``, ``output``, ``stack`` or ``memory``."""
        return self.run.limit or ""


class ExitError(RunFailedError):
    """Code ended its interpreter, as with `sys.exit`, with a status other than 0."""

    @property
    def exit_code(self) -> int:
        """The exit status."""
        return self.run.exit_code or 0


class CrashError(RunFailedError):
    """Code broke its interpreter."""


class CancelledRunError(RunFailedError):
    """Code was stopped from outside."""


class InstallError(RunFailedError):
    """The packages of code could not be installed."""


_KINDS: dict[str, type[BelljarError]] = {
    "argument": ArgumentError,
    "dump": DumpError,
    "file": FileError,
    "file-missing": FileMissingError,
    "fork": ForkError,
    "server": ServerError,
    "unsupported": UnsupportedError,
}


def from_native(error: _native.NativeError) -> BelljarError:
    """Returns the exception for an error of the extension module."""
    kind, message = error.args
    return _KINDS.get(kind, SandboxError)(message)

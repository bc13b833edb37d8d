"""The exceptions of E2B's names and hierarchy, which also derive from those of Belljar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .. import _errors as belljar


class SandboxException(belljar.BelljarError):
    """The base of the errors of sandboxes."""

    status_code: int | None = None
    """Always None: no HTTP status is involved."""

    def __init__(self, *args: object, status_code: int | None = None) -> None:
        super().__init__(*args)
        self.status_code = status_code


class TimeoutException(SandboxException):
    """Code, a command or a call took longer than its ``timeout`` or ``request_timeout``."""


class SandboxNotRunningException(TimeoutException):
    """The sandbox was killed, is paused, or has reached its timeout."""


class SandboxUnreachableException(TimeoutException):
    """Never raised: E2B has it for networks that fail. A server that cannot be reached is a `SandboxException`."""


class InvalidArgumentException(SandboxException, belljar.ArgumentError):
    """An argument is not valid. The message names it."""


class UnsupportedException(SandboxException, belljar.UnsupportedError):
    """E2B has the method or argument, and Belljar, or the server, has not. The message says what to use instead."""


class NotEnoughSpaceException(SandboxException):
    """The sandbox's disk is full."""


class NotFoundException(SandboxException):
    """Something does not exist."""


class FileNotFoundException(NotFoundException, belljar.FileMissingError):
    """The sandbox has no such file or directory."""


class SandboxNotFoundException(NotFoundException):
    """This process has no such sandbox, or it has been killed."""


class TemplateException(SandboxException):
    """Never raised: Belljar has no templates."""


class RateLimitException(SandboxException):
    """Never raised: Belljar has no limit of requests."""


class GuestUnresponsiveException(SandboxException):
    """Never raised: a sandbox that is paused always answers."""


class AuthenticationException(Exception):
    """Never raised: a server that refuses its token is a `SandboxException`."""


class ServiceBusyException(Exception):
    """Never raised: a sandbox waits for its turn instead."""


_KINDS: list[tuple[tuple[type[belljar.BelljarError], ...], type[SandboxException]]] = [
    ((belljar.UnsupportedError,), UnsupportedException),
    ((belljar.ArgumentError, belljar.ArgumentTypeError, belljar.DumpError), InvalidArgumentException),
    ((belljar.FileMissingError,), FileNotFoundException),
    ((belljar.BelljarError,), SandboxException),
]


def translate(error: belljar.BelljarError) -> Exception:
    """Returns an error of Belljar as one of E2B."""
    if isinstance(error, (SandboxException, belljar.RunFailedError, belljar.ForkError)):
        return error
    return next(kind(str(error)) for kinds, kind in _KINDS if isinstance(error, kinds))


@contextmanager
def translated() -> Iterator[None]:
    """Raises Belljar's errors as those of E2B."""
    try:
        yield
    except belljar.BelljarError as error:
        translation = translate(error)
        if translation is error:
            raise
        raise translation from error

"""Methods that can be called on a sandbox, or on its class with the sandbox's ID; and attributes that are refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, TypeVar, overload

from ._errors import SandboxNotFoundException, UnsupportedException


class Handle(Protocol):
    """A sandbox that is found by its ID."""

    @classmethod
    def _find(cls, sandbox_id: str) -> Any: ...


S = TypeVar("S", bound=Handle)
P = ParamSpec("P")
R = TypeVar("R")


class by_id(Generic[S, P, R]):
    """A method of a sandbox, which its class has as well: ``Sandbox.pause(sandbox_id)``."""

    def __init__(self, method: Callable[Concatenate[S, P], R], missing: Callable[[], R] | None = None) -> None:
        """Creates the method.

        Args:
            missing: Returns the result for a sandbox that does not exist. Without it, this is an error.
        """
        self._method: Any = method
        self._missing = missing
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type[S]) -> Callable[Concatenate[str | S, P], R]: ...
    @overload
    def __get__(self, instance: S, owner: type[S]) -> Callable[P, R]: ...
    def __get__(self, instance: S | None, owner: type[S]) -> Callable[..., R]:
        if instance is not None:
            bound: Callable[..., R] = self._method.__get__(instance, owner)
            return bound

        @functools.wraps(self._method)
        def call(sandbox_id: str | S, /, *args: Any, **kwargs: Any) -> R:
            return self._call(owner, sandbox_id, args, kwargs)

        @functools.wraps(self._method)
        def call_by_name(*args: Any, **kwargs: Any) -> R:
            return call(kwargs.pop("sandbox_id"), *args, **kwargs) if "sandbox_id" in kwargs else call(*args, **kwargs)

        return call_by_name

    def _call(self, owner: type[S], sandbox_id: str | S, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        try:
            handle = owner._find(sandbox_id) if isinstance(sandbox_id, str) else sandbox_id
        except SandboxNotFoundException:
            if self._missing is None:
                raise
            return self._missing()
        result: R = self._method(handle, *args, **kwargs)
        return result


def by_id_or(missing: Callable[[], R]) -> Callable[[Callable[Concatenate[S, P], R]], by_id[S, P, R]]:
    """Makes a method a `by_id` with a result for sandboxes that do not exist."""
    return lambda method: by_id(method, missing)


class by_optional_id(Generic[P, R]):
    """A method of the class that receives the ID of the sandbox on which it is called; on the class, any ID or None."""

    def __init__(self, method: Callable[Concatenate[Any, str | None, P], R]) -> None:
        self._method: Any = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Callable[..., R]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> Callable[P, R]: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Callable[..., R]:
        if instance is not None:
            return functools.partial(self._method, owner, instance.sandbox_id)

        @functools.wraps(self._method)
        def call(sandbox_id: Any = None, *args: Any, **kwargs: Any) -> R:
            result: R = self._method(owner, getattr(sandbox_id, "sandbox_id", sandbox_id), *args, **kwargs)
            return result

        return call


class refused:
    """An attribute that E2B's sandboxes have."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._name = ""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> refused: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
    def __get__(self, instance: object, owner: type[Any]) -> refused:
        if instance is None:
            return self
        raise UnsupportedException(f"{self._name}: {self._message}")

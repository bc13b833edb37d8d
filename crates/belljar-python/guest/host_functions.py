"""Functions of the host as code sees them: their signatures, and the exceptions that they raise.

Native kernels use this module, too.
"""

import builtins
import inspect
from typing import Any

exceptions: dict[str, type[Exception]] = {}
"""The classes of exceptions that are not builtin, by the names that the host uses."""


class HostFunctionError(Exception):
    """An exception that a function of the host raised, of a class that is not one of Python's own."""


HostFunctionError.__module__ = "builtins"  # Tracebacks show the bare name.


class _Source:
    """Python source text that `inspect.signature` shows as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def signature(description: dict[str, Any]) -> inspect.Signature:
    """Returns the signature in the host's description of a function."""

    def shown(text: str | None) -> Any:
        return inspect.Parameter.empty if text is None else _Source(text)

    parameters = [
        inspect.Parameter(
            each["name"],
            inspect._ParameterKind(each["kind"]),
            default=shown(each["default"]),
            annotation=shown(each["annotation"]),
        )
        for each in description["parameters"]
    ]
    return inspect.Signature(parameters, return_annotation=shown(description["returns"]))


def exception(name: str, message: str) -> Exception:
    """Returns an exception of the known or builtin class of this name, or of a class of this name."""
    if (known := exceptions.get(name)) is not None:
        return known(message)
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            # `str` of a KeyError is the `repr` of its argument: the text is one already.
            return kind(message) if kind is not KeyError else _quoted_key_error(message)
        except TypeError:
            pass  # Such as UnicodeDecodeError, which has five arguments.
    return type(name, (HostFunctionError,), {"__module__": "builtins"})(message)


def _quoted_key_error(message: str) -> KeyError:
    if len(message) >= 2 and message[0] == message[-1] and message[0] in "'\"":
        return KeyError(message[1:-1])
    return KeyError(message)

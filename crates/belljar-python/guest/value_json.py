"""Rendering of a cell's value as JSON, in the format of `pydantic_core.to_json(value, indent=2)`.

Every value has a representation: values without a JSON equivalent are shown by their `repr`, and the value's own code
(a `repr` that raises, a structure that contains itself, an endless iterator) cannot prevent an answer. Types are looked
up only in modules that are imported: their values cannot exist otherwise.
"""

import sys
from collections.abc import Callable, Iterable
from json import loads
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

_MAX_DEPTH = 100
"""The maximum depth of nested containers; deeper ones are shown as "..."."""
_MAX_DIGITS = 100_000
"""The maximum number of decimal digits of an integer; the conversion takes quadratic time."""
_REPLACEMENT = "\ufffd"


class _TooLarge(Exception):
    """The text has reached its maximum size."""


def render(value: object, max_bytes: int) -> dict[str, str | bool | None]:
    """Returns the value's fields of an outcome: ``value``, ``text``, and ``strict`` and ``cut`` where they apply.

    ``value`` is JSON text, except that NaN, Infinity and -Infinity are literals and lone surrogates are escaped;
    ``strict`` has strings and U+FFFD in their places. ``text`` is a string itself, or the JSON of other values. A value
    larger than ``max_bytes`` becomes a string: the text's beginning and a note; ``cut`` is true.
    """
    if value is None:
        return {"value": None, "text": None}
    writer = _Writer(max_bytes)
    is_text = isinstance(value, str)
    try:
        writer.write(value)
    except _TooLarge:
        beginning = _without_surrogates(str.__str__(value)[:max_bytes] if is_text else writer.strict_text())
        beginning = beginning.encode()[:max_bytes].decode(errors="ignore")
        text = f"{beginning}\n[cut: the value takes more than {max_bytes} bytes]"
        return {"value": encode_basestring(text), "text": text, "cut": True}
    value_text, strict = writer.text(), writer.strict_text()
    fields: dict[str, str | bool | None] = {"value": value_text}
    fields["text"] = _without_surrogates(str.__str__(value)) if is_text else value_text
    if strict != value_text:
        fields["strict"] = strict
    return fields


class _Writer:
    """A writer that collects the pieces of the text, and the pieces that strict JSON has instead."""

    def __init__(self, max_bytes: int) -> None:
        self._pieces: list[str] = []
        self._strict: dict[int, str] = {}
        self._left = max_bytes
        self._depth = 0
        self._indent = "\n"
        self._open: set[int] = set()

    def text(self) -> str:
        return "".join(self._pieces)

    def strict_text(self) -> str:
        if not self._strict:
            return self.text()
        return "".join(self._strict.get(at, piece) for at, piece in enumerate(self._pieces))

    def write(self, value: Any) -> None:
        kind = type(value)
        exact = _EXACT.get(kind)
        if exact is not None:
            exact(self, value)
            return
        mark = len(self._pieces), self._left, self._indent
        try:
            self._write_other(value, kind)
        except _TooLarge:
            raise
        except Exception:
            # The value's own code failed: discard the partial output, and show the value's `repr`.
            del self._pieces[mark[0] :]
            self._left, self._indent = mark[1:]
            self._strict = {at: piece for at, piece in self._strict.items() if at < mark[0]}
            self._string(safe_repr(value))

    def _write_other(self, value: Any, kind: type) -> None:
        """Writes values that are not exactly of a builtin type, in pydantic_core's order of tests."""
        if hasattr(kind, "__pydantic_serializer__"):
            text = kind.__pydantic_serializer__.to_json(value, fallback=safe_repr)
            self.write(loads(text))
        elif hasattr(kind, "__dataclass_fields__"):
            fields = sys.modules["dataclasses"].fields(value)
            self._object(value, [(field.name, getattr(value, field.name)) for field in fields])
        elif _is_a(value, "enum", "Enum"):
            self._inside(value, lambda: self.write(value.value))
        elif hasattr(kind, "__next__") and hasattr(kind, "__iter__") and not _is_a(value, "_io", "_IOBase"):
            # An iterator is consumed, but a file is not: its lines are not its value.
            self._array(value, value)
        elif (base := next((base for base in kind.__mro__ if base in _EXACT), None)) is not None:
            _EXACT[base](self, value)
        elif (text := _as_text(value)) is not None:
            self._string(text)
        elif kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
            plain = value.tolist()
            self.write(plain) if type(plain) is not kind else self._string(safe_repr(value))
        else:
            self._string(safe_repr(value))

    def _add(self, piece: str, strict: str | None = None) -> None:
        if strict is not None:
            self._strict[len(self._pieces)] = strict
        self._pieces.append(piece)
        self._left -= len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
        if self._left < 0:
            raise _TooLarge

    def _null(self, value: None) -> None:
        self._add("null")

    def _boolean(self, value: bool) -> None:
        self._add("true" if value else "false")

    def _integer(self, value: int) -> None:
        text = _integer_text(value)
        self._add(text) if text is not None else self._string(_integer_size(value))

    def _number(self, value: float) -> None:
        text = _float_text(value)
        self._add(text, None if value - value == 0 else f'"{text}"')

    def _string(self, value: str) -> None:
        text = str.__str__(value)
        if len(text) > self._left:
            self._pieces.append(text[: self._left])
            raise _TooLarge
        if _has_surrogates(text):
            self._add(encode_basestring_ascii(text), encode_basestring(_without_surrogates(text)))
        else:
            self._add(encode_basestring(text))

    def _bytes(self, value: bytes | bytearray) -> None:
        try:
            self._string(bytes(value).decode())
        except UnicodeDecodeError:
            # pydantic_core fails here; the `repr` is more useful.
            self._string(safe_repr(value))

    def _sequence(self, value: Iterable[Any]) -> None:
        base = next(base for base in type(value).__mro__ if base in _EXACT)
        # Uses the builtin's own iteration even if a subclass overrides it, and a copy, as `repr`s may change the
        # original.
        self._array(value, list(base.__iter__(value)))

    def _mapping(self, value: dict[Any, Any]) -> None:
        self._object(value, [(_key(key), item) for key, item in list(dict.items(value))])

    def _array(self, value: object, items: Iterable[Any]) -> None:
        self._inside(value, lambda: self._lines("[", "]", (("", item) for item in items)))

    def _object(self, value: object, items: list[tuple[str, Any]]) -> None:
        self._inside(value, lambda: self._lines("{", "}", items, keyed=True))

    def _lines(self, opening: str, closing: str, items: Iterable[tuple[str, Any]], *, keyed: bool = False) -> None:
        outer = self._indent
        self._indent = indent = outer + "  "
        separator = opening
        for key, item in items:
            self._add(separator + indent)
            if keyed:
                self._string(key)
                self._add(": ")
            self.write(item)
            separator = ","
        self._indent = outer
        self._add(opening + closing if separator == opening else outer + closing)

    def _inside(self, value: object, write: Callable[[], None]) -> None:
        """Writes a container, unless it contains itself or is nested too deeply."""
        if id(value) in self._open or self._depth >= _MAX_DEPTH:
            self._string("...")
            return
        self._open.add(id(value))
        self._depth += 1
        try:
            write()
        finally:
            self._depth -= 1
            self._open.discard(id(value))


_EXACT: dict[type, Callable[[_Writer, Any], None]] = {
    type(None): _Writer._null,
    bool: _Writer._boolean,
    int: _Writer._integer,
    float: _Writer._number,
    str: _Writer._string,
    bytes: _Writer._bytes,
    bytearray: _Writer._bytes,
    list: _Writer._sequence,
    tuple: _Writer._sequence,
    set: _Writer._sequence,
    frozenset: _Writer._sequence,
    dict: _Writer._mapping,
}


def _key(key: Any) -> str:
    """Returns a dictionary's key as the key of a JSON object."""
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bool):
        return "true" if key else "false"
    if _is_a(key, "enum", "Enum"):
        return _key(key.value)
    if isinstance(key, int):
        return _integer_text(key) or _integer_size(key)
    if isinstance(key, tuple):
        return ",".join(_key(item) for item in tuple.__iter__(key))
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return safe_repr(key)
    if key is None or isinstance(key, float):
        return str(key)
    return _as_text(key) or safe_repr(key)


def _as_text(value: Any) -> str | None:
    """Returns the text of the standard library's types that JSON represents as strings; None for other types."""
    if isinstance(value, complex):
        return _complex_text(value)
    if _is_a(value, "datetime", "datetime") or _is_a(value, "datetime", "time"):
        text = value.isoformat()
        return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
    if _is_a(value, "datetime", "date"):
        return value.isoformat()
    if _is_a(value, "datetime", "timedelta"):
        return _duration(value)
    if _is_a(value, "decimal", "Decimal") or _is_a(value, "uuid", "UUID") or _is_a(value, "pathlib", "PurePath"):
        return str(value)
    if _is_a(value, "re", "Pattern"):
        return value.pattern if isinstance(value.pattern, str) else safe_repr(value.pattern)
    return None


def _is_a(value: object, module: str, name: str) -> bool:
    return getattr(sys.modules.get(module), name, None) in type(value).__mro__


def _duration(value: Any) -> str:
    """Returns the duration in ISO 8601: P1DT5S."""
    sign, days, seconds, microseconds = "", value.days, value.seconds, value.microseconds
    if days < 0:
        total = -((days * 86_400 + seconds) * 1_000_000 + microseconds)
        seconds, microseconds = divmod(total, 1_000_000)
        days, seconds = divmod(seconds, 86_400)
        sign = "-"
    # pydantic_core counts in years of 365 days.
    years, days = divmod(days, 365)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    date = _counted((years, "Y"), (days, "D"))
    fraction = f".{microseconds:06}".rstrip("0") if microseconds else ""
    time = _counted((hours, "H"), (minutes, "M"))
    if seconds or fraction or not (date or time):
        time += f"{seconds}{fraction}S"
    return f"{sign}P{date}T{time}" if time else f"{sign}P{date}"


def _counted(*parts: tuple[int, str]) -> str:
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def _float_text(value: float) -> str:
    """Returns the shortest digits with the exponent of Rust's `ryu`: 1e16 and 1.5e-7 for Python's 1e+16 and 1.5e-07."""
    text = float.__repr__(value)
    if text[-1] == "f":
        return "Infinity" if value > 0 else "-Infinity"
    if text == "nan":
        return "NaN"
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    if exponent == "-05":
        sign, digits = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{int(exponent)}"


def _integer_text(value: int) -> str | None:
    """Returns decimal digits, or None for a number too large to convert."""
    if value.bit_length() < 14_000:  # Within Python's own limit of 4,300 digits.
        return int.__repr__(value)
    if value.bit_length() > _MAX_DIGITS * 3.32:
        return None
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return int.__repr__(value)
    finally:
        sys.set_int_max_str_digits(limit)


def _integer_size(value: int) -> str:
    return f"<int of about {int(value.bit_length() * 0.30103)} digits>"


def _complex_text(value: complex) -> str:
    if value.real == 0:  # -1j is (-0-1j) in full.
        value = complex(0.0, value.imag)
    return complex.__repr__(value).strip("()")


def safe_repr(value: object) -> str:
    """Returns ``repr(value)``, or a note that it raises."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} object, whose repr() raised {type(error).__name__}>"


def _has_surrogates(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _without_surrogates(text: str) -> str:
    if not _has_surrogates(text):
        return text
    return "".join(_REPLACEMENT if "\ud800" <= character <= "\udfff" else character for character in text)

"""Encoding of Python values as JSON that keeps their types, for values that cross between the sandbox and its host.

Both sides use this module: inside of the sandbox, and in Belljar's Python package. It needs only the standard library;
numpy and pandas are used if they are installed. The text of the other side is untrusted: decoding creates objects of
the types below, and raises ValueError for everything else.

Plain JSON represents None, booleans, integers, finite floats, strings, lists, and dictionaries whose keys are strings
that do not begin with "$". All other values are objects with one key:

| key | contents |
| --- | --- |
| $int | hexadecimal digits of a long integer |
| $float | "nan", "inf", "-inf" |
| $complex | real and imaginary part, each as `float.hex` has it |
| $bytes, $bytearray | base64, or the position of a buffer |
| $tuple, $set, $frozenset | items |
| $dict | pairs of key and value |
| $range | start, stop, step |
| $datetime | ISO 8601, the key of the time zone or null, fold |
| $date, $time, $decimal, $fraction, $uuid | text |
| $timedelta | days, seconds, microseconds |
| $array | dtype, shape, base64 or the position of a buffer: an array of numpy or of `array`, a `memoryview` |
| $objects | shape, items: an array of objects |
| $scalar | dtype, base64 |
| $timestamp | ISO 8601 with nanoseconds |
| $missing | "NaT", "NA" |
| $frame | columns, index, and for each column its name, dtype and values |
| $series | name, dtype, index, values |
"""

import binascii
import math
import re
import sys
from collections.abc import Callable, Sequence
from json import JSONDecoder, JSONEncoder
from json.encoder import c_make_encoder, encode_basestring_ascii
from typing import Any

MAX_DEPTH = 100
"""The maximum depth of nested containers."""
_MIN_BUFFER = 4096
"""The size in bytes from which contents become a buffer."""
_MAX_BITS = 4000
"""The maximum length of integers that are written with decimal digits."""
_DTYPE = re.compile(r"[<>|=]?(?:[biufcSU?]\d{0,9}|[mM]8(?:\[\w{1,20}\])?)")
_FORMATS = {"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}
_FORMATS |= {"f2": "e", "f4": "f", "f8": "d"}
_KINDS = {"?": "b"} | dict.fromkeys("bhilqn", "i") | dict.fromkeys("BHILQN", "u") | dict.fromkeys("efd", "f")
# Named, because the formatter of the sandbox's code writes `except` clauses as only newer versions of Python have them.
_DECODING_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError)
_DTYPE_ERRORS = (TypeError, ValueError)

_encoder = JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"))
# Made once: `JSONEncoder.encode` makes an encoder for each text, which takes longer than most texts.
_encode_in_c = c_make_encoder and c_make_encoder(
    None, _encoder.default, encode_basestring_ascii, None, ":", ",", False, False, False
)
_loads = JSONDecoder().decode
_scan = JSONDecoder().scan_once

Convert = Callable[[object], Any]
"""Returns a value that can be encoded in place of one that cannot, or raises TypeError."""


def dumps(tree: Any) -> str:
    """Returns the JSON text of values that JSON has, without cycles. Raises TypeError or ValueError for others."""
    return _encoder.encode(tree) if _encode_in_c is None else "".join(_encode_in_c(tree, 0))


def encode(value: object, convert: Convert) -> tuple[str, list[Any]]:
    """Returns the JSON text of ``value``, and its buffers: objects with the buffer protocol, contiguous."""
    kind = type(value)
    # The most common results of functions.
    if kind is int and -_LONG < value < _LONG:  # type: ignore[operator]
        return int.__repr__(value), []  # type: ignore[arg-type]
    if kind is str:
        return encode_basestring_ascii(value), []  # type: ignore[arg-type]
    if value is None:
        return "null", []
    encoder = _Encoder(convert)
    tree = encoder.encode(value)
    return dumps(tree), encoder.buffers


def decode(text: str, buffers: Sequence[Any] = ()) -> Any:
    """Returns the value of a JSON text and its buffers. Raises ValueError if they are not those of a value."""
    try:
        tree = _parse(text)
        return _Decoder(buffers).decode(tree) if '"$' in text else tree
    except ValueError:
        raise
    except _DECODING_ERRORS as error:
        raise ValueError(f"not an encoded value: {type(error).__name__}: {error}") from None


def _parse(text: str) -> Any:
    """Returns the values of a JSON text. `JSONDecoder.decode` looks for spaces around them, which takes longer."""
    try:
        tree, end = _scan(text, 0)
    except StopIteration:
        return _loads(text)
    return tree if end == len(text) else _loads(text)


class _Encoder:
    def __init__(self, convert: Convert) -> None:
        self.buffers: list[Any] = []
        self._convert = convert
        self._depth = 0

    def encode(self, value: Any) -> Any:
        kind = type(value)
        if kind is str or value is None or kind is bool:
            return value
        if kind is int:
            return value if -_LONG < value < _LONG else {"$int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if self._depth >= MAX_DEPTH:
            raise ValueError(f"the value is nested more than {MAX_DEPTH} times, or contains itself")
        self._depth += 1
        try:
            return self._encode_other(value, kind)
        finally:
            self._depth -= 1

    def _encode_other(self, value: Any, kind: type) -> Any:
        encode = self.encode
        if kind is list:
            return [encode(item) for item in value]
        if kind is dict:
            return self._dict(value)
        if kind is tuple:
            return {"$tuple": [encode(item) for item in value]}
        if kind is memoryview or kind.__name__ == "array" and kind.__module__ == "array":
            return self._memory(memoryview(value))
        if kind is bytes or kind is bytearray:
            return {f"${kind.__name__}": self._contents(value)}
        if kind is set or kind is frozenset:
            return {f"${kind.__name__}": [encode(item) for item in value]}
        special = _SPECIAL.get((kind.__module__, kind.__name__))
        if special is not None and kind is getattr(sys.modules.get(kind.__module__), kind.__name__, None):
            return special(self, value)
        package = kind.__module__.partition(".")[0]
        if package == "numpy" and (found := self._numpy(value)) is not None:
            return found
        if package == "pandas" and (found := self._pandas(value)) is not None:
            return found
        return self._subclass(value, kind)

    def _subclass(self, value: Any, kind: type) -> Any:
        """Encodes an instance of a subclass of a builtin type as one of that type, like JSON does."""
        enum = getattr(sys.modules.get("enum"), "Enum", None)
        if enum is None or not isinstance(value, enum):
            for base in (str, int, float, list, tuple, dict, set, frozenset, bytes, bytearray):
                if base in kind.__mro__:
                    return self.encode(base(value) if base is not int else int.__index__(value))
        return self.encode(self._convert(value))

    def _dict(self, value: dict[Any, Any]) -> Any:
        encode = self.encode
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: encode(item) for key, item in value.items()}
        return {"$dict": [[encode(key), encode(item)] for key, item in value.items()]}

    def _contents(self, contents: Any) -> Any:
        view = memoryview(contents)
        if view.nbytes < _MIN_BUFFER:
            return binascii.b2a_base64(view, newline=False).decode()
        self.buffers.append(contents)
        return len(self.buffers) - 1

    def _memory(self, view: memoryview) -> Any:
        """Encodes a buffer as an array of numpy."""
        kind = _KINDS.get(view.format.lstrip("@"))
        if kind is None or not view.c_contiguous or sys.byteorder != "little":
            return {"$bytes": self._contents(view.tobytes())}
        dtype = f"{'|' if view.itemsize == 1 else '<'}{kind}{view.itemsize}"
        return {"$array": [dtype, list(view.shape or ()), self._contents(view.cast("B"))]}

    def _complex(self, value: complex) -> Any:
        return {"$complex": [value.real.hex(), value.imag.hex()]}

    def _range(self, value: range) -> Any:
        return {"$range": [self.encode(part) for part in (value.start, value.stop, value.step)]}

    def _datetime(self, value: Any) -> Any:
        return {"$datetime": [value.isoformat(), getattr(value.tzinfo, "key", None), value.fold]}

    def _timedelta(self, value: Any) -> Any:
        return {"$timedelta": [value.days, value.seconds, value.microseconds]}

    def _fraction(self, value: Any) -> Any:
        return {"$fraction": [self.encode(value.numerator), self.encode(value.denominator)]}

    def _numpy(self, value: Any) -> Any:
        numpy = sys.modules["numpy"]
        if isinstance(value, numpy.generic):
            if _DTYPE.fullmatch(value.dtype.str):
                return {"$scalar": [value.dtype.str, binascii.b2a_base64(value.tobytes(), newline=False).decode()]}
            return None
        if type(value) is not numpy.ndarray:
            return None
        shape = list(value.shape)
        if value.dtype.hasobject:
            return {"$objects": [shape, [self.encode(item) for item in value.ravel().tolist()]]}
        if not _DTYPE.fullmatch(value.dtype.str):
            return None
        # Bytes, since dates have no buffer format.
        flat = numpy.ascontiguousarray(value).reshape(-1)
        flat = flat.view(numpy.uint8) if flat.size else flat.astype(numpy.uint8)
        return {"$array": [value.dtype.str, shape, self._contents(flat.data)]}

    def _pandas(self, value: Any) -> Any:
        pandas = sys.modules["pandas"]
        if value is pandas.NaT or value is pandas.NA:
            return {"$missing": "NaT" if value is pandas.NaT else "NA"}
        if isinstance(value, pandas.Timestamp):
            return {"$timestamp": value.isoformat()}
        if isinstance(value, pandas.RangeIndex):
            return self._range(range(value.start, value.stop, value.step))
        if isinstance(value, pandas.Index):
            return self.encode(value.to_numpy())
        if isinstance(value, pandas.Series):
            name, dtype, values = self._column(value.name, value)
            return {"$series": [name, dtype, self._index(value.index), values]}
        if isinstance(value, pandas.DataFrame) and not isinstance(value.columns, pandas.MultiIndex):
            columns = [self._column(name, value.iloc[:, at]) for at, name in enumerate(value.columns)]
            return {"$frame": [self._index(value.index), columns]}
        return None

    def _index(self, index: Any) -> Any:
        if getattr(index, "nlevels", 1) > 1:
            raise TypeError("data frames with an index of several levels cannot cross: use reset_index()")
        return self.encode(index)

    def _column(self, name: Any, series: Any) -> list[Any]:
        dtype = series.dtype
        if hasattr(dtype, "hasobject") and not dtype.hasobject:
            return [self.encode(name), None, self.encode(series.to_numpy())]
        return [self.encode(name), str(dtype), [self.encode(item) for item in series.tolist()]]


_LONG = 1 << _MAX_BITS

_SPECIAL: dict[tuple[str, str], Callable[[_Encoder, Any], Any]] = {
    ("builtins", "complex"): _Encoder._complex,
    ("builtins", "range"): _Encoder._range,
    ("datetime", "datetime"): _Encoder._datetime,
    ("datetime", "date"): lambda _, value: {"$date": value.isoformat()},
    ("datetime", "time"): lambda _, value: {"$time": value.isoformat()},
    ("datetime", "timedelta"): _Encoder._timedelta,
    ("decimal", "Decimal"): lambda _, value: {"$decimal": str(value)},
    ("fractions", "Fraction"): _Encoder._fraction,
    ("uuid", "UUID"): lambda _, value: {"$uuid": str(value)},
}


class _Decoder:
    def __init__(self, buffers: Sequence[Any]) -> None:
        self._buffers = buffers

    def decode(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is list:
            return [self.decode(item) for item in tree]
        if kind is not dict:
            return tree
        if len(tree) == 1:
            ((key, contents),) = tree.items()
            if key.startswith("$"):
                decoder = _DECODERS.get(key)
                if decoder is None:
                    raise ValueError(f"not an encoded value: {key[:50]}")
                return decoder(self, contents)
        return {key: self.decode(item) for key, item in tree.items()}

    def _contents(self, contents: Any) -> Any:
        if isinstance(contents, str):
            return bytearray(binascii.a2b_base64(contents))
        if type(contents) is not int or not 0 <= contents < len(self._buffers):
            raise ValueError("not an encoded value: it has no such buffer")
        return self._buffers[contents]

    def _dict(self, pairs: Any) -> dict[Any, Any]:
        return {self.decode(key): self.decode(value) for key, value in pairs}

    def _range(self, parts: Any) -> range:
        return range(*(self.decode(part) for part in parts))

    def _complex(self, parts: Any) -> complex:
        real, imaginary = parts
        return complex(float.fromhex(real), float.fromhex(imaginary))

    def _datetime(self, contents: Any) -> Any:
        from datetime import datetime

        text, zone, fold = contents
        value = datetime.fromisoformat(text)
        if zone is not None:
            from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

            try:
                value = value.replace(tzinfo=ZoneInfo(zone))
            except ZoneInfoNotFoundError:
                pass  # The offset is part of the text.
        return value.replace(fold=fold) if fold else value

    def _timedelta(self, contents: Any) -> Any:
        from datetime import timedelta

        days, seconds, microseconds = contents
        return timedelta(days, seconds, microseconds)

    def _fraction(self, contents: Any) -> Any:
        from fractions import Fraction

        numerator, denominator = contents
        return Fraction(self.decode(numerator), self.decode(denominator))

    def _array(self, contents: Any) -> Any:
        dtype, shape, where = contents
        numpy = _imported("numpy")
        data = self._contents(where)
        if numpy is None:
            view: Any = memoryview(data).cast("B")
            item = _format(dtype)
            return view.cast(item, shape) if view.nbytes else view.cast(item)
        array = numpy.frombuffer(data, dtype=_checked(dtype)) if len(data) else numpy.empty(0, _checked(dtype))
        return array.reshape(shape)

    def _objects(self, contents: Any) -> Any:
        shape, items = contents
        numpy = _imported("numpy")
        values = [self.decode(item) for item in items]
        if numpy is None:
            return values
        array = numpy.empty(len(values), dtype=object)
        array[:] = values
        return array.reshape(shape)

    def _scalar(self, contents: Any) -> Any:
        dtype, text = contents
        data = binascii.a2b_base64(text)
        numpy = _imported("numpy")
        if numpy is None:
            view: Any = memoryview(data)
            return view.cast(_format(dtype))[0]
        return numpy.frombuffer(data, dtype=_checked(dtype))[0]

    def _timestamp(self, text: Any) -> Any:
        pandas = _imported("pandas")
        if pandas is not None:
            return pandas.Timestamp(text)
        from datetime import datetime

        # `datetime` has microseconds.
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))

    def _missing(self, name: Any) -> Any:
        pandas = _imported("pandas")
        if name not in ("NaT", "NA"):
            raise ValueError("not an encoded value: $missing")
        return getattr(pandas, name, None)

    def _frame(self, contents: Any) -> Any:
        index, columns = contents
        pandas = _imported("pandas")
        decoded = [(self.decode(name), dtype, self.decode(values)) for name, dtype, values in columns]
        if pandas is None:
            return {name: values for name, _, values in decoded}
        rows = _index(pandas, self.decode(index))
        series = [_column(pandas, dtype, rows, values) for _, dtype, values in decoded]
        frame = pandas.DataFrame(dict(enumerate(series)), index=rows)
        frame.columns = [name for name, _, _ in decoded]
        return frame

    def _series(self, contents: Any) -> Any:
        name, dtype, index, values = contents
        pandas = _imported("pandas")
        if pandas is None:
            return self.decode(values)
        series = _column(pandas, dtype, _index(pandas, self.decode(index)), self.decode(values))
        series.name = self.decode(name)
        return series


def _imported(name: str) -> Any:
    """Returns a package, or None if it is not installed."""
    try:
        return __import__(name)
    except ImportError:
        return None


def _checked(dtype: Any) -> str:
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError("not an encoded value: the type of an array")
    return dtype


def _format(dtype: Any) -> str:
    """Returns the format of `memoryview.cast` for a dtype of numpy."""
    text = _checked(dtype)
    if text[0] == ">" or text.lstrip("<|=") not in _FORMATS:
        raise ValueError(f"the value is an array of {text}: install numpy to receive it")
    return _FORMATS[text.lstrip("<|=")]


def _index(pandas: Any, index: Any) -> Any:
    return pandas.RangeIndex(index.start, index.stop, index.step) if type(index) is range else pandas.Index(index)


def _column(pandas: Any, dtype: Any, index: Any, values: Any) -> Any:
    if dtype is None:
        return pandas.Series(values, index=index)
    try:
        return pandas.Series(values, index=index, dtype=dtype)
    except _DTYPE_ERRORS:
        # A type that this version of pandas does not have.
        return pandas.Series(values, index=index, dtype=object)


def _integer(_: _Decoder, text: Any) -> int:
    return int(text, 16)


def _float(_: _Decoder, text: Any) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("not an encoded value: $float")
    return float(text)


def _standard(module: str, name: str, constructor: str | None = None) -> Callable[[_Decoder, Any], Any]:
    """Returns a decoder that creates an object of the standard library from its text."""

    def decode_text(_: _Decoder, text: Any) -> Any:
        if not isinstance(text, str):
            raise ValueError(f"not an encoded value: {name}")
        kind = getattr(__import__(module), name)
        return getattr(kind, constructor)(text) if constructor else kind(text)

    return decode_text


_DECODERS: dict[str, Callable[[_Decoder, Any], Any]] = {
    "$int": _integer,
    "$float": _float,
    "$complex": _Decoder._complex,
    "$bytes": lambda decoder, contents: bytes(decoder._contents(contents)),
    "$bytearray": lambda decoder, contents: bytearray(decoder._contents(contents)),
    "$tuple": lambda decoder, items: tuple(map(decoder.decode, items)),
    "$set": lambda decoder, items: set(map(decoder.decode, items)),
    "$frozenset": lambda decoder, items: frozenset(map(decoder.decode, items)),
    "$dict": _Decoder._dict,
    "$range": _Decoder._range,
    "$datetime": _Decoder._datetime,
    "$date": _standard("datetime", "date", "fromisoformat"),
    "$time": _standard("datetime", "time", "fromisoformat"),
    "$timedelta": _Decoder._timedelta,
    "$decimal": _standard("decimal", "Decimal"),
    "$fraction": _Decoder._fraction,
    "$uuid": _standard("uuid", "UUID"),
    "$array": _Decoder._array,
    "$objects": _Decoder._objects,
    "$scalar": _Decoder._scalar,
    "$timestamp": _Decoder._timestamp,
    "$missing": _Decoder._missing,
    "$frame": _Decoder._frame,
    "$series": _Decoder._series,
}

"""Values that cross between the sandbox and this process."""

from __future__ import annotations

import array
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import random
import uuid
import zoneinfo
from typing import Any

import pytest
from conftest import missing, need

import belljar
from belljar import Sandbox, _values
from belljar._encoding import encode

UTC = datetime.timezone.utc
VALUES: list[Any] = [
    None,
    True,
    0,
    -(10**40),
    10**6000,
    1.5,
    -0.0,
    math.inf,
    2 + 3j,
    "é\n\x00",
    "\ud800",
    b"",
    b"\x00\xff" * 5000,
    bytearray(b"abc"),
    [1, [2, []]],
    (1, ("a",)),
    {1, 2},
    frozenset(["a"]),
    {"a": {"b": None}},
    {1: "a", (1, 2): "b", "$int": 3, None: 4},
    {"$bytes": "not an encoded value"},
    range(2, 10, 3),
    datetime.datetime(2024, 1, 2, 3, 4, 5, 678),
    datetime.datetime(2024, 1, 2, tzinfo=UTC),
    datetime.date(2024, 2, 29),
    datetime.time(1, 2, 3),
    datetime.timedelta(days=-1, microseconds=5),
    decimal.Decimal("1.10"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=5),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_value_crosses_both_ways_with_its_type(box: Sandbox, value: Any) -> None:
    received = box.run("x", globals={"x": value}).check().value
    assert received == value and type(received) is type(value)


def test_all_values_cross_together(box: Sandbox) -> None:
    run = box.run("[type(x).__name__ for x in values], values", globals={"values": VALUES})
    names, values = run.check().value
    assert values == VALUES and names == [type(value).__name__ for value in VALUES]


def test_nan_and_negative_zero_cross(box: Sandbox) -> None:
    nan, zero = box.run("[x, -0.0]", globals={"x": math.nan}).value
    assert math.isnan(nan) and math.copysign(1, zero) == -1


def test_time_zones_cross(box: Sandbox) -> None:
    moment = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    assert box.run("x", globals={"x": moment}).value == moment
    try:
        berlin = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1)
    except zoneinfo.ZoneInfoNotFoundError:
        missing("python-packages", "this machine has no time zones, and tzdata is not installed")
    # Without the package tzdata, the sandbox knows the offset only.
    assert box.run("x.isoformat()", globals={"x": berlin}).value == "2024-10-27T02:30:00+01:00"


def test_arrays_cross_as_buffers(numpy_box: Sandbox) -> None:
    numbers = array.array("d", range(100_000))
    run = numpy_box.run("x[10], x.dtype.str, x", globals={"x": memoryview(numbers)})
    tenth, item, back = run.check().value
    assert (float(tenth), item) == (10.0, "<f8") and memoryview(back).tobytes() == numbers.tobytes()


def test_arrays_of_numpy_cross_both_ways(numpy_box: Sandbox) -> None:
    numpy = need("numpy")
    for dtype in ("f8", "i2", "?", "c16", "M8[s]"):
        original = numpy.arange(3000).astype(dtype).reshape(30, 100)
        back = numpy_box.run("(x, x.T)", globals={"x": original}).check().value
        for received, sent in zip(back, (original, original.T)):
            assert received.dtype == sent.dtype and (received == sent).all(), dtype
    session = numpy_box.session()
    session.run("y = x + 1", globals={"x": numpy.ones(10)}).check()
    assert session.run("y.sum()").check().value == 20


def test_array_without_numpy_in_the_sandbox_is_an_error_that_names_numpy(box: Sandbox) -> None:
    run = box.run("x", globals={"x": array.array("d", [1.0])})
    assert run.error is not None and "numpy" in str(run.error)


def test_large_bytes_cross_exactly(box: Sandbox) -> None:
    data = random.Random(1).randbytes(20 << 20)
    run = box.run("import hashlib; hashlib.sha256(x).hexdigest(), x", globals={"x": data})
    digest, back = run.check().value
    import hashlib

    assert back == data and digest == hashlib.sha256(data).hexdigest()


def test_several_buffers_keep_their_order(box: Sandbox) -> None:
    data = {name: bytes([number]) * 10_000 for number, name in enumerate("abc")}
    assert box.run("a[0], b[0], c[0], [c, b, a]", globals=data).value == (0, 1, 2, [data["c"], data["b"], data["a"]])


def test_objects_of_other_classes_become_what_json_has_for_them(box: Sandbox) -> None:
    code = """
import dataclasses, enum, pathlib
@dataclasses.dataclass
class Point:
    x: int
class Color(enum.Enum):
    RED = 'red'
class Plain:
    def __repr__(self): return '<plain>'
[Point(1), Color.RED, Plain(), (n for n in range(2)), pathlib.Path('/a')]
"""
    assert box.run(code).check().value == [{"x": 1}, "red", "<plain>", [0, 1], "/a"]


def test_objects_of_the_host_become_plain_values(box: Sandbox) -> None:
    @dataclasses.dataclass
    class Point:
        x: int

    class Color(enum.Enum):
        RED = "red"

    assert box.run("[p, c]", globals={"p": Point(1), "c": Color.RED}).value == [{"x": 1}, "red"]


def test_value_that_cannot_cross_names_the_variable(box: Sandbox) -> None:
    with pytest.raises(belljar.ArgumentTypeError, match=r"globals\['y'\]"):
        box.run("1", globals={"x": 1, "y": object()})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(belljar.ArgumentTypeError, match="contains itself"):
        box.run("1", globals={"x": loop})


def test_value_that_contains_itself_is_returned_in_part(box: Sandbox) -> None:
    assert box.run("x = [1]; x.append(x); x").value == [1, "..."]


def test_too_large_value_is_left_out() -> None:
    box = Sandbox(limits={"value": 1000}, install=False)
    assert "left out" in box.run("b'x' * 5000").value
    assert box.run("b'x' * 100").value == b"x" * 100


@pytest.mark.parametrize(
    "text",
    [
        '{"$array":["<f8",[3],"AAAA"]}',
        '{"$array":["O",[1],"AAAAAAAAAAA="]}',
        '{"$unknown":1}',
        '{"$bytes":5}',
        '{"$bytes":-1}',
        '{"$set":[[1]]}',
        '{"$dict":5}',
        '{"$datetime":["2024-01-01","../../etc/passwd",0]}',
        '{"$fraction":[1,0]}',
        '{"$int":"zz"}',
        "[" * 100_000,
    ],
)
def test_forged_value_is_a_value_error(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        _values.decode(text)


def test_forged_value_of_code_is_an_error_of_the_run(box: Sandbox) -> None:
    run = box.run("import _belljar.values as v; v._Encoder.encode = lambda self, value: {'$unknown': 1}; [1]")
    with pytest.raises(belljar.SandboxError, match="cannot be read"):
        _ = run.value


def test_random_values_cross(box: Sandbox) -> None:
    generator = random.Random(7)

    def value(depth: int) -> Any:
        kind = generator.randrange(12 if depth else 8)
        items = range(generator.randrange(4))
        return [
            lambda: None,
            lambda: generator.random() < 0.5,
            lambda: generator.randrange(-(10**30), 10**30),
            lambda: generator.uniform(-1e300, 1e300),
            lambda: "".join(chr(generator.randrange(0xD7FF)) for _ in items),
            lambda: generator.randbytes(generator.choice([0, 3, 5000])),
            lambda: datetime.datetime.fromtimestamp(generator.randrange(2**32), UTC),
            lambda: decimal.Decimal(generator.randrange(10**9)).scaleb(-3),
            lambda: [value(depth - 1) for _ in items],
            lambda: tuple(value(depth - 1) for _ in items),
            lambda: {f"${key}" if generator.random() < 0.1 else f"k{key}": value(depth - 1) for key in items},
            lambda: {key: value(depth - 1) for key in items},
        ][kind]()

    for _ in range(5):
        values = [value(4) for _ in range(30)]
        assert box.run("values", globals={"values": values}).check().value == values


def test_encoding_of_numpy_and_pandas_is_exact() -> None:
    import numpy
    import pandas

    for dtype in ("f8", "f4", "i1", "u8", "?", "c16", "M8[ns]", "m8[s]", "S3", "U2"):
        original = numpy.arange(12).astype(dtype).reshape(3, 4)
        text, buffers = encode(original)
        decoded = _values.decode(text, [bytearray(buffer) for buffer in buffers])
        assert decoded.dtype == original.dtype and (decoded == original).all(), dtype
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", None], "c": pandas.to_datetime(["2024-01-01", None])})
    text, buffers = encode(frame)
    pandas.testing.assert_frame_equal(_values.decode(text, [bytearray(buffer) for buffer in buffers]), frame)

"""Encodes objects of numpy and pandas, as feeds return them, with the guest's modules in this Python: `package_nodes.py
GUEST`, with the directory of the modules. The sandbox's own wheels of these packages are on Pyodide's CDN only.
"""

import datetime
import math
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def load_encoder(guest: Path) -> type:
    """Imports the encoder from a copy of the modules, without the type statements of newer versions of Python."""
    with tempfile.TemporaryDirectory() as directory:
        package = Path(directory, "guest_copy")
        package.mkdir()
        (package / "__init__.py").touch()
        for name in ("monty_encoding", "monty_names", "monty_objects", "value_json"):
            text = re.sub(r"^type (\w+) = (.+)$", r'\1 = "\2"', (guest / f"{name}.py").read_text(), flags=re.M)
            (package / f"{name}.py").write_text(text)
        sys.path.insert(0, directory)
        from guest_copy.monty_encoding import Encoder

        sys.path.remove(directory)
        return Encoder


Encoder = load_encoder(Path(sys.argv[1]))


def crossed(value: Any) -> Any:
    """Returns what the client makes of a value; nodes of other kinds as they are."""
    encoder = Encoder()
    root = encoder.add(value)

    def decoded(index: int) -> Any:
        ((kind, content),) = encoder.nodes[index].items()
        match kind:
            case "list":
                return [decoded(each) for each in content]
            case "tuple":
                return tuple(decoded(each) for each in content)
            case "dict":
                return {decoded(key): decoded(each) for key, each in content}
            case "float":
                return float(content)
            case "none":
                return None
            case "int" | "boolean" | "str":
                return content
        return {kind: content}

    return decoded(root)


def same(value: Any, expected: Any) -> None:
    found = crossed(value)
    assert repr(found) == repr(expected), (value, found, expected)


def main() -> None:
    same(np.arange(6).reshape(2, 3), [[0, 1, 2], [3, 4, 5]])
    same([np.float32(0.5), np.float64(0.1), np.bool_(True), np.int64(2**62), np.array(3), np.str_("a")],
         [0.5, 0.1, True, 2**62, 3, "a"])  # fmt: skip
    same(np.array([1, math.nan, math.inf]), [1.0, math.nan, math.inf])
    same(np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]), [(1, 2.5)])
    same({"rows": np.array([], dtype=float)}, {"rows": []})
    same(np.ma.array([1, 2], mask=[False, True]), [1, None])
    assert crossed(np.array([1 + 2j])) == [crossed(1 + 2j)]
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 500_000)
    for unit in ("ms", "us", "ns"):
        assert crossed(np.array([moment], dtype=f"datetime64[{unit}]")) == [crossed(moment)], unit
    assert crossed(np.datetime64("2026-01-02")) == crossed(moment.date())
    same(np.array(["NaT"], dtype="datetime64[ns]"), [None])
    frame = pd.DataFrame({"city": ["Oslo", "Rome"], "celsius": [1.5, math.nan]})
    same(frame, [{"city": "Oslo", "celsius": 1.5}, {"city": "Rome", "celsius": math.nan}])
    same([frame["city"], pd.Index([1, 2]), pd.Categorical(["a"]), pd.NaT, pd.NA],
         [["Oslo", "Rome"], [1, 2], ["a"], None, None])  # fmt: skip
    assert crossed(pd.Timestamp(moment)) == crossed(moment)
    assert crossed(pd.Timestamp("2026-01-02", tz="Europe/Oslo"))["datetime"]["offset_seconds"] == 3600
    assert crossed(pd.Timedelta("1s")) == crossed(datetime.timedelta(seconds=1))
    assert crossed(pd.DataFrame({"t": [pd.Timestamp(moment), pd.NaT]})) == [{"t": crossed(moment)}, {"t": None}]
    # What has no value of Python's types is a text, as are objects whose methods fail.
    for value in (np.longdouble(1), np.add, np.dtype("int32"), pd.Period("2026-01"), frame.groupby("city")):
        assert list(crossed(value)) == ["repr"], value

    class Broken(np.ndarray):
        __module__ = "numpy"

        def tolist(self) -> Any:
            raise ValueError("no")

    assert list(crossed(np.zeros(1).view(Broken))) == ["repr"]
    endless = np.empty(1, object)
    endless[0] = endless
    assert crossed(endless) == [{"cycle": "..."}]


main()

"""Passes values of numpy and pandas to pydantic-monty's client, on the worker whose path is the first argument."""

import sys

from pydantic_monty import Monty

with Monty(binary_path=sys.argv[1], max_processes=1, request_timeout=300) as pool, pool.checkout() as session:
    code = "import numpy as np\ngrid = np.arange(6).reshape(2, 3)\n[grid, grid.sum(), np.float32(0.5), np.bool_(True)]"
    found = session.feed_run(code)
    assert found == [[[0, 1, 2], [3, 4, 5]], 15, 0.5, True], found
    assert [type(each) for each in found] == [list, int, float, bool], found
    assert repr(session.feed_run("np.array([1, np.nan])")) == "[1.0, nan]"
    passed = []
    session.feed_run(
        "take(grid * 2, rows=grid[0])", external_lookup={"take": lambda *args, **named: passed.append((args, named))}
    )
    assert passed == [(([[0, 2, 4], [6, 8, 10]],), {"rows": [0, 1, 2]})], passed
    assert session.feed_run("float(np.mean(given))", inputs={"given": [1, 2, 6]}) == 3.0
    code = "import pandas as pd\npd.DataFrame({'city': ['Oslo', 'Rome'], 'celsius': [1.5, 20.0]})"
    assert session.feed_run(code) == [{"city": "Oslo", "celsius": 1.5}, {"city": "Rome", "celsius": 20.0}]

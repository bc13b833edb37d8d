import contextlib
import io
import time
import warnings

with contextlib.redirect_stderr(io.StringIO()) as shown, warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    import joblib
    from tqdm import tqdm
    from tqdm.contrib.concurrent import process_map, thread_map

    for _ in tqdm(range(3)):
        time.sleep(0.01)
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(n, 2) for n in range(4)) == [0, 1, 4, 9]
    assert joblib.Parallel(n_jobs=2, prefer="threads")(joblib.delayed(abs)(n) for n in (-1, -2)) == [1, 2]
    assert thread_map(str, range(3), disable=True) == ["0", "1", "2"]
    assert process_map(str, range(3), max_workers=2, disable=True) == ["0", "1", "2"]
assert "100%" in shown.getvalue() and "Traceback" not in shown.getvalue(), shown.getvalue()
warned = [str(each.message) for each in warned if "Warning" in type(each.message).__name__]
assert not [text for text in warned if "Monitor" in text], warned
assert tqdm.monitor is None

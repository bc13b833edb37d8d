"""Runs one module of CPython's test suite inside the sandbox and reports each test.

Arguments: ``--stepped`` or nothing, the module's name, then the ids of tests to leave out. With ``--stepped``, event
loops are left whenever they wait, as those of cells that await are on a server.

The report goes to standard output as JSON text sequences (RFC 7464): each record begins with the character RS and
ends with a newline, which distinguishes it from the output of the tests. Records are
``{"start": ID}`` when a test begins, ``{"end": ID, "outcome": "passed" | "failed" | "skipped", "detail": TEXT}``
when it ends, and ``{"ran": COUNT}`` when all have.
"""

import doctest
import importlib
import json
import os
import random
import sys
import tempfile
import time
import traceback
import unittest

SUITE = "/cpython-tests"
"""The mount point of the directory with the `test` package."""

DETAIL = 4000
"""The number of characters reported of a failure: its end, which contains the exception."""

_report = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
"""A separate stream, because tests replace `sys.stdout`, and some close it."""


def report(**record: object) -> None:
    """Write one record and flush it, because the test may end the process."""
    _report.write(f"\x1e{json.dumps(record)}\n")
    _report.flush()


class Result(unittest.TestResult):
    """Reports one outcome for each test. A test with a failed subtest has failed."""

    def __init__(self) -> None:
        super().__init__()
        self._outcome = "passed"
        self._detail: list[str] = []

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome, self._detail = "passed", []
        report(start=test.id())

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        if sys.exception() is None:
            self._end(test.id())
        # Otherwise KeyboardInterrupt or SystemExit is on its way: the test ends the process.

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        self._fail(test, err)

    def addError(self, test: unittest.TestCase, err: object) -> None:
        self._fail(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: object) -> None:
        if err is not None:
            self._fail(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        if self._outcome == "passed":
            self._outcome = "skipped"
        self._detail.append(reason)
        if _is_fixture(test):
            self._end(test.id())

    def addExpectedFailure(self, test: unittest.TestCase, err: object) -> None:
        pass

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._outcome, self._detail = "failed", ["passes, though it is marked as an expected failure"]

    def _fail(self, test: unittest.TestCase, err: tuple) -> None:
        lines = traceback.format_exception(*err)
        self._outcome = "failed"
        self._detail.append("".join(lines))
        if _is_fixture(test):
            self._end(test.id())

    def _end(self, test: str) -> None:
        # The reader of the report does not accept lone surrogates, which messages can contain.
        detail = "\n".join(self._detail)[-DETAIL:].encode(errors="backslashreplace").decode()
        report(end=test, outcome=self._outcome, detail=detail)
        self._outcome, self._detail = "passed", []


def _is_fixture(test: unittest.TestCase) -> bool:
    """Return whether this represents setUpClass or setUpModule, for which no test starts."""
    return not isinstance(test, unittest.TestCase) or type(test).__name__ == "_ErrorHolder"


def prepare() -> None:
    """Make the suite importable, and configure it as regrtest does."""
    sys.path.append(SUITE)

    from test import support

    # The resources of regrtest without -u: no network, no large files, no tests that take minutes.
    support.use_resources = []
    support.verbose = False
    # Tests that fail with Emscripten's own file system and clocks may pass with belljar's.
    support.is_emscripten = False
    # The suite skips whole modules on Emscripten because asyncio's loop needs sockets there; belljar's does not.
    one_test = support.requires_working_socket
    support.requires_working_socket = lambda *, module=False: None if module else one_test()


def step_loops() -> None:
    """Make event loops run in steps. A wait in which a server would do other work sleeps instead."""
    from _belljar.event_loop import EventLoop

    def run_forever(loop: EventLoop) -> None:
        for timeout in EventLoop.steps(loop):
            assert timeout is not None, "the host has no functions here"
            time.sleep(timeout)

    EventLoop.run_forever = run_forever


def run(module: str, result: unittest.TestResult, left_out: set[str]) -> None:
    """Run a module's tests the way regrtest does: through its `test_main`, if it has one."""
    from test import support

    def run_suite(suite: unittest.TestSuite) -> None:
        tests_of(suite, left_out).run(result)

    try:
        imported = importlib.import_module(module)
    except unittest.SkipTest as reason:
        report(end=module, outcome="skipped", detail=str(reason))
        return
    if hasattr(imported, "test_main"):
        support._run_suite = run_suite
        support.run_doctest = lambda module, **_: run_suite(doctest.DocTestSuite(module))
        try:
            imported.test_main()
        except unittest.SkipTest as reason:
            report(end=module, outcome="skipped", detail=str(reason))
    else:
        run_suite(unittest.defaultTestLoader.loadTestsFromModule(imported))


def tests_of(suite: unittest.TestSuite, left_out: set[str]) -> unittest.TestSuite:
    """Return the same suite in the same order, without the tests that are left out."""
    kept = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            kept.addTest(tests_of(test, left_out))
        elif test.id() not in left_out:
            kept.addTest(test)
    return kept


def main(*arguments: str) -> None:
    """Run the module in an empty directory."""
    is_stepped = arguments[0] == "--stepped"
    module, *left_out = arguments[is_stepped:]
    prepare()
    if is_stepped:
        step_loops()
    os.chdir(tempfile.mkdtemp(prefix="test_"))
    random.seed(1)
    result = Result()
    try:
        run(module, result, set(left_out))
    except Exception:
        report(end=module, outcome="failed", detail=traceback.format_exc()[-DETAIL:])
    report(ran=result.testsRun)


main(*sys.argv[1:])

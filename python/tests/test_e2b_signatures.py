"""E2B's interface against the signatures of the package `e2b-code-interpreter` that is installed."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Callable
from typing import Any

from conftest import ROOT, need

import belljar
from belljar import code_interpreter
from belljar.code_interpreter import charts

PAGE = ROOT / "docs/python/e2b.md"

# What E2B's package exports and Belljar's does not: other services, and types of arguments.
NOT_EXPORTED = re.compile(
    r"(Async)?(Template|Volume|Secret|Git|E2B|Api|Connection|Watch)\w*"
    r"|Volume\w*|Template\w*|Git\w*|Sandbox(Network|Egress|Iam|Lifecycle|Info\w|OnTimeout|OnResume|ListOrder|Metrics)\w*"
    r"|\w*(Http|Proxy|Username|LogEntry|BuildInfo|BuildStatus|ReadyCmd|Pty|Filesystem|Dockerfile|GitHub|McpServer)\w*"
    r"|(wait_for|default_build|get_signature|client)\w*"
    r"|BuildException|FileUploadException|CopyItem|Stdout|Stderr|OutputHandler|RunCodeLanguage"
    r"|SandboxListOrder|SnapshotMode|AsyncWriteData"
)
# Parameters that Belljar lacks, by method.
MISSING_PARAMETERS: dict[str, set[str]] = {}


def pairs() -> list[tuple[str, type, type]]:
    """Returns the classes of E2B with those of Belljar."""
    e2b = need("e2b_code_interpreter")
    sync_files = need("e2b.sandbox_sync.filesystem.filesystem").Filesystem
    async_files = need("e2b.sandbox_async.filesystem.filesystem").Filesystem
    sync_commands = need("e2b.sandbox_sync.commands.command").Commands
    async_commands = need("e2b.sandbox_async.commands.command").Commands
    return [
        ("Sandbox", e2b.Sandbox, code_interpreter.Sandbox),
        ("AsyncSandbox", e2b.AsyncSandbox, code_interpreter.AsyncSandbox),
        ("files", sync_files, code_interpreter.Filesystem),
        ("files", async_files, code_interpreter.AsyncFilesystem),
        ("commands", sync_commands, code_interpreter.Commands),
        ("commands", async_commands, code_interpreter.AsyncCommands),
    ]


def names(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def is_async(member: Any) -> bool:
    # E2B's methods that are also methods of the class are wrapped by functions that are not asynchronous.
    return inspect.iscoroutinefunction(inspect.unwrap(member))


def test_every_method_and_parameter_of_e2b_exists() -> None:
    problems = []
    for label, theirs, ours in pairs():
        # Ports and templates of E2B's MCP gateway.
        for name in set(names(theirs)) - {"mcp_port", "default_mcp_template"}:
            if not hasattr(ours, name):
                problems.append(f"{label}.{name} is missing")
                continue
            expected, found = getattr(theirs, name), getattr(ours, name)
            if not callable(expected) or isinstance(inspect.getattr_static(theirs, name), property):
                continue
            given = inspect.signature(found).parameters
            for parameter in inspect.signature(expected).parameters.values():
                where = f"{label}.{name}({parameter.name})"
                if parameter.name in MISSING_PARAMETERS.get(f"{label}.{name}", set()) or parameter.name == "self":
                    continue
                if parameter.name not in given:
                    problems.append(f"{where} is missing")
                elif parameter.kind is not given[parameter.name].kind:
                    problems.append(f"{where} is {given[parameter.name].kind}")
                elif parameter.default != given[parameter.name].default:
                    problems.append(f"{where} is {given[parameter.name].default!r} by default")
            order = [each for each in inspect.signature(expected).parameters if each in given]
            if order != [each for each in given if each in order]:
                problems.append(f"{label}.{name}: the order of the parameters differs")
            if is_async(expected) != is_async(found):
                problems.append(f"{label}.{name}: one is asynchronous")
    assert problems == []


def test_handles_of_commands_have_the_members_of_e2b() -> None:
    for module, name in (
        ("sandbox_sync.commands.command_handle", "CommandHandle"),
        ("sandbox_async.commands.command_handle", "AsyncCommandHandle"),
        ("sandbox_async.commands.command_input_handle", "AsyncCommandInputHandle"),
    ):
        theirs, ours = getattr(need(f"e2b.{module}"), name), getattr(code_interpreter, name)
        assert names(theirs) == names(ours), name
        for member in names(theirs):
            expected, found = getattr(theirs, member), getattr(ours, member)
            if not isinstance(expected, property):
                assert is_async(expected) == is_async(found), f"{name}.{member}"
                parameters = [list(inspect.signature(each).parameters) for each in (expected, found)]
                assert parameters[0] == parameters[1], f"{name}.{member}"


def test_what_belljar_adds_is_documented() -> None:
    page = PAGE.read_text()
    for label, theirs, ours in pairs():
        for name in set(names(ours)) - set(names(theirs)):
            assert f"`{name}" in page or f".{name}(" in page, f"{label}.{name}"


def test_every_method_of_e2b_is_in_the_table_of_the_page() -> None:
    page = PAGE.read_text()
    for label, theirs, _ in pairs():
        prefix = "" if label.endswith("Sandbox") else f"{label}."
        for name in names(theirs):
            assert re.search(rf"`{re.escape(prefix + name)}[`(]", page), f"{prefix}{name} is not on the page"


def test_names_of_the_package_exist() -> None:
    e2b = need("e2b_code_interpreter")
    public = {name for name in vars(e2b) if not name.startswith("_") and not inspect.ismodule(vars(e2b)[name])}
    absent = {name for name in public - set(code_interpreter.__all__) if not NOT_EXPORTED.fullmatch(name)}
    assert absent == set()
    page = PAGE.read_text()
    assert all(name in page for name in ("Template", "Volume", "Secret", "`E2B`")), "the page names other services"


def test_errors_have_the_hierarchy_of_e2b() -> None:
    e2b = need("e2b_code_interpreter")
    common = [name for name in code_interpreter.__all__ if name.endswith("Exception") and hasattr(e2b, name)]
    assert len(common) >= 12
    for name in common:
        bases = {base.__name__ for base in getattr(e2b, name).__mro__} - {"Generic"}
        found = {base.__name__ for base in getattr(code_interpreter, name).__mro__}
        assert bases <= found, name
        if "SandboxException" in bases:
            assert issubclass(getattr(code_interpreter, name), belljar.BelljarError)


def fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def test_results_have_the_fields_of_e2b() -> None:
    e2b = need("e2b_code_interpreter")
    for name in (
        *("Execution", "Result", "Logs", "ExecutionError", "OutputMessage", "Context"),
        *("EntryInfo", "WriteInfo", "CommandResult", "CommandExitException", "SandboxInfo", "SandboxQuery"),
        *("SnapshotInfo", "ProcessInfo"),
    ):
        theirs, ours = getattr(e2b, name), getattr(code_interpreter, name)
        assert set(fields(theirs)) <= set(fields(ours)), name
        methods: Callable[[Any], set[str]] = lambda kind: {
            each
            for each in dir(kind)
            if callable(getattr(kind, each, None)) and each.startswith(("_repr_", "to_", "form"))
        }
        assert methods(theirs) <= methods(ours), name
    for name in ("FileType", "SandboxState"):
        theirs, ours = getattr(e2b, name), getattr(code_interpreter, name)
        assert issubclass(ours, enum.Enum)
        assert {each.name: each.value for each in theirs} == {each.name: each.value for each in ours}


def test_results_are_those_of_e2b() -> None:
    e2b = need("e2b_code_interpreter")
    with code_interpreter.Sandbox.create(box=belljar.Sandbox(install=False)) as sandbox:
        code = "import sys; print(1); print(2, file=sys.stderr); display(3)\n"
        code += "display({'a/b': 4, 'text/html': '<p>'}, raw=True)\n5"
        execution = sandbox.run_code(code)
    results = []
    for each in execution.results:
        known = {field.name: getattr(each, field.name) for field in dataclasses.fields(each)}
        results.append(e2b.Result(**known))
    same = e2b.Execution(results[:1], e2b.Logs(execution.logs.stdout, execution.logs.stderr), None, 1)
    ours = code_interpreter.Execution(execution.results[:1], execution.logs, None, 1)
    assert (ours.to_json(), repr(ours), ours.text) == (same.to_json(), repr(same), same.text)
    assert [str(each) for each in execution.results] == [str(each) for each in results]
    assert [list(each.formats()) for each in execution.results] == [list(each.formats()) for each in results]


def fields_of(kind: type) -> set[str]:
    """Returns the names of the annotated attributes of a class and its bases."""
    return {name for base in kind.__mro__ for name in inspect.get_annotations(base)}


def test_charts_have_the_fields_of_e2b() -> None:
    theirs = need("e2b_code_interpreter.charts")
    for name in ("ChartType", "ScaleType"):
        assert {each.name: each.value for each in getattr(theirs, name)} == {
            each.name: each.value for each in getattr(charts, name)
        }
    kinds = {name: kind for name, kind in vars(theirs).items() if isinstance(kind, type) and not name.startswith("_")}
    kinds = {name: kind for name, kind in kinds.items() if kind.__module__ == theirs.__name__}
    assert set(kinds) - {"ChartType", "ScaleType"} == {
        "BarChart",
        "BarData",
        "BoxAndWhiskerChart",
        "BoxAndWhiskerData",
        "Chart",
        "Chart2D",
        "LineChart",
        "PieChart",
        "PieData",
        "PointChart",
        "PointData",
        "ScatterChart",
        "SuperChart",
    }
    for name, kind in kinds.items():
        if not issubclass(kind, enum.Enum):
            expected, found = fields_of(kind), fields_of(getattr(charts, name))
            assert expected and expected - {"_raw_data"} <= found, name
    data = {"type": "pie", "title": "t", "elements": [{"label": "a", "angle": 90.0, "radius": 1.0}]}
    ours, same = charts.read_chart(data), theirs._deserialize_chart(data)
    assert ours is not None and ours.to_dict() == same.to_dict() and ours.elements[0].angle == same.elements[0].angle

"""The data of matplotlib's figures in results of E2B's interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import is_required, missing, need

import belljar
from belljar import code_interpreter as e2b
from belljar.code_interpreter import Sandbox, charts
from belljar.native import NativeServer


@pytest.fixture(scope="module")
def sandbox(native: NativeServer) -> Iterator[Sandbox]:
    need("matplotlib")
    with native.connect() as box, Sandbox.create(box=box) as sandbox:
        yield sandbox


def draw(sandbox: Sandbox, code: str) -> e2b.Result:
    """Returns the result of a cell that shows one figure."""
    execution = sandbox.run_code(f"import matplotlib.pyplot as plt\n{code}\nplt.show()")
    assert execution.error is None and execution.logs.stderr == [], execution
    (result,) = execution.results
    assert result.png
    return result


def test_lines(sandbox: Sandbox) -> None:
    code = """
import datetime
days = [datetime.date(2026, 11, day) for day in (1, 2, 3)]
plt.plot(days, [1, 2, float("nan")], label="sin(x)")
plt.plot(days, [3, 4, 5])
plt.axhline(2)
plt.xlabel("Time (s)")
plt.ylabel("Amplitude [Hz]")
plt.title("Waves")
"""
    result = draw(sandbox, code)
    chart = result.chart
    assert isinstance(chart, charts.LineChart)
    assert (chart.type, chart.title, chart.to_dict()["type"]) == (charts.ChartType.LINE, "Waves", "line")
    assert (chart.x_label, chart.x_unit, chart.y_label, chart.y_unit) == ("Time (s)", "s", "Amplitude [Hz]", "Hz")
    assert (chart.x_scale, chart.y_scale) == (charts.ScaleType.DATETIME, charts.ScaleType.LINEAR)
    assert len(chart.x_ticks) == len(chart.x_tick_labels) > 1 and chart.x_ticks[0] == "2026-11-01T00:00:00"
    assert chart.elements == [
        charts.PointData("sin(x)", [("2026-11-01", 1.0), ("2026-11-02", 2.0)]),
        charts.PointData("", [("2026-11-01", 3.0), ("2026-11-02", 4.0), ("2026-11-03", 5.0)]),
    ]
    assert list(result.formats()) == ["text", "png", "chart"] and result["chart"] is chart and result.extra == {}
    saved = json.loads(e2b.Execution([result]).to_json())["results"][0]
    assert saved["chart"] == chart.to_dict()


def test_points(sandbox: Sandbox) -> None:
    chart = draw(sandbox, "plt.scatter([1, 2], [3, 4.5], label='A'); plt.scatter([5], [6], label='B')").chart
    assert isinstance(chart, charts.ScatterChart)
    assert [(each.label, each.points) for each in chart.elements] == [("A", [(1, 3), (2, 4.5)]), ("B", [(5, 6)])]
    chart = draw(sandbox, "plt.plot(['x', 'y'], [3, 4], 'o')").chart
    assert isinstance(chart, charts.ScatterChart) and chart.x_scale is charts.ScaleType.CATEGORICAL
    assert chart.elements[0].points == [("x", 3.0), ("y", 4.0)] and chart.x_ticks == ["x", "y"]
    chart = draw(sandbox, "plt.scatter([1], [2]); plt.semilogy([1, 2], [10, 100])").chart
    assert isinstance(chart, charts.LineChart) and chart.y_scale is charts.ScaleType.LOG and len(chart.elements) == 2


def test_bars(sandbox: Sandbox) -> None:
    chart = draw(sandbox, "plt.bar(['A', 'B'], [1, 2.5], label='Books'); plt.ylabel('Count')").chart
    assert isinstance(chart, charts.BarChart) and (chart.x_label, chart.y_label) == (None, "Count")
    assert chart.elements == [charts.BarData("A", "Books", 1.0), charts.BarData("B", "Books", 2.5)]
    chart = draw(sandbox, "plt.barh([0.8, 1.2], [3, 4], 0.4); plt.yticks([1], ['both'])").chart
    assert isinstance(chart, charts.BarChart)
    assert [(each.label, each.value) for each in chart.elements] == [("both", 3.0), ("both", 4.0)]
    chart = draw(sandbox, "plt.hist([1, 1, 2, 3], bins=2)").chart
    assert isinstance(chart, charts.BarChart) and [each.value for each in chart.elements] == [2.0, 2.0]


def test_bars_have_the_labels_of_their_ticks(sandbox: Sandbox) -> None:
    chart = draw(sandbox, "plt.bar([f'n{i}' for i in range(600)], range(600))").chart
    assert isinstance(chart, charts.BarChart)
    assert [(each.label, each.value) for each in chart.elements] == [(f"n{i}", float(i)) for i in range(600)]
    # Ticks in another order, of which the bar in the middle has none.
    chart = draw(sandbox, "plt.bar([1, 2, 3], [4, 5, 6], 0.9); plt.xticks([3, 1], ['c', 'a'])").chart
    assert isinstance(chart, charts.BarChart) and [each.label for each in chart.elements] == ["a", "2", "c"]
    # Of equally near ticks, the first one counts.
    chart = draw(sandbox, "plt.bar([2], [5], 2); plt.xticks([3, 1], ['c', 'a'])").chart
    assert isinstance(chart, charts.BarChart) and [each.label for each in chart.elements] == ["c"]


def test_slices(sandbox: Sandbox) -> None:
    chart = draw(sandbox, "plt.pie([1, 3], labels=['p', 'q'], radius=0.5)").chart
    assert isinstance(chart, charts.PieChart)
    assert chart.elements == [charts.PieData("p", 90.0, 0.5), charts.PieData("q", 270.0, 0.5)]


@pytest.mark.parametrize(
    "options",
    [
        "orientation='horizontal'",
        "patch_artist=True, notch=True",
        "notch=True, showmeans=True",
        "showmeans=True, meanline=True",
        "showcaps=False",
    ],
)
def test_boxes(sandbox: Sandbox, options: str) -> None:
    chart = draw(sandbox, f"plt.boxplot([[1, 2, 3, 4, 50], [5, 6, 7, 8, 9]], tick_labels=['A', 'B'], {options})").chart
    assert isinstance(chart, charts.BoxAndWhiskerChart)
    assert chart.elements == [
        charts.BoxAndWhiskerData("A", 1.0, 2.0, 3.0, 4.0, 4.0, [50.0]),
        charts.BoxAndWhiskerData("B", 5.0, 6.0, 7.0, 8.0, 9.0, []),
    ]


def test_several_axes_are_a_superchart(sandbox: Sandbox) -> None:
    code = (
        "figure, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.pie([1]); a.set_title('left'); figure.suptitle('both')"
    )
    chart = draw(sandbox, code).chart
    assert isinstance(chart, charts.SuperChart) and chart.title == "both"
    assert [(type(each), each.title) for each in chart.elements] == [(charts.LineChart, "left"), (charts.PieChart, "")]


def test_other_figures_have_no_data(sandbox: Sandbox) -> None:
    chart = draw(sandbox, "plt.imshow([[1, 2]]); plt.colorbar(); plt.title('image')").chart
    assert chart == charts.Chart(charts.ChartType.UNKNOWN, "image", [])
    chart = draw(sandbox, "plt.figure().add_subplot(projection='polar').plot([1, 2])").chart
    assert chart is not None and chart.type is charts.ChartType.UNKNOWN
    assert draw(sandbox, "plt.plot(range(60_000))").chart is None
    # matplotlib's own mistakes do not hide the figure.
    code = (
        "import matplotlib.pyplot as plt\nplt.plot([1]); plt.gca().lines[0].get_linestyle = lambda: 1 / 0\nplt.show()"
    )
    execution = sandbox.run_code(code)
    assert "ZeroDivisionError" in str(execution.error or execution.logs.stderr)
    assert execution.results[0].png


def test_data_that_code_displays_itself_are_checked() -> None:
    """Code chooses what it displays."""
    point = {"label": "a", "points": [[1, "b"]]}
    axes: dict[str, Any] = {f"{axis}_{name}": None for axis in "xy" for name in ("label", "unit")}
    axes |= {f"{axis}_{name}": [] for axis in "xy" for name in ("ticks", "tick_labels")}
    axes |= {"x_scale": "linear", "y_scale": "of another version"}
    valid = {"type": "line", "title": "", "elements": [point], **axes}
    deep = valid
    for _ in range(5000):
        deep = {"type": "superchart", "title": "", "elements": [deep]}
    samples: list[Any] = [valid, {}, [], 1, {"type": "line"}, {**valid, "title": 1}, {**valid, "type": "none"}]
    samples += [
        {**valid, "elements": each} for each in (1, [1], [{**point, "points": [[1]]}], [{**point, "label": []}])
    ]
    samples += [{**valid, "x_scale": []}, {**valid, "x_ticks": [None]}, {**valid, "x_tick_labels": 1}]
    samples += [{"type": "pie", "title": "", "elements": [{"label": "a", "angle": True, "radius": 1}]}]
    found = [e2b.Result.from_bundle({"e2b/chart": each}, True).chart for each in samples]
    (chart,) = [each for each in found if each is not None]
    assert isinstance(chart, charts.LineChart) and chart.elements[0].points == [(1.0, "b")]
    assert chart.y_scale is charts.ScaleType.UNKNOWN
    # Charts contain charts only once.
    outer = e2b.Result.from_bundle({"e2b/chart": deep}, True).chart
    assert isinstance(outer, charts.SuperChart) and outer.elements == [charts.Chart(charts.ChartType.UNKNOWN, "", [])]


def test_figures_in_webassembly() -> None:
    if not is_required("pyodide-cdn"):
        missing("pyodide-cdn", "matplotlib for WebAssembly comes from Pyodide's CDN")
    with belljar.Sandbox(["matplotlib"]) as box, Sandbox.create(box=box) as sandbox:
        chart = draw(sandbox, "plt.bar(['A', 'B'], [1, 2])").chart
    assert isinstance(chart, charts.BarChart) and [each.value for each in chart.elements] == [1.0, 2.0]

"""The data of matplotlib's figures, as E2B's charts. `belljar.code_interpreter` runs this text there; it is not
imported.

The kind of a chart is that of what is drawn on its axes: wedges, boxes with whiskers, bars, points or lines.
"""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

MAX_VALUES = 100_000
"""The most values of a figure whose data are extracted."""

_UNIT = re.compile(r"\(([^()]+)\)\s*$|\[([^\[\]]+)\]\s*$")
"""The unit at the end of a label: in brackets."""


class TooLarge(Exception):
    """A figure has more values than are extracted."""


def chart_of(figure: Any) -> dict[str, Any] | None:
    """Returns the data of a figure; None if it has no axes, or too much data."""
    left = [MAX_VALUES]

    def spend(count: int) -> None:
        left[0] -= count
        if left[0] < 0:
            raise TooLarge

    try:
        axes = [each for each in figure.axes if each.get_visible() and each.get_label() != "<colorbar>"]
        charts = [_chart(each, spend) for each in axes]
    except TooLarge:
        return None
    above = figure.get_suptitle() if hasattr(figure, "get_suptitle") else ""
    if len(charts) > 1:
        return {"type": "superchart", "title": above, "elements": charts}
    for chart in charts:
        chart["title"] = chart["title"] or above
        return chart
    return None


def _chart(axes: Any, spend: Callable[[int], None]) -> dict[str, Any]:
    chart: dict[str, Any] = {"type": "unknown", "title": axes.get_title(), "elements": []}
    if axes.name != "rectilinear":
        # Polar coordinates and those of three dimensions are not those of a chart.
        return chart
    scales = _Axis(axes.xaxis), _Axis(axes.yaxis)
    for kind, extract in (("pie", _wedges), ("box_and_whisker", _boxes), ("bar", _bars)):
        if elements := extract(axes, scales, spend):
            chart.update(type=kind, elements=elements)
            return chart if kind == "pie" else chart | _labels(axes)
    lines, scatters = _lines(axes, scales, spend), _scatters(axes, scales, spend)
    if lines or scatters:
        # A line through points is a line chart, in which the points are a series, too.
        chart.update(type="line" if any(is_line for is_line, _ in lines) else "scatter")
        chart["elements"] = [series for _, series in lines] + scatters
        return chart | _labels(axes) | scales[0].as_fields("x") | scales[1].as_fields("y")
    return chart


def _labels(axes: Any) -> dict[str, Any]:
    labels: dict[str, Any] = {}
    for name, text in (("x", axes.get_xlabel()), ("y", axes.get_ylabel())):
        unit = _UNIT.search(text)
        labels |= {f"{name}_label": text or None, f"{name}_unit": (unit[1] or unit[2]) if unit else None}
    return labels


class _Axis:
    """An axis. What is the same for all its points is computed once."""

    def __init__(self, axis: Any) -> None:
        self._axis = axis
        self._is_date = any("Date" in kind.__name__ for kind in type(axis.get_major_formatter()).__mro__)
        mapping = getattr(axis.get_units(), "_mapping", None)
        names = mapping.items() if isinstance(mapping, dict) else ()
        self._categories = {float(place): str(name) for name, place in names}
        """The names of an axis of categories, by their places."""

    @cached_property
    def _ticks(self) -> list[tuple[float, str]]:
        """The places of the ticks, with their labels. To get the labels, matplotlib updates all of them."""
        places, labels = self._axis.get_majorticklocs(), self._axis.get_majorticklabels()
        return [(float(place), str(label.get_text())) for place, label in zip(places, labels)]

    @cached_property
    def _order(self) -> tuple[list[float], list[int]]:
        """The places of the ticks in ascending order, with their numbers."""
        numbers = sorted(range(len(self._ticks)), key=lambda number: self._ticks[number][0])
        return [self._ticks[number][0] for number in numbers], numbers

    def as_fields(self, name: str) -> dict[str, Any]:
        """Returns the fields of a chart that describe the axis."""
        scale = "datetime" if self._is_date else "categorical" if self._categories else self._axis.get_scale()
        places = [self.value(place) for place in self._axis.get_majorticklocs()]
        labels = [each.get_text() for each in self._axis.get_majorticklabels()]
        return {f"{name}_scale": scale, f"{name}_ticks": places, f"{name}_tick_labels": labels}

    def value(self, value: Any) -> str | float:
        """Returns a place on the axis: a date in ISO 8601, the name of a category, or a number."""
        if isinstance(value, str):
            return value
        if hasattr(value, "isoformat"):
            return str(value.isoformat())
        if type(value).__module__ == "numpy" and type(value).__name__ == "datetime64":
            return str(value)
        if hasattr(value, "to_timestamp"):
            # A period of pandas.
            return str(value)
        number = float(value)
        if not math.isfinite(number):
            return number
        if self._is_date:
            from matplotlib import dates

            read: Any = dates.num2date
            moment = read(number)
            return str((moment.replace(tzinfo=None) if moment.utcoffset() is not None else moment).isoformat())
        return self._categories.get(number, number)

    def tick(self, place: float, reach: float) -> str:
        """Returns the label of the tick that is the nearest to a place, within a reach; or the place itself."""
        places, numbers = self._order
        after = bisect_left(places, place)
        # Of ticks that are equally near, the first one counts: that with the lowest number.
        near = [after] if after < len(places) else []
        if after > 0:
            near.append(bisect_left(places, places[after - 1]))
        nearest = min(near, key=lambda at: (abs(places[at] - place), numbers[at]), default=None)
        if nearest is not None and abs(places[nearest] - place) <= reach * 1.001:
            label = self._ticks[numbers[nearest]][1]
            if label:
                return label
        value = self.value(place)
        return value if isinstance(value, str) else f"{value:g}"


def _points(scales: tuple[_Axis, _Axis], pairs: Iterable[tuple[Any, Any]]) -> list[list[str | float]]:
    """Returns the points that are drawn: those whose coordinates are numbers."""
    points = [[scales[0].value(x), scales[1].value(y)] for x, y in pairs]
    return [point for point in points if not any(isinstance(each, float) and not math.isfinite(each) for each in point)]


def _name(artist: Any) -> str:
    """Returns the label of something drawn. matplotlib's own labels begin with an underscore."""
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _lines(
    axes: Any, scales: tuple[_Axis, _Axis], spend: Callable[[int], None]
) -> list[tuple[bool, dict[str, Any]]]:
    """Returns the series of lines, each with whether it is a line and not only points."""
    series = []
    for line in axes.lines:
        # Lines across the whole axes, such as those of `axhline`, have other coordinates.
        if line.get_transform() != axes.transData or not line.get_visible():
            continue
        given = list(zip(line.get_xdata(orig=True), line.get_ydata(orig=True)))
        spend(2 * len(given))
        is_line = line.get_linestyle() not in ("None", " ", "")
        series.append((is_line, {"label": _name(line), "points": _points(scales, given)}))
    return series


def _scatters(axes: Any, scales: tuple[_Axis, _Axis], spend: Callable[[int], None]) -> list[dict[str, Any]]:
    from matplotlib.collections import PathCollection

    series = []
    for points in axes.collections:
        if isinstance(points, PathCollection) and points.get_visible():
            offsets: Any = points.get_offsets()
            spend(2 * len(offsets))
            # Points without a number are masked.
            given = offsets.filled(math.nan).tolist() if hasattr(offsets, "filled") else offsets.tolist()
            if given:
                series.append({"label": _name(points), "points": _points(scales, given)})
    return series


def _bars(axes: Any, scales: tuple[_Axis, _Axis], spend: Callable[[int], None]) -> list[dict[str, Any]]:
    from matplotlib.container import BarContainer

    bars = []
    for container in axes.containers:
        if not isinstance(container, BarContainer):
            continue
        spend(len(container.patches))
        is_vertical = container.orientation != "horizontal"
        for bar in container.patches:
            start, size = (bar.get_x(), bar.get_width()) if is_vertical else (bar.get_y(), bar.get_height())
            value = float(bar.get_height() if is_vertical else bar.get_width())
            label = scales[0 if is_vertical else 1].tick(start + size / 2, abs(size) / 2)
            if math.isfinite(value):
                bars.append({"label": label, "group": _name(container), "value": value})
    return bars


def _wedges(axes: Any, scales: tuple[_Axis, _Axis], spend: Callable[[int], None]) -> list[dict[str, Any]]:
    from matplotlib.patches import Wedge

    del scales
    wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
    spend(2 * len(wedges))
    return [
        {"label": _name(each), "angle": float(each.theta2 - each.theta1), "radius": float(each.r)} for each in wedges
    ]


class _Segment:
    """A straight line along an axis: its ends across the boxes, and its ends along them."""

    def __init__(self, line: Any, along: int) -> None:
        coordinates = (line.get_xdata(orig=False), line.get_ydata(orig=False))
        across = [float(each) for each in coordinates[1 - along]]
        values = [float(each) for each in coordinates[along]]
        self.middle, self.width = (min(across) + max(across)) / 2, max(across) - min(across)
        self.low, self.high = min(values), max(values)


def _boxes(axes: Any, scales: tuple[_Axis, _Axis], spend: Callable[[int], None]) -> list[dict[str, Any]]:
    """Returns boxes with whiskers. matplotlib draws them with lines, which nothing groups."""
    from matplotlib.patches import PathPatch

    # With notches, an outline has 11 points instead of 5. A path ends with one more.
    drawn = [line.get_xydata() for line in axes.lines]
    outlines = [each.tolist() for each in drawn if len(each) in (5, 11)]
    closed = [each for each in outlines if each[0] == each[-1]]
    paths: list[Any] = [patch.get_path().vertices for patch in axes.patches if isinstance(patch, PathPatch)]
    closed += [each.tolist() for each in paths if len(each) in (5, 6, 11, 12)]
    if not closed:
        return []
    spend(sum(map(len, drawn)))
    lines = [line for line in axes.lines if len(line.get_xdata(orig=False)) == 2]
    for along in (1, 0):
        segments = [_Segment(line, along) for line in lines]
        boxes = [box for outline in closed if (box := _box(axes, scales, outline, along, segments)) is not None]
        if len(boxes) == len(closed):
            return boxes
    return []


def _box(
    axes: Any, scales: tuple[_Axis, _Axis], outline: Any, along: int, segments: list[_Segment]
) -> dict[str, Any] | None:
    """Returns the box with an outline whose values are on the axis `along`; None if it has no whiskers or median."""
    across = [float(point[1 - along]) for point in outline]
    middle, width = (min(across) + max(across)) / 2, max(across) - min(across)
    near = width * 1e-6 + 1e-12
    own = [each for each in segments if abs(each.middle - middle) <= near]
    whiskers = sorted((each for each in own if each.width <= near), key=lambda each: each.low + each.high)
    if len(whiskers) != 2:
        return None
    below, above = whiskers
    bars = [each for each in own if each.width > near and each.low == each.high]
    if len(bars) > 2 and {bars[0].low, bars[1].low} == {below.low, above.high}:
        # The caps are drawn before the median, and a line for the mean after it.
        bars = bars[2:]
    if not bars:
        return None
    points = [
        float(point[along])
        for line in axes.lines
        if _shows_outliers(line)
        for point in line.get_xydata()
        if abs(point[1 - along] - middle) <= near and not below.low <= point[along] <= above.high
    ]
    return {
        "label": scales[1 - along].tick(middle, width / 2),
        "min": below.low,
        "first_quartile": below.high,
        "median": bars[0].low,
        "third_quartile": above.low,
        "max": above.high,
        "outliers": points,
    }


def _shows_outliers(line: Any) -> bool:
    from matplotlib import rcParams

    mean, outlier = rcParams["boxplot.meanprops.marker"], rcParams["boxplot.flierprops.marker"]
    marker = line.get_marker()
    is_mean = marker == mean != outlier
    return line.get_linestyle() in ("None", " ", "") and marker not in ("None", " ", "", None) and not is_mean


def safe_chart(figure: Any) -> dict[str, Any] | None:
    """Returns the data of a figure. A figure that cannot be read is shown without them."""
    try:
        return chart_of(figure)
    except Exception as error:
        print(f"[the data of a figure are not extracted: {type(error).__name__}: {error}]", file=sys.stderr)
        return None

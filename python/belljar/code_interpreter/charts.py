"""The data of figures: the types of ``Result.chart``."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar


class ChartType(str, enum.Enum):
    """The kind of a chart."""

    LINE = "line"
    SCATTER = "scatter"
    BAR = "bar"
    PIE = "pie"
    BOX_AND_WHISKER = "box_and_whisker"
    SUPERCHART = "superchart"
    UNKNOWN = "unknown"


class ScaleType(str, enum.Enum):
    """The scale of an axis."""

    LINEAR = "linear"
    DATETIME = "datetime"
    CATEGORICAL = "categorical"
    LOG = "log"
    SYMLOG = "symlog"
    LOGIT = "logit"
    FUNCTION = "function"
    FUNCTIONLOG = "functionlog"
    ASINH = "asinh"
    UNKNOWN = "unknown"


@dataclass
class Chart:
    """A figure, or the axes of a figure that has several."""

    type: ChartType
    title: str
    """The title, or an empty text."""
    elements: list[Any]
    """The lines, bars and so on, by the type. Empty for ``unknown``."""
    _raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False, kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """Returns the chart as values of JSON."""
        return self._raw


@dataclass
class Chart2D(Chart):
    """A chart with two axes."""

    x_label: str | None = None
    y_label: str | None = None
    x_unit: str | None = None
    """The unit, if the label ends with one in brackets: ``Time (s)``."""
    y_unit: str | None = None


@dataclass
class PointData:
    """A series of points."""

    label: str
    """The label, or an empty text."""
    points: list[tuple[str | float, str | float]]
    """Numbers, names of categories, and dates in ISO 8601."""


@dataclass
class PointChart(Chart2D):
    """A chart of points or lines."""

    elements: list[PointData]
    x_ticks: list[str | float] = field(default_factory=list)
    x_tick_labels: list[str] = field(default_factory=list)
    x_scale: ScaleType = ScaleType.UNKNOWN
    y_ticks: list[str | float] = field(default_factory=list)
    y_tick_labels: list[str] = field(default_factory=list)
    y_scale: ScaleType = ScaleType.UNKNOWN


@dataclass
class LineChart(PointChart):
    """Lines, each with the points through which it is drawn."""


@dataclass
class ScatterChart(PointChart):
    """Points."""


@dataclass
class BarData:
    """A bar."""

    label: str
    """The label of its tick, or its place."""
    group: str
    """The label of the bars that were drawn together, or an empty text."""
    value: float
    """Its length."""


@dataclass
class BarChart(Chart2D):
    """Bars, also those of histograms."""

    elements: list[BarData]


@dataclass
class PieData:
    """A slice."""

    label: str
    angle: float
    """In degrees."""
    radius: float


@dataclass
class PieChart(Chart):
    """Slices."""

    elements: list[PieData]


@dataclass
class BoxAndWhiskerData:
    """A box with its whiskers."""

    label: str
    min: float
    """The end of the whisker."""
    first_quartile: float
    median: float
    third_quartile: float
    max: float
    outliers: list[float]


@dataclass
class BoxAndWhiskerChart(Chart2D):
    """Boxes with whiskers."""

    elements: list[BoxAndWhiskerData]


@dataclass
class SuperChart(Chart):
    """A figure with several axes, each of which is a chart."""

    elements: list[Chart]


ChartTypes: TypeAlias = "Chart | LineChart | ScatterChart | BarChart | PieChart | BoxAndWhiskerChart | SuperChart"
"""The types of charts."""

_CHARTS: dict[str, type[Chart]] = {
    "line": LineChart,
    "scatter": ScatterChart,
    "bar": BarChart,
    "pie": PieChart,
    "box_and_whisker": BoxAndWhiskerChart,
}
_ELEMENTS: dict[str, Any] = {"bar": BarData, "pie": PieData, "box_and_whisker": BoxAndWhiskerData}

_Scalar = TypeVar("_Scalar", str, float)


def read_chart(data: object) -> Chart | None:
    """Returns the chart that a sandbox has sent; None if it is not one, since code chooses what it displays."""
    try:
        return _chart(data, may_contain_charts=True)
    except (KeyError, TypeError, ValueError):
        return None


def _chart(data: Any, may_contain_charts: bool) -> Chart:
    kind, title = ChartType(data["type"]), _is(data["title"], str)
    if kind is ChartType.SUPERCHART and may_contain_charts:
        return SuperChart(kind, title, [_chart(each, False) for each in _list(data["elements"])], _raw=data)
    chart = _CHARTS.get(kind.value)
    if chart is None:
        return Chart(ChartType.UNKNOWN, title, [], _raw=data)
    elements = [_element(kind.value, each) for each in _list(data["elements"])]
    return chart(kind, title, elements, _raw=data, **_axes(chart, data))


def _axes(chart: type[Chart], data: Mapping[str, Any]) -> dict[str, Any]:
    axes: dict[str, Any] = {}
    for axis in ("x", "y") if issubclass(chart, Chart2D) else ():
        for name in (f"{axis}_label", f"{axis}_unit"):
            axes[name] = None if data[name] is None else _is(data[name], str)
        if issubclass(chart, PointChart):
            scale = data[f"{axis}_scale"]
            axes[f"{axis}_scale"] = ScaleType(scale) if scale in set(ScaleType) else ScaleType.UNKNOWN
            axes[f"{axis}_ticks"] = [_place(each) for each in _list(data[f"{axis}_ticks"])]
            axes[f"{axis}_tick_labels"] = [_is(each, str) for each in _list(data[f"{axis}_tick_labels"])]
    return axes


def _element(kind: str, data: Any) -> Any:
    if kind in ("line", "scatter"):
        points = [(_place(x), _place(y)) for x, y in _list(data["points"])]
        return PointData(_is(data["label"], str), points)
    values: dict[str, Any] = {}
    for name, annotation in _ELEMENTS[kind].__annotations__.items():
        if annotation == "list[float]":
            values[name] = [_is(each, float) for each in _list(data[name])]
        else:
            values[name] = _is(data[name], str) if annotation == "str" else _is(data[name], float)
    return _ELEMENTS[kind](**values)


def _place(value: Any) -> str | float:
    return value if isinstance(value, str) else _is(value, float)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _is(value: Any, kind: type[_Scalar]) -> _Scalar:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError
    return value

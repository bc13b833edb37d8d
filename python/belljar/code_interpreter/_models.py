"""The results of code: executions, their results, logs and errors, and contexts."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .charts import Chart, read_chart

_FORMATS = {
    "text": "text/plain",
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
    "data": "e2b/data",
}
"""The names of formats and their MIME types."""
_CHART = "e2b/chart"


@dataclass
class OutputMessage:
    """A piece of text that code wrote."""

    line: str
    """The text: one or more lines, or a part of one."""
    timestamp: int
    """The time at which it arrived, in nanoseconds since 1970."""
    error: bool = False
    """True if it was written to standard error."""

    def __str__(self) -> str:
        return self.line


@dataclass
class ExecutionError:
    """The reason why code did not succeed."""

    name: str
    """The name of the exception's class, such as ``ZeroDivisionError``, or of a limit."""
    value: str
    """The exception's text."""
    traceback: str
    """The traceback as IPython prints it, or an empty text."""

    def to_json(self) -> str:
        """Returns the error as JSON."""
        return json_module.dumps({"name": self.name, "value": self.value, "traceback": self.traceback})


class MIMEType(str):
    """A MIME type."""


@dataclass(repr=False)
class Result:
    """The value of a cell, or something that it displayed, in one or more formats."""

    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    png: str | None = None
    """The image in base64, as for ``jpeg`` and ``pdf``."""
    jpeg: str | None = None
    pdf: str | None = None
    latex: str | None = None
    json: dict[str, Any] | None = None
    javascript: str | None = None
    data: dict[str, Any] | None = None
    """The columns of a ``DataFrame`` with at most 100,000 cells, by name."""
    chart: Chart | None = None
    """The data of a figure of matplotlib with at most 100,000 values."""
    is_main_result: bool = False
    """True for the value of the cell, false for what it displayed."""
    extra: dict[str, Any] | None = None
    """Other formats, by MIME type."""

    @classmethod
    def from_bundle(cls, bundle: Mapping[str, Any], is_main_result: bool) -> Result:
        """Returns the result of what a cell displayed, by MIME type."""
        known = {name: bundle[mime] for name, mime in _FORMATS.items() if mime in bundle}
        # Code chooses what it displays.
        known = {name: value for name, value in known.items() if isinstance(value, str) or name in ("json", "data")}
        text = known.get("text")
        # As E2B's server does: a text is shown without the quotes of its representation.
        if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] == "'":
            known["text"] = text[1:-1]
        mimes = {_FORMATS[name] for name in known} | {_CHART}
        extra = {mime: value for mime, value in bundle.items() if mime not in mimes}
        return cls(**known, chart=read_chart(bundle.get(_CHART)), is_main_result=is_main_result, extra=extra)

    def __getitem__(self, item: str) -> Any:
        return self.extra[item] if self.extra and item in self.extra else getattr(self, item)

    def formats(self) -> Iterable[str]:
        """Returns the names of the formats that the result has: ``text``, ``png`` and so on, and MIME types."""
        known = [name for name in (*_FORMATS, "chart") if getattr(self, name)]
        return [*known, *(self.extra or ())]

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"Result({self.text})" if self.text else f"Result(Formats: {', '.join(self.formats())})"

    def _repr_html_(self) -> str | None:
        return self.html

    def _repr_markdown_(self) -> str | None:
        return self.markdown

    def _repr_svg_(self) -> str | None:
        return self.svg

    def _repr_png_(self) -> str | None:
        return self.png

    def _repr_jpeg_(self) -> str | None:
        return self.jpeg

    def _repr_pdf_(self) -> str | None:
        return self.pdf

    def _repr_latex_(self) -> str | None:
        return self.latex

    def _repr_json_(self) -> dict[str, Any] | None:
        return self.json

    def _repr_javascript_(self) -> str | None:
        return self.javascript


@dataclass(repr=False)
class Logs:
    """The text that code wrote, in pieces."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Logs(stdout: {self.stdout}, stderr: {self.stderr})"

    def to_json(self) -> str:
        """Returns the logs as JSON."""
        return json_module.dumps({"stdout": self.stdout, "stderr": self.stderr})


@dataclass(repr=False)
class Execution:
    """The result of a cell."""

    results: list[Result] = field(default_factory=list)
    """The value of the last line, and what the cell displayed, in the order of their appearance."""
    logs: Logs = field(default_factory=Logs)
    """The text that the code wrote."""
    error: ExecutionError | None = None
    """The reason why the code did not succeed. None if it did."""
    execution_count: int | None = None
    """The number of the cell in its context, from 1."""

    def __repr__(self) -> str:
        return f"Execution(Results: {self.results}, Logs: {self.logs}, Error: {self.error})"

    @property
    def text(self) -> str | None:
        """The value of the last line, as text."""
        return next((result.text for result in self.results if result.is_main_result), None)

    def to_json(self) -> str:
        """Returns the execution as JSON, in which logs and the error are texts with JSON."""
        results = [
            {name: getattr(each, name) for name in _FORMATS if getattr(each, name)}
            | ({"chart": each.chart.to_dict()} if each.chart else {})
            | (each.extra or {})
            | {"text": each.text}
            for each in self.results
        ]
        error = self.error.to_json() if self.error else None
        return json_module.dumps({"results": results, "logs": self.logs.to_json(), "error": error})


@dataclass
class Context:
    """A set of variables with a working directory, in which code runs."""

    id: str
    language: str
    """Always ``python``."""
    cwd: str
    """The working directory in which the context began."""

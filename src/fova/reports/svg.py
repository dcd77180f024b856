"""Charts as SVG inside the page.

The page could carry Plotly, but its script is some 4.5 MB a page. What a run's report has to show are lines with
bands, stacked shares and dots; drawn here, they weigh a few kilobytes each, need no script, follow the page's
colours in the dark, print sharply, and can be read out: every chart says in words what it shows, and every
point of a short curve has a tooltip. Colours are the classes of `palette.css`. Numbers in, markup out.

A chart of a page carries its numbers for the page's script (`page.js`), which adds a crosshair, zoom and downloads.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from matplotlib.ticker import MaxNLocator

from fova.reports.markup import Markup, element
from fova.reports.palette import CLIENT, DATA, SERVER

WIDTH, HEIGHT = 440, 300  # of a whole chart; text is 13 units high, so it stays readable on a phone
RIGHT = WIDTH - 26  # where the plot ends: half a number under the axis needs the rest
SMALL_WIDTH, SMALL_HEIGHT = 300, 170
CHARACTER = 7.2  # about the width of one, in the same units
ROW = 38  # height of a row of dots
APART = 6  # from the middle of a row to each of its two marks, so that neither hides the other
LABEL_CHARACTERS = 16  # of a row's label; longer ones are cut, the tooltip has them whole
MOST_MARKS = 60  # points of a line that have a mark each; longer and thin lines have none
TOP, BOTTOM = 10, HEIGHT - 46  # of the plot


@dataclass(frozen=True)
class Line:
    """One curve, with a band where there is an interval."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dashes: Sequence[float] = ()
    faint: bool = False
    key: str = ""  # the entry of the legend that hides it; its label if empty


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with."""

    label: str
    value: float
    colour: str
    dashes: Sequence[float] = (5, 4)


class Dots(NamedTuple):
    """One client in a chart of dots."""

    label: str
    data: float | None
    policy: float | None


class Interval(NamedTuple):
    """One client in a chart of estimates: what its data earned, and an estimate with its interval."""

    label: str
    data: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Axis:
    """From values to places on the page."""

    first: float
    last: float
    at_first: float
    at_last: float
    ticks: tuple[float, ...] = field(default=())

    def __call__(self, value: float) -> float:
        return self.at_first + (value - self.first) / (self.last - self.first) * (self.at_last - self.at_first)


# --- The kinds of chart ---


def line_chart(
    title: str,
    description: str,
    lines: Sequence[Line],
    levels: Sequence[Level],
    x_label: str,
    y_label: str,
    place: tuple[float, float] | None = None,
) -> Markup:
    """Curves over training with bands, and levels to compare with.

    `place` is where in a larger picture it goes, which no script will ever read.
    """
    told = place is None
    values = [v for line in lines for v in (*line.y, *(line.low or ()), *(line.high or ()))]
    low, high = _span([*values, *(level.value for level in levels)])
    y_ticks = round_ticks(low, high)
    left = 30 + CHARACTER * max(len(_tick_label(tick)) for tick in y_ticks)
    y = Axis(min(low, y_ticks[0]), max(high, y_ticks[-1]), BOTTOM, TOP, y_ticks)
    first, last = _span([v for line in lines for v in line.x])
    x = Axis(first, last, left, RIGHT, round_ticks(first, last, most=5))
    ticks: list[Markup] = [*_y_grid(y, left, RIGHT, _tick_label), *_x_ticks(x, BOTTOM)]
    return _chart(
        title,
        description,
        WIDTH,
        HEIGHT,
        element("g", ticks, class_="ticks") if told else ticks,
        _axis_names(x_label, y_label, left),
        [_level(level, x, y, told) for level in levels],
        [_band(line, x, y, told) for line in lines],
        [_line(line, x, y, told) for line in lines],
        place=place,
        told=_scales(x, y, x_label) | {"data_zoom": ""} if told else {},
    )


def share_chart(
    title: str, description: str, x_values: Sequence[float], shares: Mapping[str, tuple[str, Sequence[float]]]
) -> Markup:
    """Shares of a whole over training, stacked. `shares` is label -> (colour, values), from the bottom up."""
    if len(x_values) == 1:  # one point is shown as a level stretch
        x_values = [x_values[0] - 0.5, x_values[0] + 0.5]
        shares = {label: (colour, [values[0]] * 2) for label, (colour, values) in shares.items()}
    left, right, bottom = 46, SMALL_WIDTH - 24, SMALL_HEIGHT - 26
    x = Axis(x_values[0], x_values[-1], left, right, round_ticks(x_values[0], x_values[-1], most=3))
    y = Axis(0.0, 1.0, bottom, 10, (0.0, 0.5, 1.0))
    areas, below = [], [0.0] * len(x_values)
    for label, (colour, values) in shares.items():
        above = [b + v for b, v in zip(below, values)]
        outline = [*zip(x_values, above), *reversed(list(zip(x_values, below)))]
        words = f"{label}: {values[0]:.0%} at first, {values[-1]:.0%} at the end"
        areas.append(
            element(
                "path",
                element("title", words),
                d=_path(outline, x, y) + "Z",
                class_=f"area {colour}",
                **_series(label, label, x_values, values),
            )
        )
        below = above
    return _chart(
        title,
        description,
        SMALL_WIDTH,
        SMALL_HEIGHT,
        areas,
        _y_grid(y, left, right, lambda value: f"{value:.0%}"),
        _x_ticks(x, bottom),
        told=_scales(x, y, "gradient steps of each client"),
    )


def dot_chart(title: str, description: str, rows: Sequence[Dots], server: float | None, x_label: str) -> Markup:
    """Every client's data and policy as dots on one scale, and the server's policy as a line through all."""
    values = [v for row in rows for v in (row.data, row.policy, server) if v is not None]
    low, high = _span(values)
    height = 20 + ROW * len(rows) + 46
    left = 14 + CHARACTER * min(LABEL_CHARACTERS, max(len(row.label) for row in rows))
    ticks = round_ticks(low, high, most=4)
    x = Axis(min(low, ticks[0]), max(high, ticks[-1]), left + 8, RIGHT, ticks)
    bottom = height - 46
    apart = APART if any(row.data is not None and row.policy is not None for row in rows) else 0
    line = []
    if server is not None:
        words = element("title", f"server's policy: {server:,.1f}")
        line = [
            element("path", words, d=f"M{x(server):.1f} 8V{bottom}", class_=f"line {SERVER}", data_series="server")
        ]
    return _chart(
        title,
        description,
        WIDTH,
        height,
        [element("path", d=f"M{x(tick):.1f} 8V{bottom}", class_="grid") for tick in x.ticks],
        _x_ticks(x, bottom),
        element("text", x_label, x=(left + WIDTH) / 2, y=height - 6.0, text_anchor="middle"),
        line,
        [_dots(row, x, 8 + ROW * (i + 0.5), left, apart) for i, row in enumerate(rows)],
        told=_table(
            ("client", "its data", "its own policy", "the server's policy"),
            [(*row, server) for row in rows],
        ),
    )


def interval_chart(title: str, description: str, rows: Sequence[Interval], x_label: str) -> Markup:
    """Every client's data as a diamond, and below it an estimate as a dot with its interval."""
    low, high = _span([v for row in rows for v in (row.data, row.low, row.high)])
    height = 20 + ROW * len(rows) + 46
    left = 14 + CHARACTER * min(LABEL_CHARACTERS, max(len(row.label) for row in rows))
    ticks = round_ticks(low, high, most=4)
    x = Axis(min(low, ticks[0]), max(high, ticks[-1]), left + 8, RIGHT, ticks)
    bottom = height - 46
    return _chart(
        title,
        description,
        WIDTH,
        height,
        [element("path", d=f"M{x(tick):.1f} 8V{bottom}", class_="grid") for tick in x.ticks],
        _x_ticks(x, bottom),
        element("text", x_label, x=(left + WIDTH) / 2, y=height - 6.0, text_anchor="middle"),
        [_interval(row, x, 8 + ROW * (i + 0.5), left) for i, row in enumerate(rows)],
        told=_table(("client", "its data", "the policy", "low", "high"), rows),
    )


# --- Parts of a chart ---


def _chart(
    title: str,
    description: str,
    width: float,
    height: float,
    *parts: str | Sequence[str],
    place: tuple[float, float] | None = None,
    told: Mapping[str, str] = MappingProxyType({}),
) -> Markup:
    """The whole chart. What is `told` is for the script."""
    placed = {"x": place[0], "y": place[1], "width": width, "height": height} if place else {}
    return element(
        "svg",
        *parts,
        **placed,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=f"{title}. {description}",
        class_="chart",
        **told,
    )


def _scales(x: Axis, y: Axis, x_label: str) -> dict[str, str]:
    """What the script needs to turn places into values and back."""
    axes = {"data_across": x, "data_up": y}
    ends = {name: _compact((a.first, a.last, a.at_first, a.at_last)) for name, a in axes.items()}
    return {**ends, "data_unit": x_label}


def _series(
    key: str,
    label: str,
    x: Sequence[float],
    y: Sequence[float],
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
) -> dict[str, str | None]:
    """The numbers of one series, and the entry of the legend that hides it."""
    numbers = {"data_x": x, "data_y": y, "data_low": low, "data_high": high}
    named: dict[str, str | None] = {"data_series": key, "data_label": label}
    return named | {name: None if values is None else _compact(values) for name, values in numbers.items()}


def _compact(values: Sequence[float]) -> str:
    return " ".join(f"{value:.5g}" for value in values)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str | float | None]]) -> dict[str, str]:
    return {"data_table": json.dumps([columns, *rows])}


def _y_grid(y: Axis, left: float, right: float, label: Callable[[float], str]) -> list[Markup]:
    return [
        part
        for tick in y.ticks
        for part in (
            element("path", d=f"M{left:.1f} {y(tick):.1f}H{right:.1f}", class_="grid"),
            element("text", label(tick), x=left - 6, y=y(tick) + 4.5, text_anchor="end"),
        )
    ]


def _x_ticks(x: Axis, bottom: float) -> list[Markup]:
    return [
        element("text", _tick_label(tick), x=x(tick), y=bottom + 18.0, text_anchor="middle")
        for tick in x.ticks
        if x.at_first - 1 <= x(tick) <= x.at_last + 1
    ]


def _axis_names(x_label: str, y_label: str, left: float) -> list[Markup]:
    middle = (HEIGHT - 46) / 2 + 5
    return [
        element("text", x_label, x=(left + RIGHT) / 2, y=HEIGHT - 8.0, text_anchor="middle"),
        element("text", y_label, transform=f"translate(13 {middle:g}) rotate(-90)", text_anchor="middle"),
    ]


def _line(line: Line, x: Axis, y: Axis, told: bool) -> Markup:
    marked = zip(line.x, line.y) if len(line.x) <= MOST_MARKS and not line.faint else ()
    points = [
        element("circle", element("title", f"{line.label}: {b:,.1f} at {a:,.0f}"), cx=x(a), cy=y(b), r=3.2)
        for a, b in marked
    ]
    drawn = element("path", d=_path(list(zip(line.x, line.y)), x, y), stroke_dasharray=_dashes(line.dashes))
    numbers = _series(line.key or line.label, line.label, line.x, line.y, line.low, line.high) if told else {}
    look = f"line {line.colour}" + (" faint" if line.faint else "")
    return element("g", drawn, points, class_=look, **numbers)


def _band(line: Line, x: Axis, y: Axis, told: bool) -> Markup:
    if line.low is None or line.high is None:
        return Markup()
    outline = [*zip(line.x, line.high), *reversed(list(zip(line.x, line.low)))]
    series = (line.key or line.label) if told else None
    return element("path", d=_path(outline, x, y) + "Z", class_=f"band {line.colour}", data_series=series)


def _level(level: Level, x: Axis, y: Axis, told: bool) -> Markup:
    return element(
        "path",
        element("title", f"{level.label}: {level.value:,.1f}"),
        d=f"M{x.at_first:.1f} {y(level.value):.1f}H{x.at_last:.1f}",
        stroke_dasharray=_dashes(level.dashes),
        class_=f"line {level.colour}",
        data_series=level.label if told else None,
        data_value=_compact([level.value]) if told else None,
    )


def _dots(row: Dots, x: Axis, y: float, left: float, apart: float) -> Markup:
    short = row.label if len(row.label) <= LABEL_CHARACTERS else row.label[: LABEL_CHARACTERS - 1] + "…"
    label = element("text", element("title", row.label), short, x=left, y=y + 4.5, text_anchor="end")
    marks = []
    if row.data is not None:
        words = element("title", f"{row.label}, its data: {row.data:,.1f}")
        outline = f"M{x(row.data):.1f} {y - apart - 7:.1f}l7 7l-7 7l-7 -7Z"
        marks.append(element("path", words, d=outline, class_=f"dot {DATA}", data_series="data"))
    if row.policy is not None:
        words = element("title", f"{row.label}, its own policy: {row.policy:,.1f}")
        mark = element(
            "circle", words, cx=x(row.policy), cy=y + apart, r=6, class_=f"dot {CLIENT}", data_series="policy"
        )
        marks.append(mark)
    return element("g", label, marks)


def _interval(row: Interval, x: Axis, y: float, left: float) -> Markup:
    words = element("title", f"{row.label}, the policy: {row.value:,.2f} [{row.low:,.2f}, {row.high:,.2f}]")
    bar = element("path", d=f"M{x(row.low):.1f} {y + APART:.1f}H{x(row.high):.1f}", class_=f"line {SERVER}")
    dot = element("circle", words, cx=x(row.value), cy=y + APART, r=5, class_=f"dot {SERVER}")
    estimate = element("g", bar, dot, data_series="estimate")
    return element("g", _dots(Dots(row.label, row.data, None), x, y, left, APART), estimate)


def _path(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    return "M" + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)


def _dashes(dashes: Sequence[float]) -> str | None:
    return " ".join(f"{length:g}" for length in dashes) or None


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest, made a little wider where they are the same."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def round_ticks(low: float, high: float, most: int = 6) -> tuple[float, ...]:
    return tuple(float(tick) for tick in MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))


def _tick_label(value: float) -> str:
    return f"{value:,.10g}"


# --- Legends ---


class Key(NamedTuple):
    """One entry of a legend: what a mark means."""

    label: str
    colour: str
    mark: Literal["line", "area", "diamond", "circle"] = "line"
    dashes: Sequence[float] = ()
    series: str = ""  # what the reader can hide with it; the label if empty


def legend(keys: Sequence[Key]) -> Markup:
    """The marks of a chart with their meanings."""
    entries = [element("li", _swatch(key), key.label, data_key=key.series or key.label) for key in keys]
    return element("ul", entries, class_="legend")


def _swatch(key: Key) -> Markup:
    if key.mark == "line":
        mark = element("path", d="M1 6H27", stroke_dasharray=_dashes(key.dashes), class_=f"line {key.colour}")
    else:
        outline = {
            "area": "M4 0H24V12H4Z",
            "diamond": "M14 1l5 5l-5 5l-5 -5Z",
            "circle": "M9 6a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
        }
        mark = element(
            "path", d=outline[key.mark], class_=f"{'area' if key.mark == 'area' else 'dot'} {key.colour}"
        )
    return element("svg", mark, viewBox="0 0 28 12", aria_hidden="true")

"""Pictures of insulin dosing: how long glucose stays in range, too low or too high, and a day's glucose.

Arrays in, figures out: nothing is trained or simulated here, and no global plotting state is touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from numpy.typing import ArrayLike

from fova.errors import FovaError
from fova.reports import palette
from fova.tasks.glucose.table import STEPS, TARGET_RANGE

INK, RANGE_FILL = "#22262e", "#d5ebe2"
# From left to right in a bar: what is dangerous at once comes first.
SHARES = (
    ("below 70", palette.VERMILION, "below 70 mg/dL (too low)"),
    ("time in range", palette.GREEN, "70 to 180 (in range)"),
    ("above 180", palette.ORANGE, "above 180 (too high)"),
)
LINES = ((palette.BLACK, "--"), (palette.BLUE, "-"), (palette.PURPLE, ":"))
NUMBERED_FROM = 0.035  # narrower parts of a bar have no room for their number
GLUCOSE_SHOWN = (10.0, 320.0)


@dataclass(frozen=True)
class Section:
    """One row of the picture: some patients, the outcomes of several ways to treat them, and one of their days."""

    title: str
    outcomes: Mapping[str, Mapping[str, float]]  # who treats -> shares of the readings
    day: Mapping[str, ArrayLike] = field(default_factory=dict)  # who treats -> readings of one day, mg/dL
    meals: ArrayLike = ()  # grams at each step of this day
    day_title: str = ""


def outcomes_figure(sections: Sequence[Section], footer: str = "") -> Figure:
    """Bars of time in range at the left, a day's glucose at the right, one row per section."""
    if not sections:
        raise FovaError("There is nothing to draw: give at least one section.")
    heights = [max(1.0 + 0.42 * len(section.outcomes), 2.3 if section.day else 0.0) for section in sections]
    wide = any(section.day for section in sections)
    room = 0.4 / (sum(heights) + 1.0) if footer else 0.0  # at the bottom
    margins = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06, rect=(0.0, room, 1.0, 1.0 - room))
    figure = Figure(figsize=(13.0 if wide else 7.5, sum(heights) + 1.0), layout=margins)
    grid = figure.add_gridspec(
        len(sections), 2 if wide else 1, height_ratios=heights, width_ratios=(1.0, 1.15)[: 2 if wide else 1]
    )
    for row, section in enumerate(sections):
        _draw_bars(figure.add_subplot(grid[row, 0]), section)
        if section.day:
            _draw_day(figure.add_subplot(grid[row, 1]), section, last=row == len(sections) - 1)
    key = [Patch(color=colour, label=words) for _, colour, words in SHARES]
    figure.legend(
        handles=key, loc="outside upper left", ncols=3, frameon=False, fontsize=11, labelcolor=INK,
        title="Sensor readings in percent", title_fontsize=11, alignment="left",
    )  # fmt: skip
    if footer:
        figure.text(0.995, 0.003, footer, ha="right", va="bottom", fontsize=9.5, color=palette.GREY)
    return figure


def _draw_bars(axes: Axes, section: Section) -> None:
    names = list(section.outcomes)
    for place, name in enumerate(names):
        left = 0.0
        for share, colour, _ in SHARES:
            width = section.outcomes[name][share]
            axes.barh(place, width, left=left, color=colour, height=0.72)
            if width >= NUMBERED_FROM:
                middle = left + width / 2.0
                axes.text(
                    middle, place, f"{100 * width:.0f}", ha="center", va="center", color="white", fontsize=11,
                    fontweight="bold",
                )  # fmt: skip
            left += width
    axes.set_yticks(range(len(names)), names, fontsize=11.5, color=INK)
    axes.set(xlim=(0.0, 1.0), ylim=(len(names) - 0.5, -0.5), xticks=[])
    axes.set_title(section.title, fontsize=12.5, color=INK, loc="left")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_day(axes: Axes, section: Section, last: bool) -> None:
    axes.axhspan(*TARGET_RANGE, color=RANGE_FILL, zorder=0)
    for (name, readings), (colour, dashes) in zip(section.day.items(), LINES):
        values = np.asarray(readings, np.float64)
        hours = 24.0 * np.arange(len(values)) / STEPS
        axes.plot(hours, np.clip(values, *GLUCOSE_SHOWN), color=colour, linestyle=dashes, linewidth=1.9, label=name)
    meals = np.asarray(section.meals, np.float64)
    for step in np.flatnonzero(meals > 0):
        axes.annotate(
            f"{meals[step]:.0f} g", (24.0 * step / STEPS, GLUCOSE_SHOWN[1]), ha="center", va="top", fontsize=9.5,
            color=palette.GREY,
        )  # fmt: skip
    axes.set(xlim=(0.0, 24.0), ylim=GLUCOSE_SHOWN, xticks=range(0, 25, 6), yticks=[70, 180, 300])
    axes.set_xticklabels([f"{hour}:00" for hour in range(0, 25, 6)] if last else [])
    axes.tick_params(labelsize=10.5, labelcolor=INK, color=INK)
    axes.set_ylabel("mg/dL", fontsize=10.5, color=INK)
    axes.set_title(section.day_title, fontsize=12.5, color=INK, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3, frameon=False, fontsize=10.5, labelcolor=INK
    )

"""Static pictures of runs, for papers and slides: PNG, SVG and PDF.

The numbers are those of the page (`series.py`), the colours those of every picture (`palette.py`). Drawn with
matplotlib's figures only, so that nothing needs a screen; equal runs give equal files.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from fova.errors import FovaError, unknown
from fova.evaluation.statistics import bands
from fova.reports.groups import Group, comparable
from fova.reports.palette import CLIENT, DATA, NAMES, SERVER, VOTER_WORDS, VOTERS, styles
from fova.reports.series import (
    RETURN,
    STEPS,
    Curve,
    Votes,
    client_curves,
    client_returns,
    data_returns,
    learning_curve,
    logged_metrics,
    mean_client_curve,
    metric_curve,
    votes,
)
from fova.reports.svg import MOST_MARKS

FORMATS = ("png", "svg", "pdf")
LOOK: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 3,
    "pdf.fonttype": 42,  # whole fonts, which journals ask for and which can be searched
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fova",  # without it, no two files are the same
}
# These formats note the time of writing by default.
METADATA: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
PAPER_WIDTH, PAPER_HEIGHT = 5.5, 3.4  # inches: the text width of a common conference page
# For one column of a two-column paper: serif letters of 8 points, thin lines, no title; the caption says it.
PAPER: dict[Any, Any] = {
    "font.family": "serif",
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 2,
}
SLIDES: dict[Any, Any] = {
    "font.size": 16,
    "axes.titlesize": 16,
    "legend.fontsize": 14,
    "lines.linewidth": 3,
    "lines.markersize": 6,
}
PLAIN: dict[Any, Any] = {"lines.linewidth": 1.8, "lines.markersize": 3}
# Letters and lines, and the size of a picture in inches.
STYLES: dict[str, tuple[dict[Any, Any], tuple[float, float]]] = {
    "plain": (PLAIN, (PAPER_WIDTH, PAPER_HEIGHT)),
    "paper": (PAPER, (3.3, 2.3)),
    "slides": (SLIDES, (10.0, 5.6)),
}
METRICS = ("return", "score")  # of the server's policy; anything else is what clients log in every round


def write_plots(
    groups: Sequence[Group],
    directory: Path,
    formats: Sequence[str] = FORMATS,
    metric: str = "return",
    size: tuple[float, float] | None = None,
    style: str = "plain",
) -> list[Path]:
    """Draw every picture that the runs give, in every format; the paths of the files.

    Another `metric` than the return is drawn alone. `size` is in inches, by default that of the style.
    """
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if style not in STYLES:
        raise unknown("style", style, STYLES)
    look, usual = STYLES[style]
    pictures = _pictures(groups, metric, titled=style != "paper")
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context({**LOOK, **look, "figure.figsize": size or usual}):
        for stem, draw in pictures.items():
            figure = draw()
            for name in formats:
                written.append(directory / f"{stem}.{name}")
                figure.savefig(written[-1], dpi=300, metadata=METADATA[name])
    if not written:
        raise FovaError("There is nothing to draw: these runs played no policy and held no vote.")
    return written


def _pictures(groups: Sequence[Group], metric: str, titled: bool) -> dict[str, Callable[[], Figure]]:
    """Name of a file -> how its picture is drawn. With several settings the name of the run is part of it."""
    pictures: dict[str, Callable[[], Figure]] = {}
    by_data = comparable([group for group in groups if metric_curve(group, metric) is not None])
    if not by_data and metric != "return":
        raise unknown("metric of these runs", metric, [*METRICS, *logged_metrics(groups)])
    kind = "learning-curve" if metric == "return" else f"curve-{metric.replace('_', '-')}"
    for name, alike in by_data.items():
        ending = f"-{_in_a_name(name)}" if len(by_data) > 1 else ""
        pictures[f"{kind}{ending}"] = partial(learning_figure, alike, metric, titled)
    if metric != "return":
        return pictures
    for group, ending in zip(groups, _endings(groups)):
        if mean_client_curve(group) is not None:
            pictures[f"server-and-clients-over-training{ending}"] = partial(training_figure, group, titled)
        rows = client_returns(group)
        if group.finals or any(row.policy is not None for row in rows):
            pictures[f"server-and-clients{ending}"] = partial(returns_figure, group)
        elif any(row.data is not None for row in rows):
            pictures[f"returns-of-the-data{ending}"] = partial(returns_figure, group)
        if votes(group):
            pictures[f"votes{ending}"] = partial(vote_figure, votes(group))
    return pictures


def _endings(groups: Sequence[Group]) -> list[str]:
    """What tells the files of several settings apart: the name of the run, and a number where it is not enough."""
    if len(groups) == 1:
        return [""]
    names = [_in_a_name(group.name) for group in groups]
    return [f"-{name}" if names.count(name) == 1 else f"-{i}-{name}" for i, name in enumerate(names, 1)]


def _in_a_name(words: str) -> str:
    """Words as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


# --- The pictures ---


def learning_figure(groups: Sequence[Group], metric: str = "return", titled: bool = True) -> Figure:
    """A metric over training, one line per setting; for the return, with what the data earned as a level."""
    figure = Figure(figsize=matplotlib.rcParams["figure.figsize"], layout="constrained")
    axes = figure.subplots()
    looks = styles([group.algorithm for group in groups]) if len(groups) > 1 else [(SERVER, ())]
    for group, (colour, dashes) in zip(groups, looks):
        curve = metric_curve(group, metric)
        alone = "the server's policy" if metric in METRICS else "mean of the clients"
        if curve is not None:
            _draw_curve(axes, curve, colour, dashes, group.label if len(groups) > 1 else alone)
    data = [data_returns(group) for group in groups]
    if metric == "return" and data[0] and all(other == data[0] for other in data):
        axes.axhline(
            float(np.mean(data[0])), color=NAMES[DATA], linestyle="--", label="average of the clients' data"
        )
    axes.set(xlabel=STEPS, ylabel=metric.replace("_", " "), title=_title(groups) if titled else None)
    _legend_below(figure, axes)
    return figure


def training_figure(group: Group, titled: bool = True) -> Figure:
    """The server's policy, every client's policy and the mean of these during training."""
    figure = Figure(figsize=matplotlib.rcParams["figure.figsize"], layout="constrained")
    axes = figure.subplots()
    for curve in client_curves(group):
        axes.plot(curve.steps, curve.mean, color=NAMES[CLIENT], linewidth=0.7, alpha=0.5)
    server, mean = learning_curve(group), mean_client_curve(group)
    if mean is not None:
        _draw_curve(axes, mean, CLIENT, (7, 3), mean.label)
    if server is not None:
        _draw_curve(axes, server, SERVER, (), "the server's policy")
    axes.set(xlabel=STEPS, ylabel="return", title=_title([group]) if titled else None)
    _legend_below(figure, axes)
    return figure


def returns_figure(group: Group) -> Figure:
    """Every client's data and policy at the end, and the server's policy as a line through all."""
    rows = client_returns(group)
    height = (1.2 + 0.34 * len(rows)) * _letters()
    figure = Figure(figsize=(matplotlib.rcParams["figure.figsize"][0], height), layout="constrained")
    axes = figure.subplots()
    mark: dict[str, Any] = {
        "linestyle": "none",
        "markeredgecolor": "black",
        "markeredgewidth": 0.6,
        "markersize": 7,
    }
    # Two marks of a client stand a little apart, so that neither hides the other.
    apart = 0.13 if any(row.data is not None and row.policy is not None for row in rows) else 0.0
    for what, form, colour, shift, label in (
        ("data", "D", DATA, -apart, "a client's data"),
        ("policy", "o", CLIENT, apart, "its own policy at the end"),
    ):
        known = [(getattr(row, what), i + shift) for i, row in enumerate(rows) if getattr(row, what) is not None]
        if known:
            axes.plot(*zip(*known), form, color=NAMES[colour], label=label, **mark)
    if group.finals and group.mode != "local":
        axes.axvline(float(np.mean(group.finals)), color=NAMES[SERVER], linewidth=2, label="the server's policy")
    axes.set(
        xlabel=RETURN,
        yticks=range(len(rows)),
        yticklabels=[row.client for row in rows],
        ylim=(len(rows) - 0.5, -0.5),
    )
    _legend_below(figure, axes)
    return figure


def vote_figure(found: Sequence[Votes]) -> Figure:
    """One panel per client: the shares of the votes that each candidate won, stacked."""
    columns = min(4, len(found))
    rows = -(-len(found) // columns)
    letters = _letters()
    size = (letters * max(4.4, 1.9 * columns), letters * (0.7 + 1.6 * rows))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(found) :]:
        axes.set_visible(False)
    for axes, client in zip(panels.flat, found):
        axes.stackplot(
            client.steps,
            [client.shares[voter] for voter in VOTERS],
            colors=[NAMES[colour] for colour in VOTERS.values()],
            labels=[VOTER_WORDS[voter] for voter in VOTERS],
            edgecolor="white",
            linewidth=0.4,
        )
        axes.set(title=client.client, ylim=(0, 1), yticks=[0, 0.5, 1], yticklabels=["0%", "50%", "100%"])
        axes.margins(x=0)
    figure.supxlabel(STEPS, fontsize=matplotlib.rcParams["font.size"])
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, handlelength=1.5, columnspacing=1.5)
    return figure


def _letters() -> float:
    """The size of the style's letters, as a multiple of the usual size."""
    return float(matplotlib.rcParams["font.size"] / LOOK["font.size"])


def _legend_below(figure: Figure, axes: Axes) -> None:
    """The legend outside the plot, where it covers nothing, in as many columns as have room."""
    handles, labels = axes.get_legend_handles_labels()
    points = FontProperties(size=matplotlib.rcParams["legend.fontsize"]).get_size_in_points()
    letters = figure.get_figwidth() * 72 / (0.55 * points)
    columns = int(letters // (max(map(len, labels), default=1) + 9))
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, min(columns, len(labels), 4)))


def _title(groups: Sequence[Group]) -> str:
    """The task, and how many seeds stand behind the lines."""
    seeds = sorted({len(group.records) for group in groups})
    counted = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    words = "one seed" if seeds == [1] else f"{counted} seeds. {bands(seeds)}"
    return f"{groups[0].task or 'own data'} ({words})"


def _draw_curve(axes: Axes, curve: Curve, colour: str, dashes: Sequence[float], label: str) -> None:
    style = (0, tuple(dashes)) if dashes else "-"
    axes.plot(
        curve.steps,
        curve.mean,
        color=NAMES[colour],
        linestyle=style,
        marker="o" if len(curve.steps) <= MOST_MARKS else None,
        label=label,
    )
    if curve.low is not None and curve.high is not None:
        axes.fill_between(curve.steps, curve.low, curve.high, color=NAMES[colour], alpha=0.2, linewidth=0)

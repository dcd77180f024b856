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

from fova.errors import FovaError, unknown
from fova.evaluation.statistics import bands
from fova.reports.groups import Group, comparable
from fova.reports.palette import CLIENT, DATA, NAMES, SERVER, VOTER_WORDS, VOTERS, styles
from fova.reports.series import (
    STEPS,
    Curve,
    Votes,
    client_curves,
    client_returns,
    data_returns,
    learning_curve,
    mean_client_curve,
    votes,
)

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
PAPER_WIDTH = 5.5  # inches: the text width of a common conference page


def write_plots(groups: Sequence[Group], directory: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw every picture that the runs give, in every format; the paths of the files."""
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(LOOK):
        for stem, draw in _pictures(groups).items():
            figure = draw()
            for name in formats:
                written.append(directory / f"{stem}.{name}")
                figure.savefig(written[-1], dpi=300, metadata=METADATA[name])
    if not written:
        raise FovaError("There is nothing to draw: these runs played no policy and held no vote.")
    return written


def _pictures(groups: Sequence[Group]) -> dict[str, Callable[[], Figure]]:
    """Name of a file -> how its picture is drawn. With several settings their number is part of the name."""
    pictures: dict[str, Callable[[], Figure]] = {}
    by_data = comparable([group for group in groups if learning_curve(group) is not None])
    for name, alike in by_data.items():
        ending = f"-{re.sub(r'[^a-z0-9]+', '-', name.lower())}" if len(by_data) > 1 else ""
        pictures[f"learning-curve{ending}"] = partial(learning_figure, alike)
    for i, group in enumerate(groups, 1):
        ending = f"-{i}-{group.algorithm}" if len(groups) > 1 else ""
        if mean_client_curve(group) is not None:
            pictures[f"server-and-clients-over-training{ending}"] = partial(training_figure, group)
        if any(row.data is not None or row.policy is not None for row in client_returns(group)):
            pictures[f"server-and-clients{ending}"] = partial(returns_figure, group)
        if votes(group):
            pictures[f"votes{ending}"] = partial(vote_figure, votes(group))
    return pictures


# --- The pictures ---


def learning_figure(groups: Sequence[Group]) -> Figure:
    """The server's return over training, one line per setting, with what the data earned as levels."""
    figure = Figure(figsize=(PAPER_WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    looks = styles([group.algorithm for group in groups]) if len(groups) > 1 else [(SERVER, ())]
    for group, (colour, dashes) in zip(groups, looks):
        curve = learning_curve(group)
        if curve is not None:
            _draw_curve(axes, curve, colour, dashes, group.label if len(groups) > 1 else "the server's policy")
    data = [data_returns(group) for group in groups]
    if data[0] and all(other == data[0] for other in data):
        axes.axhline(
            float(np.mean(data[0])), color=NAMES[DATA], linestyle="--", label="average of the clients' data"
        )
    axes.set(xlabel=STEPS, ylabel="return", title=_title(groups))
    axes.legend()
    return figure


def training_figure(group: Group) -> Figure:
    """The server's policy, every client's policy and the mean of these along training."""
    figure = Figure(figsize=(PAPER_WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    for curve in client_curves(group):
        axes.plot(curve.steps, curve.mean, color=NAMES[CLIENT], linewidth=0.7, alpha=0.5)
    server, mean = learning_curve(group), mean_client_curve(group)
    if mean is not None:
        _draw_curve(axes, mean, CLIENT, (7, 3), mean.label)
    if server is not None:
        _draw_curve(axes, server, SERVER, (), "the server's policy")
    axes.set(xlabel=STEPS, ylabel="return", title=_title([group]))
    axes.legend()
    return figure


def returns_figure(group: Group) -> Figure:
    """Every client's data and policy at the end, and the server's policy as a line through all."""
    rows = client_returns(group)
    figure = Figure(figsize=(PAPER_WIDTH, 1.2 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    mark: dict[str, Any] = {
        "linestyle": "none",
        "markeredgecolor": "black",
        "markeredgewidth": 0.6,
        "markersize": 7,
    }
    for what, form, colour, shift, label in (
        ("data", "D", DATA, -0.13, "a client's data"),
        ("policy", "o", CLIENT, 0.13, "its own policy at the end"),
    ):
        known = [(getattr(row, what), i + shift) for i, row in enumerate(rows) if getattr(row, what) is not None]
        if known:
            axes.plot(*zip(*known), form, color=NAMES[colour], label=label, **mark)
    if group.finals and group.mode != "local":
        axes.axvline(float(np.mean(group.finals)), color=NAMES[SERVER], linewidth=2, label="the server's policy")
    axes.set(
        xlabel="return",
        yticks=range(len(rows)),
        yticklabels=[row.client for row in rows],
        ylim=(len(rows) - 0.5, -0.5),
    )
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def vote_figure(found: Sequence[Votes]) -> Figure:
    """One panel per client: the shares of the votes that each candidate won, stacked."""
    columns = min(4, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(max(3.0, 1.9 * columns), 0.7 + 1.6 * rows), layout="constrained")
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
    figure.supxlabel(STEPS, fontsize=10)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def _title(groups: Sequence[Group]) -> str:
    """The task, and how many seeds stand behind the lines."""
    seeds = sorted({len(group.records) for group in groups})
    counted = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    words = "one seed" if seeds == [1] else f"{counted} seeds. {bands(seeds)}"
    return f"{groups[0].task} ({words})"


def _draw_curve(axes: Axes, curve: Curve, colour: str, dashes: Sequence[float], label: str) -> None:
    style = (0, tuple(dashes)) if dashes else "-"
    axes.plot(
        curve.steps,
        curve.mean,
        color=NAMES[colour],
        linestyle=style,
        linewidth=1.8,
        marker="o",
        markersize=3,
        label=label,
    )
    if curve.low is not None and curve.high is not None:
        axes.fill_between(curve.steps, curve.low, curve.high, color=NAMES[colour], alpha=0.2, linewidth=0)

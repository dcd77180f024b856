"""The learning curves of a result file as one SVG for the documents: one panel per case, one line per variant.

`svg.py` writes text and lines only. Equal results give equal bytes, and `marked.py` relies on this.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fova.errors import FovaError
from fova.evaluation.statistics import bands
from fova.experiments.results import Results, RunResult
from fova.reports import svg
from fova.reports.markup import Markup, element
from fova.reports.palette import Style, css, styles
from fova.reports.series import mean_curve

COLUMNS = 3
TITLE, GAP, LEGEND_ROW = 26, 10, 24
SAMPLE = 34  # width of a line sample in the legend
STYLE = f"""
text {{ font-family: sans-serif; font-size: 13px; fill: #333; }}
.title {{ font-size: 15px; fill: #000; }}
.grid {{ stroke: #ddd; fill: none; }}
.line {{ stroke: var(--colour); stroke-width: 2.2; fill: none; stroke-linejoin: round; }}
.line circle {{ fill: var(--colour); stroke: #fff; }}
.band {{ fill: var(--colour); opacity: .2; }}
{css()}
"""
STEPS = "local steps"


def curves(results: Results) -> Markup:
    """The mean normalised score (or return, without a score) during training, with bands over seeds."""
    looks = looks_of(results.variants())
    played = [run for run in results.runs if run.evaluations]
    if not played:
        raise FovaError(f"{results.name} has no learning curves: its runs were not evaluated during training.")
    results = replace(results, runs=played)
    cases = results.cases()
    columns = min(COLUMNS, len(cases))
    rows = -(-len(cases) // columns)
    width = columns * svg.WIDTH + (columns - 1) * GAP
    legend, legend_height = _legend(results, looks, width)
    panel_height = TITLE + svg.HEIGHT + GAP
    panels = []
    for i, case in enumerate(cases):
        left, top = i % columns * (svg.WIDTH + GAP), i // columns * panel_height
        panels.append(
            element("text", case, x=left + svg.WIDTH / 2, y=top + 18, text_anchor="middle", class_="title")
        )
        panels.append(_panel(results, case, looks, (left, top + TITLE)))
    height = rows * panel_height + legend_height
    return element(
        "svg",
        element("style", Markup(STYLE)),
        element("rect", width=width, height=height, fill="#fff"),
        panels,
        element("g", legend, transform=f"translate(0 {rows * panel_height})"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=f"{results.title}: learning curves. {results.scale}.",
    )


def looks_of(variants: Sequence[str]) -> dict[str, Style]:
    """The look of every variant, by its algorithm: the first word of its label."""
    return dict(zip(variants, styles([re.split(r" \(|, ", variant)[0] for variant in variants])))


def _panel(results: Results, case: str, looks: Mapping[str, Style], place: tuple[float, float]) -> Markup:
    lines = [
        _line(variant, runs, *looks[variant])
        for variant in results.variants()
        if (runs := results.of(case=case, variant=variant))
    ]
    scored = all(run.evaluations[0].server.score is not None for run in results.of(case=case))
    ends = "; ".join(f"{line.label} ends at {line.y[-1]:.1f}" for line in lines)
    return svg.line_chart(case, f"{ends}.", lines, [], STEPS, "score" if scored else "return", place=place)


def _line(label: str, runs: list[RunResult], colour: str, dashes: Sequence[float]) -> svg.Line:
    curve = mean_curve(label, [{played.steps: played.server.figure for played in run.evaluations} for run in runs])
    if curve is None:
        raise FovaError(f"The runs of {label} share no evaluation: there is no curve to draw.")
    return svg.Line(label, curve.steps, curve.mean, colour, curve.low, curve.high, dashes)


def _legend(results: Results, looks: Mapping[str, Style], width: float) -> tuple[list[Markup], float]:
    """The legend: samples of all lines in as many rows as needed, and its total height."""
    counts = {len(results.of(case=case, variant=v)) for case in results.cases() for v in results.variants()}
    seeds = sorted(counts - {0})
    how_many = " to ".join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1])))
    parts, x, row = [], 8.0, 0
    for label, (colour, dashes) in looks.items():
        needed = SAMPLE + 14 + svg.CHARACTER * len(label) + 16
        if x + needed > width and x > 8:
            x, row = 8.0, row + 1
        y = row * LEGEND_ROW + 14.0
        stroke = " ".join(f"{length:g}" for length in dashes) or None
        sample = element("path", d=f"M{x:.1f} {y:.1f}h{SAMPLE}", stroke_dasharray=stroke, class_=f"line {colour}")
        parts += [sample, element("text", label, x=x + SAMPLE + 8, y=y + 4.5)]
        x += needed
    words = f"Runs per line: {how_many}. {bands(seeds)}. {results.scale}"
    for line in textwrap.wrap(words, int((width - 16) / svg.CHARACTER)):
        row += 1
        parts.append(element("text", line, x=8.0, y=row * LEGEND_ROW + 18.0))
    return parts, (row + 1) * LEGEND_ROW + 6

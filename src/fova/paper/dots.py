"""The scores of a result file as one SVG for the documents: a row per case, a lane per variant, a dot per run.

Only variants with the most runs are shown: a variant with one run would look as sure as others with five. Where
too many remain to be told apart, those with the highest means are shown. As in `curves.py`, equal results give
equal bytes.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from fova.errors import FovaError
from fova.experiments.results import Results
from fova.paper.curves import looks_of
from fova.reports import svg
from fova.reports.markup import Markup, element
from fova.reports.palette import css

WIDTH, RIGHT = 900, 870
TOP, LANE, BETWEEN = 8, 11, 14  # lanes are places of variants inside a row
AXIS, LEGEND = 52, 30  # heights below the rows
# The mean has the variant's own shape, so that variants can be told apart without colours.
SHAPES = ("m0 -7l7 7l-7 7l-7 -7z", "m-5 -5h10v10h-10z", "m0 -6l6 11h-12z", "m0 6l6 -11h-12z", "m-2 -6h4v12h-4z")
STYLE = f"""
text {{ font-family: sans-serif; font-size: 13px; fill: #333; }}
.grid {{ stroke: #ddd; fill: none; }}
.row {{ fill: #f5f5f5; }}
.run {{ fill: var(--colour); opacity: .4; }}
.mean {{ fill: var(--colour); stroke: #fff; }}
{css()}
"""


class Lane(NamedTuple):
    """A variant's look, and how far below the top of a row it stands."""

    variant: str
    colour: str
    shape: str
    below: float


def dots(results: Results) -> Markup:
    """The score of every run's final policy, and the mean over the runs of each variant."""
    cases, lanes = results.cases(), _lanes(results)
    scores = {(case, lane.variant): _scores(results, case, lane.variant) for case in cases for lane in lanes}
    every = [score for found in scores.values() for score in found]
    row, left = LANE * len(lanes) + BETWEEN, 16 + svg.CHARACTER * max(map(len, cases))
    tops, bottom = {case: TOP + row * i for i, case in enumerate(cases)}, TOP + row * len(cases)
    ticks = svg.round_ticks(min(every), max(every), most=9)
    x = svg.Axis(ticks[0], ticks[-1], left + 8, RIGHT, ticks)
    height = bottom + AXIS + LEGEND
    return element(
        "svg",
        element("style", Markup(STYLE)),
        element("rect", width=WIDTH, height=height, fill="#fff"),
        [element("rect", x=0, y=top, width=WIDTH, height=row, class_="row") for top in list(tops.values())[::2]],
        [element("path", d=f"M{x(tick):.1f} {TOP}V{bottom}", class_="grid") for tick in ticks],
        [element("text", case, x=left, y=top + row / 2 + 4.5, text_anchor="end") for case, top in tops.items()],
        [
            _runs(f"{case}, {lane.variant}", scores[case, lane.variant], lane, x, tops[case] + lane.below)
            for case in cases
            for lane in lanes
        ],
        [element("text", f"{tick:g}", x=x(tick), y=bottom + 18.0, text_anchor="middle") for tick in ticks],
        element(
            "text",
            "normalised score (large: mean, small: single runs)",
            x=(left + RIGHT) / 2,
            y=bottom + 40.0,
            text_anchor="middle",
        ),
        _legend(lanes, bottom + AXIS + 14.0),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=f"{results.title}: scores of all runs. {results.scale}.",
    )


def _lanes(results: Results) -> list[Lane]:
    """The variants with the most runs, in their order: as many of the best as there are shapes."""
    counts = Counter(run.variant for run in results.runs)
    complete = [variant for variant in results.variants() if counts[variant] == max(counts.values())]
    best = sorted(complete, key=lambda variant: -_mean_over_cases(results, variant))[: len(SHAPES)]
    shown = [variant for variant in complete if variant in best]
    looks = looks_of(results.variants())
    return [
        Lane(variant, looks[variant][0], SHAPES[i], BETWEEN / 2 + LANE * (i + 0.5))
        for i, variant in enumerate(shown)
    ]


def _mean_over_cases(results: Results, variant: str) -> float:
    return float(np.mean([np.mean(_scores(results, case, variant)) for case in results.cases()]))


def _scores(results: Results, case: str, variant: str) -> list[float]:
    finals = [run.final for run in results.of(case=case, variant=variant)]
    scores = [final.server.score for final in finals if final is not None and final.server.score is not None]
    if not scores:
        raise FovaError(f"{results.name} has no scores of {variant} for {case}, so there is nothing to draw.")
    return scores


def _runs(words: str, scores: list[float], lane: Lane, x: svg.Axis, y: float) -> Markup:
    """Every run as a faint dot, and their mean in the variant's shape."""
    mean = float(np.mean(scores))
    return element(
        "g",
        element("title", f"{words}: {mean:.1f} ({', '.join(f'{score:.1f}' for score in scores)})"),
        [element("circle", cx=x(score), cy=y, r=3.5, class_="run") for score in scores],
        element("path", d=f"M{x(mean):.1f} {y:.1f}{lane.shape}", class_="mean"),
        class_=lane.colour,
    )


def _legend(lanes: list[Lane], y: float) -> list[Markup]:
    parts, at = [], 16.0
    for lane in lanes:
        mark = element("path", d=f"M{at:.1f} {y - 4:.1f}{lane.shape}", class_=f"mean {lane.colour}")
        parts += [mark, element("text", lane.variant, x=at + 12, y=y)]
        at += 30 + 7.0 * len(lane.variant)
    return parts

"""The part of the report that answers: would this be better than what was done?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fova.evaluation.judging.participation import Participation, in_words, taking_part
from fova.evaluation.judging.verdict import Figures, Verdict
from fova.reports import svg
from fova.reports.cells import Cell, Table, number_cell
from fova.reports.charts import Chart
from fova.reports.groups import Group
from fova.reports.palette import DATA, SERVER
from fova.reports.ranking import judged_settings

MOST_CLIENTS = 24


@dataclass(frozen=True)
class JudgedSection:
    """What the judge says about one setting."""

    sentences: Sequence[str]
    charts: Sequence[Chart]


def judged_section(group: Group) -> JudgedSection | None:
    """The verdict on the first run that was judged; None if none was."""
    if group.verdict is None:
        return None
    return JudgedSection([group.verdict.sentence(), *_how(group.verdict)], [_chart(group.verdict)])


def _how(verdict: Verdict) -> list[str]:
    """What was estimated, and how far to trust it."""
    figures = verdict.federation
    per_step = (1.0 - verdict.discount) * figures.value
    inside = "an unknown share" if figures.inside is None else f"{100 * figures.inside:.0f} %"
    words = [
        f"Over all clients the policy is estimated to earn {_interval(figures)}, and the logged episodes earned "
        f"{figures.data_value:.2f}. These are discounted returns from the first state of an episode (discount "
        f"{verdict.discount:g}); the estimate is worth {per_step:.3g} a step. An episode that was cut off counts "
        "as going on: in the logged returns the mean value of the data is added for the rest of it. The "
        "undiscounted return of the same logged episodes, with nothing added, is "
        f"{figures.data_return:.2f} on average.",
        f"The estimate comes from fitted Q evaluation on {figures.episodes} logged episodes, without a simulator. "
        f"The policy acts as somebody in the data did in {inside} of the states. The root mean square Bellman "
        f"error is {figures.bellman_error:.3g} a step; along logged episodes it adds up to {figures.bias:.2f}. The "
        "interval of each client is wider by the size of its own sum on both sides. No interval covers what a "
        "policy does in states that nobody logged.",
    ]
    if figures.effective_episodes is not None:
        words.append(
            f"Importance sampling rests on {figures.effective_episodes:.1f} of {figures.episodes} episodes."
        )
    return words


def _interval(figures: Figures) -> str:
    return f"{figures.value:.2f} (90 % interval {figures.low:.2f} to {figures.high:.2f})"


def _chart(verdict: Verdict) -> Chart:
    rows = list(verdict.clients.items())
    shown = [_row(name, figures) for name, figures in rows[:MOST_CLIENTS]]
    left_out = len(rows) - len(shown)
    title = "The policy against the data, by the judge"
    words = " ".join(
        f"{name}: data {f.data_value:.2f}, policy {_interval(f)}, {f.finding}." for name, f in rows[:MOST_CLIENTS]
    )
    return Chart(
        title,
        svg.interval_chart(title, words, shown, "discounted return from the first state"),
        svg.legend(
            [
                svg.Key("discounted return of the logged episodes", DATA, "diamond", series="data"),
                svg.Key("estimate for the policy, with its 90 % interval", SERVER, "circle", series="estimate"),
            ]
        ),
        verdict.sentence(),
        note=f"{left_out} more clients are in judge.json." if left_out else "",
    )


def _row(name: str, figures: Figures) -> svg.Interval:
    known = all(map(math.isfinite, (figures.low, figures.high)))
    low, high = (figures.low, figures.high) if known else (figures.value, figures.value)
    return svg.Interval(name, figures.data_value, figures.value, low, high)


# --- Settings beside one another ---


def judged_table(groups: Sequence[Group]) -> Table | None:
    """One row per setting that was judged, the best estimate first; None if none was."""
    rows = [
        [
            Cell(one.setting, one.setting),
            Cell(str(len(one.verdicts)), len(one.verdicts)),
            number_cell(one.value, "{:,.2f}"),
            number_cell(one.gain, "{:+,.2f}"),
            Cell(one.better_off, one.better),
            Cell(one.covered, one.inside),
        ]
        for one in judged_settings(groups)
    ]
    columns = ("setting", "seeds", "estimate", "policy minus data", "clients better off", "inside the data")
    caption = "The judge's estimates for all clients together: discounted returns, the highest first"
    return Table(caption, columns, rows) if rows else None


# --- Federated against local ----------------------------------------------------------------------------------


def participation_sentences(groups: Sequence[Group]) -> list[str]:
    """Does taking part pay? In words, for each algorithm that `participations` finds."""
    return [f"{algorithm}: {in_words(clients)}" for algorithm, clients in participations(groups).items()]


def participation_tables(groups: Sequence[Group]) -> list[Table]:
    """For each such algorithm one row per client: its data, its own policy and the federated policy."""
    columns = ("client", "its data", "its own policy", "federated policy", "gain", "finding")
    return [
        Table(
            f"{algorithm}: does taking part pay? Discounted returns by the judge; ± is half of a 90 % interval",
            columns,
            [_participation_row(name, found) for name, found in clients.items()],
        )
        for algorithm, clients in participations(groups).items()
    ]


def _participation_row(name: str, found: Participation) -> list[Cell]:
    values = [Cell(f"{value:.2f}", value) for value in (found.data, found.local, found.federated)]
    gain = Cell(f"{found.gain:+.2f} ± {found.reach:.2f}", found.gain)
    return [Cell(name, name), *values, gain, Cell(found.payoff, found.payoff)]


def participations(groups: Sequence[Group]) -> dict[str, dict[str, Participation]]:
    """By algorithm and client, where an algorithm was trained both federated and locally, and judged."""
    found = {}
    for group in groups:
        for other in groups:
            if (group.mode, other.mode) == ("federated", "local") and other.algorithm == group.algorithm:
                pairs = _pairs(group, other)
                if pairs:
                    found[group.algorithm] = taking_part([one for one, _ in pairs], [two for _, two in pairs])
    return found


def _pairs(group: Group, other: Group) -> list[tuple[Verdict, Verdict]]:
    """Verdicts on a federated and a local run of the same seed."""
    local = {record.seed: record.verdict for record in other.records}
    found = [(record.verdict, local.get(record.seed)) for record in group.records]
    return [(one, two) for one, two in found if one is not None and two is not None]

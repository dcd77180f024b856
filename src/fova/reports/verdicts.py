"""Tables of verdicts for the terminal."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.markup import escape
from rich.table import Table

from fova.evaluation.judging.participation import Participation, in_words
from fova.evaluation.judging.verdict import Figures, Verdict
from fova.reports.groups import Group


def verdict_table(verdict: Verdict) -> Table:
    """One line per client, and one for the federation."""
    table = Table(
        "client", title=f"discounted return from the first state, discount {verdict.discount:g}, 90 % intervals"
    )
    for column in ("episodes", "data", "policy", "difference", "per step", "inside", "finding"):
        table.add_column(column, justify="left" if column == "finding" else "right")
    for name, figures in verdict.clients.items():
        table.add_row(escape(name), *_cells(figures, verdict.discount), figures.finding)
    table.add_section()
    table.add_row("all", *_cells(verdict.federation, verdict.discount), "")
    return table


def ranking_table(ranked: Sequence[tuple[str, Verdict]]) -> Table:
    """The runs from the best to the worst estimate."""
    table = Table("run", title="ranking by the estimate for all clients together")
    for column in ("policy", "better than the data by", "inside"):
        table.add_column(column, justify="right")
    for name, verdict in ranked:
        figures = verdict.federation
        table.add_row(escape(name), _value(figures), _difference(figures), _inside(figures))
    return table


def settings_table(groups: Sequence[Group]) -> Table:
    """Settings from the best to the worst estimate, with means over the seeds that were judged."""
    table = Table("setting", title="estimates of the judge for all clients together, means over seeds")
    for column in ("seeds", "policy", "better than the data by", "clients better off", "inside"):
        table.add_column(column, justify="right")
    rows = []
    for group in groups:
        found = [record.verdict for record in group.records if record.verdict is not None]
        if not found:
            continue
        figures = [verdict.federation for verdict in found]
        better = sum(f.finding == "better" for verdict in found for f in verdict.clients.values())
        count = sum(len(verdict.clients) for verdict in found)
        inside = [f.inside for f in figures if f.inside is not None]
        value, gain = (float(np.mean([getattr(f, name) for f in figures])) for name in ("value", "difference"))
        share = f"{100 * np.mean(inside):.0f} %" if inside else "unknown"
        cells = (str(len(found)), f"{value:.2f}", f"{gain:+.2f}", f"{better} of {count}", share)
        rows.append((value, (escape(group.label), *cells)))
    for _, row in sorted(rows, reverse=True):
        table.add_row(*row)
    return table


def participation_table(algorithm: str, clients: Mapping[str, Participation]) -> Table:
    """Does taking part pay? One line per client."""
    table = Table("client", title=f"{escape(algorithm)}: does taking part pay?", caption=escape(in_words(clients)))
    for column in ("its data", "its own policy", "federated policy", "gain", "finding"):
        table.add_column(column, justify="left" if column == "finding" else "right")
    for name, one in clients.items():
        gain = f"{one.gain:+.2f} ± {one.reach:.2f}"
        values = (f"{value:.2f}" for value in (one.data, one.local, one.federated))
        table.add_row(escape(name), *values, gain, one.payoff)
    return table


def _cells(figures: Figures, discount: float) -> tuple[str, ...]:
    return (
        str(figures.episodes),
        f"{figures.data_value:.2f}",
        _value(figures),
        _difference(figures),
        f"{(1.0 - discount) * figures.value:.3g}",
        _inside(figures),
    )


def _value(figures: Figures) -> str:
    return f"{figures.value:.2f} [{figures.low:.2f}, {figures.high:.2f}]"


def _difference(figures: Figures) -> str:
    return f"{figures.difference:+.2f} [{figures.difference_low:+.2f}, {figures.difference_high:+.2f}]"


def _inside(figures: Figures) -> str:
    return "unknown" if figures.inside is None else f"{100 * figures.inside:.0f} %"

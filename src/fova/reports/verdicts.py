"""Tables of verdicts for the terminal."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from fova.evaluation.judging.verdict import Figures, Verdict


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

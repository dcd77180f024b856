"""Tables of verdicts for the terminal."""

from collections.abc import Iterator, Mapping, Sequence

from rich.markup import escape
from rich.table import Column, Table

from fova.evaluation.judging.participation import Participation, in_words
from fova.evaluation.judging.verdict import Figures, Verdict
from fova.reports.groups import Group
from fova.reports.ranking import judged_settings


def verdict_table(verdict: Verdict) -> Table:
    """What the policy is worth: one line per client, and one for the federation."""
    table = Table(
        _names_column(), title=f"discounted return of an episode, discount {verdict.discount:g}, 90 % intervals"
    )
    for column in ("data", "policy", "difference"):
        table.add_column(column, justify="right", overflow="fold")
    table.add_column("finding")
    for name, figures in _lines(verdict, table):
        finding = figures.finding if name in verdict.clients else ""
        values = (f"{figures.data_value:.2f}", _value(figures), _difference(figures))
        table.add_row(escape(name), *values, finding)
    return table


def trust_table(verdict: Verdict) -> Table:
    """How far to trust the estimates: one line per client, and one for the federation."""
    table = Table(_names_column(), title="how far to trust it")
    columns = ["episodes", "inside", "value per step", "Bellman error per step"]
    discrete = verdict.federation.effective_episodes is not None
    if discrete:
        columns.insert(1, "effective episodes")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    for name, figures in _lines(verdict, table):
        cells = [str(figures.episodes), _inside(figures), f"{(1.0 - verdict.discount) * figures.value:.3g}"]
        if discrete:
            cells.insert(1, f"{figures.effective_episodes:.1f}")
        table.add_row(escape(name), *cells, f"{figures.bellman_error:.3g}")
    return table


def _names_column() -> Column:
    return Column("client", overflow="fold")


def _lines(verdict: Verdict, table: Table) -> Iterator[tuple[str, Figures]]:
    """Every client, then a rule in the table, then all of them together."""
    yield from verdict.clients.items()
    table.add_section()
    yield "all", verdict.federation


def ranking_table(ranked: Sequence[tuple[str, Verdict]]) -> Table:
    """The runs from the best to the worst estimate."""
    table = Table(Column("run", overflow="fold"), title="ranking by the estimate for all clients together")
    for column in ("policy", "policy minus data", "inside"):
        table.add_column(column, justify="right", overflow="fold")
    for name, verdict in ranked:
        figures = verdict.federation
        table.add_row(escape(name), _value(figures), _difference(figures), _inside(figures))
    return table


def settings_table(groups: Sequence[Group]) -> Table:
    """Settings from the best to the worst estimate, with means over the seeds that were judged."""
    table = Table("setting", title="estimates of the judge for all clients together, means over seeds")
    for column in ("seeds", "policy", "policy minus data", "clients better off", "inside"):
        table.add_column(column, justify="right")
    for one in judged_settings(groups):
        cells = (
            one.setting,
            str(len(one.verdicts)),
            f"{one.value:.2f}",
            f"{one.gain:+.2f}",
            one.better_off,
            one.covered,
        )
        table.add_row(*map(escape, cells))
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


def _value(figures: Figures) -> str:
    return f"{figures.value:.2f} [{figures.low:.2f}, {figures.high:.2f}]"


def _difference(figures: Figures) -> str:
    return f"{figures.difference:+.2f} [{figures.difference_low:+.2f}, {figures.difference_high:+.2f}]"


def _inside(figures: Figures) -> str:
    return "unknown" if figures.inside is None else f"{100 * figures.inside:.0f} %"

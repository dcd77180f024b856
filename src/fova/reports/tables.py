"""Results as tables for the terminal."""

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from fova.data.fields import counted
from fova.evaluation.metrics import server_minus_mean_client
from fova.evaluation.rollouts import Rollouts
from fova.evaluation.statistics import how_sure, mean_over_runs
from fova.experiments.results import Results
from fova.run.records import read_record
from fova.run.result import Result


def result_table(result: Result) -> Table:
    """The returns of the server's policy and of every client's, and of the behaviour in the data.

    Without a server, the first row is the mean over all clients.
    """
    behaviour = read_record(result.directory).behaviour_returns
    overall = "server" if result.policy is not None else "all clients"
    if behaviour:
        behaviour[overall] = sum(behaviour.values()) / len(behaviour)
    played = {overall: result.server} if result.server else {}
    return rollouts_table(played | result.clients, behaviour, overall)


def what_it_took(directory: Path) -> list[str]:
    """Lines on the bytes that a run sent, the privacy it spent and the clients it rejected."""
    record, lines = read_record(directory), []
    last = record.last_round
    if last and last.traffic:
        lines.append(f"bytes    {last.traffic.up:,} up and {last.traffic.down:,} down per client and round")
    if last and last.privacy:
        spent = last.privacy
        lines.append(f"privacy  epsilon {spent.epsilon:.2f}, delta {spent.delta:g} for every client as a whole")
    for name, times in record.times("rejected").items():
        lines.append(f"rejected {name} in {counted(times, 'round')} of {record.rounds_done}; see rejected_because")
    return lines


def rollouts_table(
    played: Mapping[str, Rollouts], behaviour: Mapping[str, float] | None = None, overall: str = "server"
) -> Table:
    """One row per policy. The row called `overall` stands out and shows the average behaviour of all clients."""
    episodes = min(len(rollouts.returns) for rollouts in played.values())
    table = Table(title=f"mean return of {counted(episodes, 'episode')}")
    table.add_column("policy", overflow="fold")
    scored = any(rollouts.score is not None for rollouts in played.values())
    measured = list(next(iter(played.values())).measures)
    for column in ("return", "spread", "length", *(["normalised score"] if scored else []), *measured):
        table.add_column(column, justify="right")
    if behaviour:
        table.add_column("return of its data", justify="right")
    for name, rollouts in played.items():
        score = ["" if rollouts.score is None else f"{rollouts.score:.1f}"] if scored else []
        figures = [
            f"{rollouts.mean_return:.1f}",
            f"{rollouts.returns.std():.1f}",
            f"{rollouts.lengths.mean():.0f}",
            *score,
            *(f"{rollouts.measures[measure]:.3f}" for measure in measured),
        ]
        if behaviour:
            known = behaviour.get(name)  # a policy of pooled data has no data of its own
            figures.append("" if known is None else f"{known:.1f}" + (" (average)" if name == overall else ""))
        table.add_row(name, *figures, style="bold" if name == overall else None)
    return table


def comparison_table(results: Results) -> Table:
    """One row per algorithm, best first: the server's final policy over seeds, and how it stands to its clients."""
    runs = {variant: results.of(variant=variant) for variant in results.variants()}
    finals = {variant: [run.final for run in of if run.final is not None] for variant, of in runs.items()}
    scored = all(final.server.score is not None for each in finals.values() for final in each)
    behaviour = [run.behaviour_return() for run in results.runs]
    spread = how_sure([len(each) for each in finals.values()])
    table = Table(
        title=results.title,
        caption=(
            f"{results.scale}; {results.runs[0].gradient_steps:,} gradient steps of all clients together; {spread}."
            f" The data's own mean return: {sum(behaviour) / len(behaviour):.1f}"
        ),
    )
    table.add_column("algorithm")
    for column in ("normalised score" if scored else "return", "return", "server minus mean client"):
        table.add_column(column, justify="right")
    intervals = {
        variant: mean_over_runs([final.server.figure if scored else final.server.mean_return for final in each])
        for variant, each in finals.items()
    }
    for variant in sorted(finals, key=lambda variant: -intervals[variant].value):
        mean_return = mean_over_runs([final.server.mean_return for final in finals[variant]])
        ahead = mean_over_runs([server_minus_mean_client(final) for final in finals[variant]])
        federated = runs[variant][0].mode == "federated"
        cells = (intervals[variant].text(), mean_return.text(), ahead.text() if federated else "")
        table.add_row(variant, *cells)
    return table

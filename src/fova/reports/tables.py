"""Results as tables for the terminal."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from fova.comparison import Line, Plan
from fova.evaluation.rollouts import Rollouts
from fova.runs import RunDirectory
from fova.tasks import registry
from fova.training import Result


def result_table(result: Result) -> Table:
    """The server's policy against every client's own policy and the behaviour in its data."""
    data = RunDirectory.open(result.directory).read_json("clients.json")
    behaviour = {name: client["behaviour_return"] for name, client in data.items()}
    behaviour["server"] = sum(behaviour.values()) / len(behaviour)
    played = {"server": result.server} if result.server else {}
    return rollouts_table(played | result.clients, behaviour)


def rollouts_table(played: Mapping[str, Rollouts], behaviour: Mapping[str, float] | None = None) -> Table:
    """One row per policy. The server's row shows the average behaviour of all clients."""
    episodes = len(next(iter(played.values())).returns)
    table = Table(title=f"mean return of {episodes} episodes")
    table.add_column("policy")
    for column in ("return", "spread", "length", "normalised score"):
        table.add_column(column, justify="right")
    if behaviour:
        table.add_column("return of its data", justify="right")
    for name, rollouts in played.items():
        score = "" if rollouts.score is None else f"{rollouts.score:.1f}"
        figures = [
            f"{rollouts.mean_return:.1f}",
            f"{rollouts.returns.std():.1f}",
            f"{rollouts.lengths.mean():.0f}",
            score,
        ]
        if behaviour:
            figures.append(f"{behaviour[name]:.1f}" + (" (average)" if name == "server" else ""))
        table.add_row(name, *figures, style="bold" if name == "server" else None)
    return table


def tasks_table() -> Table:
    """Every task with what can be made for it and its reference scores."""
    table = Table(title="tasks")
    for column in ("task", "obs", "act", "steps", "data that can be made", "random", "expert"):
        numeric = column not in ("task", "data that can be made")
        # names are there to be copied: they are never cut
        table.add_column(column, justify="right" if numeric else "left", no_wrap=column == "task", overflow="fold")
    for name in registry.names():
        task = registry.get(name)
        scores = ["" if s is None else f"{s:.1f}" for s in (task.random_score, task.expert_score)]
        sizes = (str(task.shapes.observation), str(task.shapes.action), str(task.time_limit))
        table.add_row(name, *sizes, ", ".join(task.qualities), *scores)
    return table


def comparison_table(lines: Sequence[Line], behaviour: float, plan: Plan) -> Table:
    """One row per algorithm: the server's final policy over seeds, and how it stands to its clients' own."""
    unit = "return" if lines[0].scores is None else "normalised score"
    clients = ", ".join(spec.data for spec in plan.clients)
    table = Table(
        title=f"{plan.task}: {clients}",
        caption=(
            f"{plan.seeds} seeds, {lines[0].gradient_steps:,} gradient steps each; mean and 95 % bootstrap "
            f"interval over seeds. The data's own mean return: {behaviour:.1f}"
        ),
    )
    table.add_column("algorithm")
    for column in (unit, "return", "server minus mean client"):
        table.add_column(column, justify="right")
    for line in lines:
        mean_return = sum(line.returns) / len(line.returns)
        difference = mean_return - sum(line.client_returns) / len(line.client_returns)
        shown = "" if line.mode != "federated" else f"{difference:+.1f}"
        table.add_row(line.name, str(line.interval()), f"{mean_return:.1f}", shown)
    return table

"""Results as tables for the terminal."""

from rich.table import Table

from fova.runs import RunDirectory
from fova.training import Result


def result_table(result: Result) -> Table:
    """The server's policy against every client's own policy and the behaviour in its data."""
    data = RunDirectory.open(result.directory).read_json("clients.json")
    episodes = len(result.server.returns) if result.server else 0
    table = Table(title=f"mean return of {episodes} episodes")
    for column in ("policy", "return", "normalised score", "return of its data"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    mean_behaviour = sum(client["behaviour_return"] for client in data.values()) / len(data)
    rows = {"server": result.server, **result.clients}
    for name, played in rows.items():
        if played is None:
            continue
        score = "" if played.score is None else f"{played.score:.1f}"
        behaviour = data[name]["behaviour_return"] if name in data else mean_behaviour
        style = "bold" if name == "server" else None
        table.add_row(name, f"{played.mean_return:.1f}", score, f"{behaviour:.1f}", style=style)
    return table

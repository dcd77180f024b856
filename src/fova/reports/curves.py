"""Pictures of a run: the server's return over training, and who won the vote at each client.

Drawn with matplotlib's figures and axes only, so that nothing needs a screen.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by colour-blind readers, too.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#666666"
VOTERS = {"local": BLUE, "behaviour": ORANGE, "global": GREEN}


def run_figure(metrics: Sequence[dict[str, Any]], behaviour: dict[str, float]) -> Figure:
    """The learning curve beside one panel of vote shares per client (at most six)."""
    voting = _clients_with_votes(metrics)[:6]
    has_curve = any("server" in entry for entry in metrics)
    columns = has_curve + (len(voting) + 1) // 2
    figure = Figure(figsize=(4.6 + 2.5 * max(0, columns - 1), 3.8), layout="constrained")
    grid = figure.add_gridspec(
        2, max(columns, 1), width_ratios=[2.0] * has_curve + [1.0] * (columns - has_curve) or None
    )
    if has_curve:
        draw_learning_curve(figure.add_subplot(grid[:, 0]), metrics, behaviour)
    for i, client in enumerate(voting):
        axes = figure.add_subplot(grid[i % 2, has_curve + i // 2])
        draw_votes(axes, metrics, client)
        if i == 0:
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside lower right", ncols=3, frameon=False, title="who won the vote at s'"
            )
    return figure


def draw_learning_curve(axes: Axes, metrics: Sequence[dict[str, Any]], behaviour: dict[str, float]) -> None:
    """The server's mean return at each evaluation, with the return of every client's data as a line to beat."""
    played = [entry for entry in metrics if "server" in entry]
    axes.plot(
        [entry["round"] for entry in played],
        [entry["server"]["return"] for entry in played],
        color=BLUE,
        marker="o",
        linewidth=2,
        label="server's policy",
    )
    average = sum(behaviour.values()) / len(behaviour)
    for i, value in enumerate(behaviour.values()):
        axes.axhline(value, color=GREY, linewidth=0.8, alpha=0.6, label=None if i else "each client's data")
    axes.axhline(average, color=ORANGE, linestyle="--", linewidth=1.6, label="average of the clients' data")
    axes.set(xlabel="round", ylabel="return", title="Server's policy over training")
    axes.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    axes.spines[["top", "right"]].set_visible(False)


def draw_votes(axes: Axes, metrics: Sequence[dict[str, Any]], client: str) -> None:
    """Stacked shares of the votes at s' that went to each candidate."""
    entries = [entry for entry in metrics if client in entry.get("clients", {})]
    axes.stackplot(
        [entry["round"] for entry in entries],
        [[entry["clients"][client][f"vote_{who}"] for entry in entries] for who in VOTERS],
        labels=[{"local": "own policy", "behaviour": "its data", "global": "global policy"}[who] for who in VOTERS],
        colors=list(VOTERS.values()),
        alpha=0.85,
    )
    axes.set(title=client, ylim=(0, 1), yticks=[0, 0.5, 1])
    axes.set_yticklabels(["0", "½", "1"])
    axes.margins(x=0)


def _clients_with_votes(metrics: Sequence[dict[str, Any]]) -> list[str]:
    clients = metrics[-1].get("clients", {}) if metrics else {}
    return [name for name, values in clients.items() if "vote_local" in values]

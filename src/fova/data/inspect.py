"""Summaries of a dataset (episodes, returns, lengths, coverage, bounds, problems) and of a federation.

`inspect` computes a summary, `render` prints it in a terminal, and `Summary.to_json` is for scripts. For several
clients at once there are `inspect_federation`, `render_federation` and `FederationSummary`. No file is read here. A
problem is something that training tolerates but a person should look at. If training cannot tolerate it, the reader
or `fova.data.transitions.check` raises an error.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from fova.data.action_kind import discrete_actions
from fova.data.doubts import doubts
from fova.data.fields import counted
from fova.data.heterogeneity import Standing, mean_of_known, standings
from fova.data.sources import Source
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.spaces import Discrete

BINS = 10  # of a histogram
RANGE_CELLS = 20  # cells of an action column's range, to measure how much of it is used
ENOUGH_FOR_CORRELATIONS = 100_000  # steps; larger datasets are subsampled at even spacing
BAR = 30  # characters of the longest bar
FEWEST_TO_COMPARE = 10  # episodes of a client, for an error of its mean return
ALIKE = 0.1  # clients are called alike up to this difference (0 .. 1)
SHOWN = 30  # columns of observations or actions shown in the terminal; the JSON holds all of them


@dataclass(frozen=True)
class Spread:
    """Statistics of a list of numbers."""

    mean: float
    std: float
    min: float
    median: float
    max: float
    count: int


@dataclass(frozen=True)
class Column:
    """Statistics of one column of the observations or actions, over all steps."""

    name: str  # the column's name, or its number if it has none
    mean: float
    std: float
    min: float
    max: float


@dataclass(frozen=True)
class Summary:
    """Everything `render` shows. All fields are plain values, so that they can be written as JSON."""

    name: str
    format: str
    episodes: int
    steps: int
    mean_return: float
    returns: Spread
    return_edges: list[float]  # [bins + 1]
    return_counts: list[int]  # [bins]
    lengths: Spread
    ended: int  # episodes in which the task ended
    broke_off: int  # episodes that ended at a time limit or at the end of the record
    rewards: Spread
    observations: list[Column]
    actions: list[Column]
    action_low: list[float] | None  # as declared in the file
    action_high: list[float] | None
    observation_directions: float  # number of directions along which the observations vary (1 .. columns)
    action_coverage: list[float]  # per column: share of its range, or of the discrete actions, that is used
    action_shares: dict[str, float] | None  # of discrete actions: the share of the steps that took each
    notes: list[str]
    problems: list[str]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def inspect(source: Source) -> Summary:
    """Compute the summary of a dataset."""
    data = source.transitions
    returns = data.episode_returns()
    alike = np.ptp(returns) <= 1e-9 * np.abs(returns).max()  # too close for separate bins
    counts, edges = np.histogram(returns, bins=1 if alike else BINS)
    ended = int(data.terminals.sum())
    low, high = _range(source)
    choices, unclear = _kind_of_actions(source)
    shares = _shares(data.actions, choices) if choices else None
    return Summary(
        name=source.name,
        format=source.format,
        episodes=len(returns),
        steps=len(data),
        mean_return=float(returns.mean()),
        returns=_spread(returns),
        return_edges=[float(edge) for edge in edges],
        return_counts=[int(count) for count in counts],
        lengths=_spread(data.episode_lengths()),
        ended=ended,
        broke_off=len(returns) - ended,
        rewards=_spread(data.rewards),
        observations=_columns(data.observations, source.observation_columns),
        actions=_columns(data.actions, source.action_columns),
        action_low=None if source.action_low is None else [float(bound) for bound in source.action_low],
        action_high=None if source.action_high is None else [float(bound) for bound in source.action_high],
        observation_directions=_directions(data.observations),
        action_coverage=_coverage(data.actions, low, high) if shares is None else [_share_of_used(shares)],
        action_shares=shares,
        notes=list(source.notes),
        problems=[*_problems(source, choices), *unclear],
    )


# --- Statistics --------------------------------------------------------------------------------------------


def _spread(values: ArrayLike) -> Spread:
    numbers = np.asarray(values, np.float64)
    return Spread(
        mean=float(numbers.mean()),
        std=float(numbers.std()),
        min=float(numbers.min()),
        median=float(np.median(numbers)),
        max=float(numbers.max()),
        count=len(numbers),
    )


def _columns(values: NDArray[np.float32], names: Sequence[str] | None) -> list[Column]:
    columns = []
    for number in range(values.shape[1]):  # one at a time: a large dataset is not copied as a whole
        column = values[:, number].astype(np.float64)
        statistics = (column.mean(), column.std(), column.min(), column.max())
        columns.append(Column(names[number] if names else str(number), *map(float, statistics)))
    return columns


def _directions(observations: NDArray[np.float32]) -> float:
    """The participation ratio of the correlations, (sum of eigenvalues)^2 / sum of squared eigenvalues.

    It is 1 if all columns vary in step, and the number of columns if they vary independently.
    """
    every = 1 + len(observations) // ENOUGH_FOR_CORRELATIONS
    numbers = observations[::every].astype(np.float64)
    moving = numbers[:, np.ptp(numbers, axis=0) > 0]
    if moving.shape[1] < 2:
        return float(moving.shape[1])
    correlations = np.corrcoef(moving, rowvar=False)
    return float(np.trace(correlations) ** 2 / (correlations**2).sum())


def _range(source: Source) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The declared range of the actions, or the range of their values if none is declared."""
    actions = source.transitions.actions
    low = actions.min(axis=0) if source.action_low is None else source.action_low
    high = actions.max(axis=0) if source.action_high is None else source.action_high
    return low, high


def _coverage(actions: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32]) -> list[float]:
    width = np.where(high > low, high.astype(np.float64) - low, 1.0)
    cells = np.clip((actions.astype(np.float64) - low) / width * RANGE_CELLS, 0, RANGE_CELLS - 1).astype(int)
    return [len(np.unique(column)) / RANGE_CELLS for column in cells.T]


def _kind_of_actions(source: Source) -> tuple[Discrete | None, list[str]]:
    """The discrete actions, if they are discrete; and what to decide, if that is not clear."""
    if source.action_columns is not None and source.action_names is None:
        return None, []  # the columns of a table say which are numbers
    try:
        return discrete_actions({source.name: source.logged_actions}), []
    except FovaError as error:
        return None, [f"actions: {error}"]


def _shares(actions: NDArray[np.float32], choices: Discrete) -> dict[str, float]:
    counts = np.bincount(actions[:, 0].astype(np.int64), minlength=choices.count)
    return {name: float(count / len(actions)) for name, count in zip(choices.names, counts)}


def _share_of_used(shares: Mapping[str, float]) -> float:
    return sum(share > 0 for share in shares.values()) / len(shares)


# --- Problems ----------------------------------------------------------------------------------------------


def _problems(source: Source, choices: Discrete | None) -> Iterator[str]:
    data = source.transitions
    for name in ("observations", "actions"):
        constant = np.flatnonzero(np.ptp(getattr(data, name), axis=0) == 0)
        if len(constant):
            listed = ", ".join(map(str, constant[:8])) + (", ..." if len(constant) > 8 else "")
            yield f"{name}: these columns never change, so nothing is learned from them: {listed}."
    yield from doubts(source)
    if choices is None:
        yield from _action_problems(source)
    if len(data) == 1:
        yield "rewards: there is a single step; a client needs at least two."
    if len(data) > 1 and (data.episode_lengths() == 1).all():
        yield "episodes: every one is a single step, so no next action is known. Are the rows in order?"
    repeated = len(data) - _distinct(data)
    if repeated:
        yield f"steps: exact copies of other steps: {repeated:,} of {len(data):,}."


def _action_problems(source: Source) -> Iterator[str]:
    actions = source.transitions.actions
    if source.action_low is None or source.action_high is None:
        outside = (np.abs(actions) > 1.0).any(axis=1)
        if outside.any():
            lowest, highest = actions.min(), actions.max()
            yield (
                f"actions: the file declares no bounds, and actions reach from {lowest:g} to {highest:g}. Declare "
                "the true ones (--action-low, --action-high)."
            )
        return
    at_bound = ((actions <= source.action_low) | (actions >= source.action_high)).mean()
    if at_bound > 0.5:
        yield f"actions: {at_bound:.0%} of the numbers are at a bound. Was the log clipped?"


def _distinct(data: Transitions) -> int:
    """Number of distinct steps.

    Sorting whole rows is slow, so only rows with the same fingerprint are compared. A fingerprint is a weighted sum
    of the bits of a row's numbers.
    """
    rows = np.column_stack([data.observations, data.actions, data.rewards, data.next_observations])
    weights = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64)
    fingerprints = rows.view(np.uint32).astype(np.uint64) @ weights
    _, inverse, counts = np.unique(fingerprints, return_inverse=True, return_counts=True)
    shared = rows[counts[inverse] > 1]
    return int((counts == 1).sum()) + len(np.unique(shared, axis=0))


# --- Output in the terminal --------------------------------------------------------------------------------


def render(summary: Summary, console: Console) -> None:
    """Print a summary in the terminal."""
    console.print(f"[bold]{escape(summary.name)}[/bold]  ({summary.format})")
    console.print(
        f"{counted(summary.steps, 'step')} in {counted(summary.episodes, 'episode')}: "
        f"{summary.ended:,} ended, {summary.broke_off:,} broke off (time limit or end of the record)"
    )
    console.print(_spreads(summary))
    _histogram(summary, console)
    used, shares = float(np.mean(summary.action_coverage)), summary.action_shares
    about_actions = f"actions take up {used:.0%} of their range"
    if shares:
        about_actions = f"{used:.0%} of {len(shares)} discrete actions occur"
    console.print(
        f"Coverage: observations vary along {summary.observation_directions:.1f} of "
        f"{counted(len(summary.observations), 'direction')}; {about_actions}"
    )
    console.print(_column_grid("observation", summary.observations))
    if shares:
        console.print(_share_grid(shares))
    else:
        console.print(_column_grid("action", summary.actions, summary.action_low, summary.action_high))
    for note in summary.notes:
        console.print(f"[cyan]note[/cyan]     {escape(note)}")
    for problem in summary.problems:
        console.print(f"[yellow]problem[/yellow]  {escape(problem)}")
    if not summary.problems:
        console.print("[green]No problems found.[/green]")


def _spreads(summary: Summary) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    grid.add_column("")
    for heading in ("mean", "std", "min", "median", "max"):
        grid.add_column(heading, justify="right")
    for name, spread in (("return", summary.returns), ("length", summary.lengths), ("reward", summary.rewards)):
        numbers = (spread.mean, spread.std, spread.min, spread.median, spread.max)
        grid.add_row(name, *(_number(number) for number in numbers))
    return grid


def _histogram(summary: Summary, console: Console) -> None:
    """Print the returns as bars, one per line, with the number of episodes in each."""
    block = "█" if console.encoding.lower().startswith("utf") else "#"
    console.print("Returns")
    most = max(summary.return_counts)
    for left, right, count in zip(summary.return_edges, summary.return_edges[1:], summary.return_counts):
        bar = block * max(round(BAR * count / most), 1 if count else 0)
        console.print(f"  {_number(left):>10} .. {_number(right):<10} {bar} {count:,}", highlight=False)


def _column_grid(
    name: str, columns: Sequence[Column], low: Sequence[float] | None = None, high: Sequence[float] | None = None
) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    grid.add_column(name)
    headings = ["mean", "std", "min", "max"] + (["declared"] if low is not None else [])
    for heading in headings:
        grid.add_column(heading, justify="right")
    for number, column in enumerate(columns[:SHOWN]):
        cells = [_number(value) for value in (column.mean, column.std, column.min, column.max)]
        if low is not None and high is not None:
            cells.append(f"{_number(low[number])} .. {_number(high[number])}")
        grid.add_row(escape(column.name), *cells)
    if len(columns) > SHOWN:
        grid.add_row(f"and {len(columns) - SHOWN} more")
    return grid


def _share_grid(shares: Mapping[str, float]) -> Grid:
    """The discrete actions by name, with the share of the steps that took each."""
    grid = Grid(box=None, pad_edge=False)
    for heading in ("action", "code", "share of steps"):
        grid.add_column(heading, justify="left" if heading == "action" else "right")
    for code, (name, share) in enumerate(list(shares.items())[:SHOWN]):
        grid.add_row(escape(name), str(code), f"{share:.1%}")
    if len(shares) > SHOWN:
        grid.add_row(f"and {len(shares) - SHOWN} more")
    return grid


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


# --- A federation ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FederationSummary:
    """How the clients of a federation differ, and what that means for training."""

    clients: dict[str, Standing]
    meaning: str
    notes: list[str] = field(default_factory=list)  # rows that were left out, and what looks like a mistake

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def inspect_federation(clients: Mapping[str, Transitions], notes: Sequence[str] = ()) -> FederationSummary:
    """Compare clients by the statistics that each may share (see `fova.data.heterogeneity`)."""
    found = standings(clients)
    return FederationSummary(found, meaning(found), list(notes))


def meaning(clients: Mapping[str, Standing]) -> str:
    """What the differences mean for training, in one plain sentence."""
    states, actions = (mean_of_known(getattr(c, name) for c in clients.values()) for name in ("states", "actions"))
    if len(clients) == 1:
        return "There is only one client, so there is nothing to compare it with."
    returns = _differing_returns(clients)
    if states is None:
        return f"There is too little data to say how the clients differ{f', but {returns}' if returns else ''}."
    if actions is None:
        return (
            f"No two clients are ever in similar states{f', and {returns}' if returns else ''}: check that all log "
            "the same quantities, in the same order and units, before training one policy for them."
        )
    if actions > ALIKE:
        return f"The clients act differently in the states they share, {_quality(clients)}"
    if returns:
        return (
            f"The clients' actions are similar, but {returns}: either small differences in their actions matter, "
            "or they count rewards differently (units, length of episodes)."
        )
    if states > ALIKE:
        alone = sum(client.alone for client in clients.values())
        return (
            "The clients act alike in the states that they share, but are mostly in different states: each adds "
            f"what the others lack, and in the {alone:.0%} of the visited cells that only one client has seen, the "
            "policy depends on its data."
        )
    return "The clients' data are alike, so training together amounts to having more of the same data."


def _gap(clients: Mapping[str, Standing]) -> tuple[str, str] | None:
    """The clients with the highest and the lowest return, if success differs.

    It does if the gap between them is wider than the mean spread within clients, or wider than chance explains:
    three standard errors of the difference of their means.
    """
    best, worst = (pick(clients, key=lambda name: clients[name].mean_return) for pick in (max, min))
    gap = clients[best].mean_return - clients[worst].mean_return
    spread = float(np.mean([client.return_spread for client in clients.values()]))
    error = np.sqrt(sum(clients[name].return_spread ** 2 / clients[name].episodes for name in (best, worst)))
    enough = min(clients[name].episodes for name in (best, worst)) >= FEWEST_TO_COMPARE
    return (best, worst) if gap > spread or (enough and gap > 3.0 * error) else None


def _differing_returns(clients: Mapping[str, Standing]) -> str:
    """How the returns differ, as a part of a sentence; empty if they do not."""
    gap = _gap(clients)
    if gap is None:
        return ""
    most, least = (_number(clients[name].mean_return) for name in gap)
    return f"their returns differ ({gap[0]} earns {most}, {gap[1]} {least})"


def _quality(clients: Mapping[str, Standing]) -> str:
    """Whether different actions go with different success, in words."""
    gap = _gap(clients)
    if gap is not None:
        most, least = (_number(clients[name].mean_return) for name in gap)
        return (
            f"and with different success ({gap[0]} earns {most}, {gap[1]} {least}): plain averaging mixes good "
            "with bad, and the vote is there to choose between them."
        )
    return "with similar success: averaging mixes different behaviours of about the same quality."


def render_federation(summary: FederationSummary, console: Console) -> None:
    """Print the clients of a federation side by side."""
    grid = Grid(box=None, pad_edge=False)
    grid.add_column("client", no_wrap=True)
    for heading in ("rows", "return", "spread", "covers", "alone in", "other states", "other actions"):
        grid.add_column(heading, justify="right")
    for name, client in summary.clients.items():
        returns = (_number(client.mean_return), _number(client.return_spread))
        shares = (f"{client.coverage:.0%}", f"{client.alone:.0%}")
        differences = ("?" if value is None else f"{value:.2f}" for value in (client.states, client.actions))
        grid.add_row(escape(name), f"{client.rows:,}", *returns, *shares, *differences)
    console.print(grid)
    console.print(
        "covers, alone in: shares of the visited cells of the state space. other states, other "
        "actions: the difference from another client; 0 is the same, 1 is nothing in common.",
        style="dim",
        highlight=False,
    )
    console.print(summary.meaning, highlight=False)
    for note in summary.notes:
        console.print(f"[cyan]note[/cyan]  {escape(note)}")

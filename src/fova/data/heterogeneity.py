"""How much the clients of a federation differ, and what each client covers, computed from sums alone.

A client sends two messages. Their sizes do not depend on its number of rows. The first message holds the sums of
`fova.data.normalise`. From these the server lays one grid over the states and actions of all clients. The second
message is a `Tally`: the counts of the client's rows in the cells of the grid, and sums of its returns. All results
are computed from tallies. Only `tally` and `scale_sums` read raw rows.

Differences are 1 minus the Morisita-Horn overlap of two distributions p and q, 2 <p, q> / (<p, p> + <q, q>): 0 if
they are the same, 1 if they have nothing in common. Clients count their even and odd episodes separately, and every
product takes one factor from each half. This is because <p, p> of a single sample also contains the sample's noise.
Without the split, two clients with the same behaviour would seem to differ, and more so the less data they have.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fova.data.normalise import Normaliser, Sums, client_sums, combine
from fova.data.transitions import Floats, Transitions
from fova.errors import FovaError

STATE_PLANES = 8  # divide the states into at most 256 cells
ACTION_PLANES = 4  # divide the actions into at most 16 cells
OFFSET = 0.5  # spread of the planes about the mean, in standard deviations
SEED = 0  # of the planes; the same for all federations, so that results are comparable

Numbers = NDArray[np.float64]


# --- The grid ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planes:
    """Cells between planes of random direction. The sides on which a vector lies give the number of its cell.

    Planes work for any number of columns. A grid along many columns would put every row in a separate cell.
    """

    normaliser: Normaliser
    directions: Numbers  # [columns, planes]
    offsets: Numbers  # [planes]

    @property
    def cells(self) -> int:
        return 2 ** len(self.offsets)

    def __call__(self, vectors: Floats) -> NDArray[np.int64]:
        above = self.normaliser(vectors) @ self.directions > self.offsets
        return above @ 2 ** np.arange(len(self.offsets))


class Grid(NamedTuple):
    """The cells of states and actions, the same for all clients."""

    states: Planes
    actions: Planes


class ScaleSums(NamedTuple):
    """A client's first message: sums of its observations and actions."""

    observations: Sums
    actions: Sums


def scale_sums(data: Transitions) -> ScaleSums:
    """The first message of a client. The client computes it on its own data."""
    return ScaleSums(client_sums(data.observations), client_sums(data.actions))


def lay_grid(sums: Sequence[ScaleSums]) -> Grid:
    """The grid for all clients. The server computes it from the clients' first messages."""
    rng = np.random.default_rng(SEED)
    return Grid(
        _random_planes(combine(s.observations for s in sums), STATE_PLANES, rng),
        _random_planes(combine(s.actions for s in sums), ACTION_PLANES, rng),
    )


def _random_planes(normaliser: Normaliser, planes: int, rng: np.random.Generator) -> Planes:
    directions = rng.normal(size=(len(normaliser.mean), planes))
    return Planes(normaliser, directions / np.linalg.norm(directions, axis=0), rng.normal(0, OFFSET, planes))


# --- A client's message -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """A client's second message: counts of its rows and sums of its returns."""

    counts: NDArray[np.int64]  # [half, state cell, action cell] rows
    episodes: int
    whole_episodes: int  # episodes that are not cut short in the client's data
    returns: float  # summed over whole episodes
    squared_returns: float

    @property
    def mean_return(self) -> float:
        return self.returns / self.whole_episodes

    @property
    def return_spread(self) -> float:
        return float(np.sqrt(max(self.squared_returns / self.whole_episodes - self.mean_return**2, 0.0)))


def tally(data: Transitions, grid: Grid) -> Tally:
    """The second message of a client. The client computes it on its own data."""
    counts = np.zeros((2, grid.states.cells, grid.actions.cells), np.int64)
    np.add.at(counts, (_halves(data), grid.states(data.observations), grid.actions(data.actions)), 1)
    whole = data.whole_episode_returns()
    return Tally(counts, len(data.episode_returns()), len(whole), float(whole.sum()), float(np.square(whole).sum()))


def _halves(data: Transitions) -> NDArray[np.int64]:
    """The half, 0 or 1, of each row.

    Episodes alternate between the halves, because rows of one episode are not independent samples. A single episode
    is cut in the middle.
    """
    lengths = data.episode_lengths()
    if len(lengths) == 1:
        return (np.arange(len(data)) >= len(data) / 2).astype(np.int64)
    return np.repeat(np.arange(len(lengths)) % 2, lengths)


# --- The server's comparison ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """Statistics of one client, and how it differs from the other clients."""

    rows: int
    episodes: int
    mean_return: float
    return_spread: float
    coverage: float  # share of all visited state cells that this client visits
    alone: float  # share of all visited state cells that only this client visits
    states: float | None  # difference of its states from another client's, mean over the others
    actions: float | None  # difference of its actions from another's in shared states, mean over the others
    # None: there is too little data, or no other client


def standings(clients: Mapping[str, Transitions]) -> dict[str, Standing]:
    """Compute both messages of every client, and compare the clients."""
    _insist_on_one_shape(clients)
    grid = lay_grid([scale_sums(data) for data in clients.values()])
    return compare({name: tally(data, grid) for name, data in clients.items()})


def compare(tallies: Mapping[str, Tally]) -> dict[str, Standing]:
    """Compare each client with the others, from their tallies."""
    seen = {name: t.counts.sum(axis=(0, 2)) > 0 for name, t in tallies.items()}
    times_seen = np.sum(list(seen.values()), axis=0)
    cells = (times_seen > 0).sum()
    laws = {name: _law(t.counts) for name, t in tallies.items()}
    result = {}
    for name, t in tallies.items():
        others = [law for other, law in laws.items() if other != name]
        result[name] = Standing(
            rows=int(t.counts.sum()),
            episodes=t.episodes,
            mean_return=t.mean_return,
            return_spread=t.return_spread,
            coverage=float(seen[name].sum() / cells),
            alone=float((seen[name] & (times_seen == 1)).sum() / cells),
            states=mean_of_known(difference(laws[name].sum(axis=2), other.sum(axis=2)) for other in others),
            actions=mean_of_known(_difference_in_shared_states(laws[name], other) for other in others),
        )
    return result


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of the numbers that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def difference(p: Numbers, q: Numbers, weights: Numbers | float = 1.0) -> float | None:
    """1 minus the overlap of two distributions, each estimated twice: [half, cells].

    None if there is too little data.
    """
    alike = (weights * (p[0] * p[1] + q[0] * q[1])).sum()
    common = (weights * (p[0] * q[1] + p[1] * q[0])).sum()
    return float(np.clip(1.0 - common / alike, 0.0, 1.0)) if alike > 0 else None


def _difference_in_shared_states(p: Numbers, q: Numbers) -> float | None:
    """The difference of the actions given the state cell, averaged over the shared visits.

    None if the clients share no state cell.
    """
    visits_p, visits_q = p.sum(axis=2), q.sum(axis=2)  # [half, state cells]
    shared = ((visits_p > 0) & (visits_q > 0)).all(axis=0)
    if not shared.any():
        return None
    weights = np.minimum(visits_p.mean(axis=0), visits_q.mean(axis=0))[shared, None]
    return difference(p[:, shared] / visits_p[:, shared, None], q[:, shared] / visits_q[:, shared, None], weights)


def _law(counts: NDArray[np.int64]) -> Numbers:
    """Counts as a distribution over states and actions, for each half."""
    return counts / np.maximum(counts.sum(axis=(1, 2), keepdims=True), 1)


def _insist_on_one_shape(clients: Mapping[str, Transitions]) -> None:
    first, *_ = clients
    for name, data in clients.items():
        for field in ("observations", "actions"):
            given, expected = (getattr(d, field).shape[1] for d in (data, clients[first]))
            if given != expected:
                raise FovaError(
                    f"{field}: client {name!r} has {given} columns, but {first!r} has {expected}. A federation "
                    "learns one task: give all clients the same columns in the same order."
                )

"""Deal data to clients by episodes. Pure functions on transitions; no data is read or generated here.

    deal(data, 4)                                  by time: four equal pieces, the oldest episodes first
    deal(data, 4, size=5000, shuffle=True, seed=1) four pieces of 5,000 rows, episodes in random order
    by_return(data, 4)                             the worst quarter of the episodes, ..., the best quarter
    by_dirichlet({"expert": e, "random": r}, 4)    a different mixture of qualities for each client
    qualities_of("2-expert-2-random")              the paper's federations by name

Clients share no row unless `overlap` is set. A piece starts at the start of an episode. If an exact size is given,
the last episode of a piece is cut short, and the rest of that episode is not used.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from fova.data.transitions import Transitions, join
from fova.errors import FovaError, unknown

Numbers = NDArray[np.int64]

# The federations of the paper's experiments: name -> the quality of each client's data.
NAMED: dict[str, tuple[str, ...]] = {
    "2-expert-2-medium": ("expert", "expert", "medium", "medium"),
    "2-expert-2-random": ("expert", "expert", "random", "random"),
    "4-expert": ("expert",) * 4,
    "4-medium-expert": ("medium-expert",) * 4,
    "4-medium-replay": ("medium-replay",) * 4,
    "5-expert-5-random": ("expert",) * 5 + ("random",) * 5,
    "5-medium-replay": ("medium-replay",) * 5,
    "5-medium": ("medium",) * 5,
    "5-medium-expert": ("medium-expert",) * 5,
    "5-expert": ("expert",) * 5,
}
MOST_NAMED = 10_000  # maximum number of clients in one name
COUNTED = re.compile(r"(\d+)-([a-z]+(?:-[a-z]+)*?)(?=-\d|$)-?")


def qualities_of(name: str) -> tuple[str, ...]:
    """The quality of each client in a federation named by counts and qualities: `2-expert-2-random`."""
    parts = COUNTED.findall(name)
    spelled = "-".join(f"{count}-{quality}" for count, quality in parts)
    if any(len(count) > len(str(MOST_NAMED)) for count, _ in parts) or sum(int(n) for n, _ in parts) > MOST_NAMED:
        raise FovaError(f"{name[:60]!r} stands for too many clients. One word may stand for {MOST_NAMED:,}.")
    if not parts or spelled != name or any(int(count) < 1 for count, _ in parts):
        raise unknown("federation", name, NAMED, "Write others alike: a number, a quality, and so on.")
    return tuple(quality for count, quality in parts for _ in range(int(count)))


def shares_of(name: str) -> dict[str, int]:
    """The percentage of each quality in a mixture such as `expert:90+random:10`."""
    parts = [part.partition(":") for part in name.split("+")]
    shares = {quality: int(share) for quality, _, share in parts if share.isascii() and share.isdecimal()}
    if len(shares) != len(parts) or sum(shares.values()) != 100 or not all(shares.values()):
        raise FovaError(
            f"{name!r} is not a mixture of data. Name each quality once, with its share of the rows in whole "
            "percent that add up to 100: expert:90+random:10"
        )
    return shares


# --- One dataset in pieces --------------------------------------------------------------------------------


def deal(
    data: Transitions,
    clients: int,
    size: int | Sequence[int] | None = None,
    shuffle: bool = False,
    seed: int = 0,
    overlap: bool = False,
) -> list[Transitions]:
    """One piece of data per client: whole episodes of about equal rows, or exactly the given sizes.

    Episodes are dealt in the order of the log, or in random order with `shuffle`. With `overlap` every client is
    dealt from the whole dataset in its own random order, so clients may share episodes.
    """
    _at_least_one(clients)
    rng = np.random.default_rng(seed)
    sizes = _sizes(size, clients)
    if overlap:
        return [_first_episodes(data, rng.permutation(_count(data)), len(data) // clients, s) for s in sizes]
    order = rng.permutation(_count(data)) if shuffle else np.arange(_count(data))
    if size is None:
        return [_take(data, share) for share in _even_shares(data, order, clients)]
    pieces = []
    for number, wanted in enumerate(sizes):
        assert wanted is not None
        ends = np.cumsum(data.episode_lengths()[order])
        used = int(np.searchsorted(ends, wanted)) + 1  # episodes needed for this many rows
        if used > len(order):
            raise FovaError(
                f"Client {number + 1} of {clients} wants {wanted:,} rows, but of {len(data):,} only "
                f"{int(ends[-1]) if len(ends) else 0:,} are left. Ask for smaller sizes or fewer clients."
            )
        pieces.append(_take(data, order[:used])[:wanted])
        order = order[used:]
    return pieces


def by_return(data: Transitions, clients: int) -> list[Transitions]:
    """Clients of rising quality: episodes ranked by return and cut into shares of about equal rows."""
    _at_least_one(clients)
    order = np.argsort(data.episode_returns(), kind="stable")
    return [_take(data, np.sort(share)) for share in _even_shares(data, order, clients)]


def by_dirichlet(
    qualities: Mapping[str, Transitions], clients: int, concentration: float = 0.5, seed: int = 0
) -> list[Transitions]:
    """A random mixture of qualities for each client, with proportions from a Dirichlet distribution.

    Each quality is divided among the clients by its own draw. A small concentration makes clients pure and unequal,
    a large one makes them alike. All rows are dealt, in whole episodes.
    """
    _at_least_one(clients)
    if not concentration > 0:
        raise FovaError(f"The concentration is {concentration}, but must be greater than 0.")
    rng = np.random.default_rng(seed)
    shares: list[list[Transitions]] = [[] for _ in range(clients)]
    for data in qualities.values():
        order = rng.permutation(_count(data))
        bounds = np.cumsum(rng.dirichlet(np.full(clients, concentration))) * len(data)
        middles = np.cumsum(data.episode_lengths()[order]) - data.episode_lengths()[order] / 2
        owners = np.minimum(np.searchsorted(bounds, middles), clients - 1)
        for client in range(clients):
            mine = np.sort(order[owners == client])
            if len(mine):
                shares[client].append(_take(data, mine))
    for client, pieces in enumerate(shares):
        if not pieces:
            raise FovaError(
                f"Client {client + 1} of {clients} got no episode at concentration {concentration:g}. Use a larger "
                "concentration, fewer clients, more data or another seed."
            )
    return [join(pieces) for pieces in shares]


# --- Summary ----------------------------------------------------------------------------------------------


def summary(clients: Mapping[str, Transitions]) -> Table:
    """One line per client: rows, episodes, mean and spread of the returns of its whole episodes."""
    table = Table(title="clients")
    table.add_column("client")
    for column in ("rows", "episodes", "mean return", "spread"):
        table.add_column(column, justify="right")
    for name, data in clients.items():
        returns, episodes = data.whole_episode_returns(), len(data.episode_lengths())
        table.add_row(name, f"{len(data):,}", f"{episodes:,}", f"{returns.mean():.1f}", f"{returns.std():.1f}")
    return table


# --- Episodes ---------------------------------------------------------------------------------------------


def _count(data: Transitions) -> int:
    return len(data.episode_lengths())


def _take(data: Transitions, episodes: Numbers) -> Transitions:
    """The given episodes, in the given order."""
    ends = np.cumsum(data.episode_lengths())
    starts = ends - data.episode_lengths()
    rows = np.concatenate([np.arange(starts[episode], ends[episode]) for episode in episodes])
    return Transitions(**{field.name: getattr(data, field.name)[rows] for field in fields(data)})


def _even_shares(data: Transitions, order: Numbers, clients: int) -> list[Numbers]:
    """Cut a sequence of episodes into one share per client, with rows as even as possible."""
    if len(order) < clients:
        raise FovaError(
            f"{clients} clients cannot share {len(order)} episodes: each needs at least one. Ask for fewer clients."
        )
    middles = np.cumsum(data.episode_lengths()[order]) - data.episode_lengths()[order] / 2
    owners = (middles * clients / len(data)).astype(np.int64)
    # Long episodes can leave a client without any. Each cut must leave one episode for every client before and
    # after it.
    cuts = np.searchsorted(owners, np.arange(1, clients))
    for number in range(clients - 1):
        cuts[number] = max(cuts[number], (cuts[number - 1] if number else 0) + 1)
    for number in reversed(range(clients - 1)):
        cuts[number] = min(cuts[number], len(order) - (clients - 1 - number))
    return np.split(order, cuts)


def _first_episodes(data: Transitions, order: Numbers, even: int, size: int | None) -> Transitions:
    wanted = even if size is None else size
    if wanted > len(data):
        raise FovaError(f"A client wants {wanted:,} rows of {len(data):,}. Ask for a smaller size.")
    used = int(np.searchsorted(np.cumsum(data.episode_lengths()[order]), wanted)) + 1
    return _take(data, order[:used])[:wanted]


def _sizes(size: int | Sequence[int] | None, clients: int) -> list[int | None]:
    if size is None:
        return [None] * clients
    sizes = [size] * clients if isinstance(size, int) else list(size)
    if len(sizes) != clients:
        raise FovaError(f"{len(sizes)} sizes were given for {clients} clients. Give one, or one for each client.")
    if min(sizes) < 1:
        raise FovaError(f"A size of {min(sizes)} was given, but each client needs at least 1 row.")
    return list(sizes)


def _at_least_one(clients: int) -> None:
    if clients < 1:
        raise FovaError(f"{clients} clients were asked for, but there must be at least 1.")

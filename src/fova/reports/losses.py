"""Losses that explode, in words: which, where, how much, and whether that is a bad sign."""

import math
from collections.abc import Sequence

import numpy as np

from fova.reports.groups import Group
from fova.run.records import Record, RoundRecord

# The report names a loss that rose to this multiple of its first size. A loss that falls, also far below 0, is no
# warning: an actor's loss falls as the values of its actions rise, and if these diverge, the critics' loss rises.
TENFOLD = 10.0
ACTOR, CRITIC = "actor_loss", "critic_loss"
REMEDY = "lower the learning rates (--actor-lr, --critic-lr)"
HARMLESS = (
    "This loss contains the likelihood of the client's actions under the policy that it received. The likelihood "
    "is tiny where that policy is sure of other actions. The critics' loss did not grow, so this shows how far the "
    "client's behaviour is from the global policy, not that training diverges."
)


def losses_in_words(group: Group) -> list[str]:
    """What the losses of the runs say about divergence; nothing where they stay within bounds."""
    sentences = []
    for record in group.records:
        seed = f" (seed {record.seed})" if len(group.records) > 1 else ""
        sentences += _not_finite(record, seed) or _grown(record, seed)
    return sentences


def _not_finite(record: Record, seed: str) -> list[str]:
    """The first round in which a loss was not a finite number."""
    for line in record.rounds:
        broken = [
            name
            for name, metrics in line.clients.items()
            if not all(math.isfinite(metrics.get(loss, 0.0)) for loss in (ACTOR, CRITIC))
        ]
        if broken:
            return [
                f"Training diverged{seed}: from round {line.number} on the losses of {in_a_row(broken)} are not "
                f"finite numbers. Later figures mean nothing: {REMEDY} and train again."
            ]
    return []


def _grown(record: Record, seed: str) -> list[str]:
    critics, actors = (_exploded(record, loss) for loss in (CRITIC, ACTOR))
    sentences = []
    if critics:
        sentences.append(
            f"The critics' loss exploded{seed}: it rose to more than ten times its first size at "
            f"{in_a_row(critics)}. Training may diverge: {REMEDY}."
        )
    if actors:
        reason = "Together with the critics' loss this is a sign of divergence." if critics else HARMLESS
        sentences.append(
            f"The actor's loss rose to more than ten times its first size{seed} at {in_a_row(actors)}. {reason}"
        )
    return sentences


def _exploded(record: Record, metric: str) -> list[str]:
    """The clients whose loss rose to more than ten times its first size, with its means at start and end."""
    trained = [line for line in record.rounds if line.clients]
    fifth = max(1, len(trained) // 5)
    first, last = _by_client(trained[:fifth], metric), _by_client(trained[-fifth:], metric)
    return [
        f"{name} (from {_figures(_mean(first[name]), _mean(last[name]))})"
        for name in last
        if name in first and _mean(last[name]) > TENFOLD * max(_mean([abs(loss) for loss in first[name]]), 1.0)
    ]


def _by_client(lines: Sequence[RoundRecord], metric: str) -> dict[str, list[float]]:
    """A loss in each of these rounds, by client. One that was not logged counts as 0."""
    found: dict[str, list[float]] = {}
    for line in lines:
        for name, metrics in line.clients.items():
            found.setdefault(name, []).append(metrics.get(metric, 0.0))
    return found


def _mean(losses: Sequence[float]) -> float:
    return float(np.mean(losses))


def _figures(first: float, last: float) -> str:
    return f"{first:,.3g} to {last:,.3g}" if last >= 1e6 else f"{first:,.0f} to {last:,.0f}"


def in_a_row(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"

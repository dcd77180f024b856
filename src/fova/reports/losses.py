"""Losses that explode, in words: which, where, how much, and whether that is a bad sign."""

import math
from collections.abc import Sequence

import numpy as np

from fova.reports.groups import Group
from fova.run.records import Record

# The report names a loss that grew by this factor between start and end.
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
    first, last = (_means(record, fifth) for fifth in ("first", "last"))
    critics, actors = (_exploded(first, last, loss) for loss in (CRITIC, ACTOR))
    sentences = []
    if critics:
        sentences.append(
            f"The critics' loss exploded{seed}: it grew more than tenfold at {in_a_row(critics)}. Training may "
            f"diverge: {REMEDY}."
        )
    if actors:
        reason = "Together with the critics' loss this is a sign of divergence." if critics else HARMLESS
        sentences.append(f"The actor's loss grew more than tenfold{seed} at {in_a_row(actors)}. {reason}")
    return sentences


Losses = dict[str, dict[str, float]]  # by client and metric


def _means(record: Record, which: str) -> Losses:
    """Mean losses of each client over the first or the last fifth of the rounds."""
    trained = [line for line in record.rounds if line.clients]
    fifth = max(1, len(trained) // 5)
    lines = trained[:fifth] if which == "first" else trained[-fifth:]
    names = dict.fromkeys(name for line in lines for name in line.clients)

    def mean(name: str, metric: str) -> float:
        return float(np.mean([abs(line.clients[name].get(metric, 0.0)) for line in lines if name in line.clients]))

    return {name: {loss: mean(name, loss) for loss in (ACTOR, CRITIC)} for name in names}


def _exploded(first: Losses, last: Losses, loss: str) -> list[str]:
    """The clients whose loss grew more than tenfold, with its figures."""
    return [
        f"{name} (from {first[name][loss]:,.3g} to {last[name][loss]:,.3g})"
        if last[name][loss] >= 1e6
        else f"{name} (from {first[name][loss]:,.0f} to {last[name][loss]:,.0f})"
        for name in last
        if name in first and last[name][loss] > TENFOLD * max(first[name][loss], 1.0)
    ]


def in_a_row(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"

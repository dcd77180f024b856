"""Test of the vote: expert and random clients train one policy in a maze, with the vote and without it.

Two clients logged a good policy, and two logged random actions. The tabular federation runs on their data in three
ways: with the vote, without it, and without it but with an advantage weight of at most 1. The vote limits the
weight to 1 as a side effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fova.paper.theory.dataset import sample_dataset
from fova.paper.theory.mdp import MDP, Array, expected_return, gridworld, optimal_policy
from fova.paper.theory.tabular_fova import Client, Settings, train

MAZE = (
    "S...#...",
    "..#.#.#.",
    "..#...#.",
    "..##X##.",
    "......#G",
)
SLIP = 0.1
DISCOUNT = 0.95
CARELESSNESS = 0.1  # probability that an expert acts at random
TRANSITIONS = 2000
PSEUDO_COUNT = 0.1  # added to the count of every action

SETTINGS = Settings(alpha=0.01, beta=0.1, rounds=15, sweeps=10, rate=0.3)
VARIANTS = {
    "vote (best draw)": {"voting": "sample"},
    "vote (best policy)": {"voting": "expectation"},
    "no vote": {"voting": "off"},
    "no vote, weight <= 1": {"voting": "off", "largest_weight": 1.0},
}


@dataclass(frozen=True)
class Federation:
    """A maze, its clients, and the returns of score 0 and score 100."""

    mdp: MDP
    clients: tuple[Client, ...]
    random_return: float
    best_return: float

    def score(self, policy: Array) -> float:
        """The score of a policy: 0 for random actions, 100 for the best policy."""
        gained = expected_return(self.mdp, policy) - self.random_return
        return 100.0 * gained / (self.best_return - self.random_return)


def mixed_federation(seed: int, experts: int = 2, wanderers: int = 2) -> Federation:
    rng = np.random.default_rng(seed)
    mdp = gridworld(MAZE, SLIP, DISCOUNT)
    best = optimal_policy(mdp)
    wandering = np.full_like(best, 1.0 / mdp.actions)
    expert = (1.0 - CARELESSNESS) * best + CARELESSNESS * wandering
    behaviours = [expert] * experts + [wandering] * wanderers
    datasets = [sample_dataset(mdp, behaviour, TRANSITIONS, rng) for behaviour in behaviours]
    return Federation(
        mdp=mdp,
        clients=tuple(Client.from_dataset(data, DISCOUNT, pseudo_count=PSEUDO_COUNT) for data in datasets),
        random_return=expected_return(mdp, wandering),
        best_return=expected_return(mdp, best),
    )


def score(federation: Federation, settings: Settings) -> float:
    """The score of the server's policy after the last round."""
    return federation.score(train(federation.clients, settings).policies[-1])


def compare(lams: Sequence[float], seeds: Sequence[int]) -> dict[str, Array]:
    """Scores [lambda, seed] of every variant."""
    federations = [mixed_federation(seed) for seed in seeds]
    return {
        name: np.array(
            [[score(f, replace(SETTINGS, lam=lam, **changes)) for f in federations] for lam in lams]  # type: ignore[arg-type]
        )
        for name, changes in VARIANTS.items()
    }

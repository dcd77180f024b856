"""Does the vote help? Experts and random explorers share one policy in a maze, with the vote and without it.

Two clients logged a good policy, two wandered at random. The tabular federation runs on their data with the vote,
without it, and without it but with the advantage weight held at most at 1, which is what the vote does to it as a
side effect.
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
CARELESSNESS = 0.1  # how often an expert acts at random
TRANSITIONS = 2000
PSEUDO_COUNT = 0.1  # an action that a client never took counts as a tenth of a try

SETTINGS = Settings(alpha=0.01, beta=0.1, rounds=15, sweeps=10, rate=0.3)
VARIANTS = {
    "vote (best draw)": {"voting": "sample"},
    "vote (best policy)": {"voting": "expectation"},
    "no vote": {"voting": "off"},
    "no vote, weight <= 1": {"voting": "off", "largest_weight": 1.0},
}


@dataclass(frozen=True)
class Federation:
    """A maze, its clients and the two returns between which scores are counted."""

    mdp: MDP
    clients: tuple[Client, ...]
    random_return: float
    best_return: float

    def score(self, policy: Array) -> float:
        """0 for acting at random, 100 for the best policy."""
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

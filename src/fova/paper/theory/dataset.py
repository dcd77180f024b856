"""A client's dataset from a finite MDP, as counts, and the empirical MDP that the counts define.

Sampling error comes only from this module. The draws are independent pairs from the discounted visitation of a
behaviour policy, which is the distribution of the paper's E_{s,a ~ D}.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.paper.theory.mdp import MDP, Array, visitation


@dataclass(frozen=True)
class Dataset:
    """Counts of transitions, sums of rewards and counts of first states."""

    transitions: NDArray[np.int64]  # [S, A, S] number of transitions from (s, a) to s'
    rewards: Array  # [S, A] sum of the rewards observed at (s, a)
    starts: NDArray[np.int64]  # [S] number of episodes that started in s

    @property
    def pairs(self) -> NDArray[np.int64]:
        """|D(s, a)| [S, A]."""
        return self.transitions.sum(-1)


def sample_dataset(
    mdp: MDP,
    behaviour: Array,
    size: int,
    rng: np.random.Generator,
    *,
    reward_noise: float = 0.0,
    every_pair: bool = False,
) -> Dataset:
    """A dataset of `size` independent transitions with (s, a) from the behaviour's discounted visitation.

    A reward is r(s,a) plus or minus `reward_noise` * (r_max - |r(s,a)|), each with probability 1/2. The mean is
    r(s,a) and the bound holds. `every_pair` adds one draw for each pair that does not occur. This is the coverage
    that the paper assumes.
    """
    if size < 1:
        raise FovaError(f"A dataset of {size} transitions was asked for; it needs at least one.")
    law = visitation(mdp, behaviour)[:, None] * behaviour
    pairs = rng.multinomial(size, law.ravel() / law.sum()).reshape(law.shape)
    starts = rng.multinomial(size, mdp.start)
    if every_pair:
        pairs, starts = np.maximum(pairs, 1), np.maximum(starts, 1)
    transitions = rng.multinomial(pairs, mdp.transition)
    spread = reward_noise * (mdp.reward_bound - np.abs(mdp.reward))
    noise = 2 * rng.binomial(pairs, 0.5) - pairs
    return Dataset(transitions=transitions, rewards=pairs * mdp.reward + spread * noise, starts=starts)


def empirical_mdp(dataset: Dataset, discount: float, reward_bound: float = 1.0) -> MDP:
    """The MDP of the dataset's relative frequencies. A pair without data stays in its state with reward 0."""
    pairs = dataset.pairs
    met = pairs > 0
    divisor = np.where(met, pairs, 1)
    stay = np.broadcast_to(np.eye(len(pairs))[:, None, :], dataset.transitions.shape)
    return MDP(
        transition=np.where(met[..., None], dataset.transitions / divisor[..., None], stay),
        reward=np.where(met, dataset.rewards / divisor, 0.0),
        start=dataset.starts / dataset.starts.sum(),
        discount=discount,
        reward_bound=reward_bound,
    )


def empirical_behaviour(pairs: NDArray[np.int64], pseudo_count: float = 0.0) -> Array:
    """N(s, a) / N(s) [S, A]; uniform in a state without data."""
    counts = pairs + pseudo_count
    visits = counts.sum(1, keepdims=True)
    return np.where(visits > 0, counts / np.where(visits > 0, visits, 1.0), 1.0 / pairs.shape[1])

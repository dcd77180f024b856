"""Distances between two policies in each state: arrays [S, A] in, one number per state [S] out."""

import numpy as np

from fova.paper.theory.mdp import Array


def total_variation(first: Array, second: Array) -> Array:
    """Half the L1 distance, in [0, 1]."""
    return 0.5 * np.abs(first - second).sum(-1)


def kl(first: Array, second: Array) -> Array:
    """KL(first || second). It is infinite if `first` can take an action with probability 0 in `second`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(first > 0, first * (np.log(first) - np.log(second)), 0.0)
    return np.maximum(terms.sum(-1), 0.0)  # rounding may give -1e-17 if the two are equal


def chi_square(policy: Array, behaviour: Array) -> Array:
    """D_VCQL(s) = sum_a pi (pi / behaviour - 1): the paper's measure of the conservative penalty."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(policy > 0, policy * (policy / behaviour - 1.0), 0.0)
    return terms.sum(-1)

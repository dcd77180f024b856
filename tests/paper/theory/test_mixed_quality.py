"""What the vote is worth in a maze with two experts and two wanderers, and where it costs."""

from dataclasses import replace

import numpy as np
import pytest

from fova.paper.theory.mixed_quality import SETTINGS, VARIANTS, compare, mixed_federation, score

SEEDS = range(3)


def _scores(variant: str, lam: float) -> np.ndarray:
    settings = replace(SETTINGS, lam=lam, **VARIANTS[variant])
    return np.array([score(mixed_federation(seed), settings) for seed in SEEDS])


def test_scores_are_anchored() -> None:
    federation = mixed_federation(0)
    wandering = np.full((federation.mdp.states, federation.mdp.actions), 0.25)
    assert federation.score(wandering) == pytest.approx(0.0)
    quality = [federation.score(client.behaviour) for client in federation.clients]
    assert min(quality[:2]) > 50 > max(quality[2:])


def test_the_vote_helps_under_a_strong_pull_to_the_data() -> None:
    with_vote, without = _scores("vote (best draw)", lam=1.0), _scores("no vote", lam=1.0)
    assert (with_vote > without + 3).all()
    assert (with_vote - without).mean() > 10


def test_part_of_the_help_is_that_the_vote_bounds_the_weight() -> None:
    capped = _scores("no vote, weight <= 1", lam=1.0)
    assert (_scores("no vote", lam=1.0) < capped).all()
    assert (capped < _scores("vote (best draw)", lam=1.0)).all()


def test_the_vote_costs_a_little_under_a_weak_pull() -> None:
    difference = _scores("vote (best draw)", lam=0.01) - _scores("no vote", lam=0.01)
    assert -12 < difference.mean() < -2


def test_compare_covers_every_variant() -> None:
    scores = compare([0.1], [0])
    assert list(scores) == list(VARIANTS)
    assert all(values.shape == (1, 1) for values in scores.values())

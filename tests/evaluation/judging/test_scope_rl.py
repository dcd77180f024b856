"""Importance sampling and doubly robust estimates, held to those of SCOPE-RL 0.2.1.

`benchmarks/scope_rl_estimates.py` recorded its estimates. obp, the other library that was asked for, is for bandits
(episodes of one step), so it has nothing to compare with.
"""

from pathlib import Path

import numpy as np
import pytest

from fova.evaluation.judging.estimators import (
    Episodes,
    importance_sampling,
    weighted_doubly_robust,
    weighted_importance_sampling,
)


@pytest.fixture(scope="module")
def recorded():
    return np.load(Path(__file__).parent / "scope_rl_estimates.npz")


@pytest.fixture(scope="module")
def log(recorded):
    """The same episodes as our estimators take them: with an end, and nothing after it."""
    lengths = recorded["lengths"]
    return Episodes(recorded["rewards"], lengths, np.ones(len(lengths), bool))


def of_taken(values, actions):
    return np.take_along_axis(values, actions[..., None], axis=2)[..., 0]


@pytest.fixture(scope="module")
def ratios(recorded):
    return of_taken(recorded["policy"], recorded["actions"]) / recorded["taken"]


def test_importance_sampling(recorded, log, ratios):
    found = importance_sampling(log, ratios, float(recorded["gamma"])).mean()
    assert found == pytest.approx(float(recorded["importance_sampling"]), rel=1e-9)


def test_weighted_importance_sampling(recorded, log, ratios):
    found = weighted_importance_sampling(log, ratios, float(recorded["gamma"]))
    assert found == pytest.approx(float(recorded["weighted_importance_sampling"]), rel=1e-8)


def test_weighted_doubly_robust(recorded, log, ratios):
    q = of_taken(recorded["q"], recorded["actions"])
    v = (recorded["q"] * recorded["policy"]).sum(axis=2)
    found = weighted_doubly_robust(log, ratios, q, v, float(recorded["gamma"]))
    assert found == pytest.approx(float(recorded["weighted_doubly_robust"]), rel=1e-8)


def test_the_record_tells_the_estimators_apart(recorded):
    names = ("importance_sampling", "weighted_importance_sampling", "doubly_robust", "weighted_doubly_robust")
    values = [float(recorded[name]) for name in names]
    assert min(abs(a - b) for i, a in enumerate(values) for b in values[:i]) > 1e-3

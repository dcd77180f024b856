"""Constants and defaults beside the presets, whose table is in test_base.py."""

from fova import algorithms
from fova.algorithms import base, cql, iql
from fova.algorithms.fqe import Fqe


def test_fovas_own_preset():
    algorithm = algorithms.configure("fova", "recommended")
    assert (algorithm.actor, algorithm.actor_lr, algorithm.weigh) == ("clipped", 3e-4, "data")
    assert (algorithm.alpha, algorithm.lam, algorithm.beta) == ("auto", "auto", "auto")
    assert (algorithm.data_returns, algorithm.relative_weights) == (True, True)
    assert algorithm.server_weights == "returns"


def test_what_no_setting_changes():
    assert iql.MAX_WEIGHT == 100.0
    assert cql.SMALL_GAIN == 0.01


def test_critics_of_fitted_q_evaluation():
    fqe = Fqe()
    assert (fqe.critics, fqe.huber, fqe.tau, fqe.hidden) == (5, 1.0, 0.2, (64, 64))
    assert fqe.stride == 5
    assert fqe.evaluates
    assert (fqe.lowest, fqe.highest) == (-1e30, 1e30)
    assert (fqe.discount, fqe.batch_size, fqe.critic_lr) == (0.99, 256, 3e-4)


def test_the_skeletons_defaults():
    skeleton = base.ActorCritic
    assert (skeleton.actor_lr, skeleton.critic_lr, skeleton.hidden) == (1e-4, 3e-4, (256, 256, 256))
    assert (skeleton.actor_layer_norm, skeleton.critic_layer_norm) == (False, True)

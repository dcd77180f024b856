"""Defaults and presets are those that the papers and the authors' programs publish, stated once more by hand."""

import pytest

from fova import algorithms
from fova.algorithms import base, cql, iql
from fova.algorithms.fqe import Fqe

SHARED = {"discount": 0.99, "tau": 0.005, "batch_size": 256, "critic_lr": 3e-4, "value_weight": 0.0}
FUJIMOTO = {"hidden": (256, 256), "actor_lr": 3e-4, "actor_layer_norm": False, "critic_layer_norm": False}
TD3_BC = FUJIMOTO | {"q_weight": 2.5, "target_noise": 0.2, "noise_clip": 0.5, "policy_delay": 2, "stride": 2}
KUMAR = {"hidden": (256, 256, 256), "actor_lr": 1e-4, "actor_layer_norm": False, "critic_layer_norm": False}
CQL = KUMAR | {
    "actor": "squashed", "alpha": 5.0, "samples": 10, "gradient_clip": 0.0, "temperature": "auto",
    "temperature_lr": 1e-4, "temperature_loss": "log", "saturation": 1e-6, "log_std_least": -5.0,
    "trained_log_std": False, "critic_initialisation": "same", "soft_gradient": "exact",
}  # fmt: skip
OFFLINE_RL_KIT = {"update_order": "actor_first", "pool": "triples", "density_offset": 1e-6}
TEXT = {"update_order": "together", "pool": "all", "density_offset": 0.0}
DRPO = CQL | TEXT | {"alpha": 10.0, "eta": 0.6, "regularisation": 1.0, "gradient_clip": 1.0}
DRPO_PROGRAM = {
    "critic_lr": 1e-4, "temperature_loss": "value", "saturation": 1e-7, "log_std_least": -20.0,
    "trained_log_std": True, "critic_initialisation": "orthogonal",
}  # fmt: skip
FEDORA = {"value_weight": 0.1, "decay": 0.995, "optimistic": True, "global_pull": 1.0, "previous_pull": 1.0}
ASSISTED = {"actor": "clipped", "critic_layer_norm": True}
VOTE = {
    "hidden": (256, 256, 256), "actor_lr": 1e-4, "actor": "squashed", "actor_layer_norm": False,
    "critic_layer_norm": True, "alpha": 5.0, "lam": 5.0, "beta": 5.0, "td_scale": 0.5, "soft_temperature": 1.0,
    "density_offset": 0.0, "weight_cap": 100.0, "weight_gradient": False, "fresh_samples": False, "vote": True,
    "awr": True, "relative_weights": False, "data_returns": False, "continual": 0.0, "temperature_lr": 1e-4,
}  # fmt: skip
RELEASED = {
    "td_scale": 1.0, "lam": 3.0, "beta": 3.0, "weight_cap": 1.0, "weight_gradient": True, "fresh_samples": True,
    "density_offset": 1e-6, "actor_layer_norm": True,
}  # fmt: skip

PUBLISHED = [
    ("fed-bc", "published", SHARED | {"hidden": (256, 256), "actor_lr": 3e-4}),
    ("fed-td3bc", "published", SHARED | TD3_BC),
    ("fed-td3bc", "layer-norm", SHARED | TD3_BC | {"critic_layer_norm": True}),
    ("fedora", "published", SHARED | TD3_BC | FEDORA),
    ("fed-iql", "published", SHARED | FUJIMOTO | {"expectile": 0.7, "beta": 3.0}),
    ("cql-fl", "published", SHARED | CQL | OFFLINE_RL_KIT),
    ("cql-fl", "layer-norm", SHARED | CQL | OFFLINE_RL_KIT | {"critic_layer_norm": True}),
    ("cql-fl", "paper", SHARED | CQL | TEXT),
    (
        "cql-fl",
        "fova-program",
        SHARED | CQL | OFFLINE_RL_KIT | {"temperature": 0.2, "actor_layer_norm": True, "critic_layer_norm": True},
    ),
    ("cql-fl", "assisted", SHARED | CQL | OFFLINE_RL_KIT | ASSISTED | {"samples": 1}),
    ("drpo", "published", SHARED | DRPO | DRPO_PROGRAM),
    ("drpo", "layer-norm", SHARED | DRPO | DRPO_PROGRAM | {"critic_layer_norm": True}),
    ("drpo", "paper", SHARED | DRPO),
    ("drpo", "assisted", SHARED | DRPO | DRPO_PROGRAM | ASSISTED | {"soft_gradient": "estimated"}),
    ("fova", "equations", SHARED | VOTE),
    ("fova", "released", SHARED | VOTE | RELEASED),
]


@pytest.mark.parametrize(("name", "preset", "values"), PUBLISHED)
def test_the_values_are_the_published_ones(name, preset, values):
    algorithm = algorithms.configure(name, preset)
    assert {setting: getattr(algorithm, setting) for setting in values} == values


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

"""Constants, defaults and presets."""

from dataclasses import asdict

import pytest

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
    assert fqe.reward_unit == "federation"
    assert (fqe.lowest, fqe.highest) == (-1e30, 1e30)
    assert (fqe.discount, fqe.batch_size, fqe.critic_lr) == (0.99, 256, 3e-4)


def test_the_skeletons_defaults():
    skeleton = base.ActorCritic
    assert (skeleton.actor_lr, skeleton.critic_lr, skeleton.hidden) == (1e-4, 3e-4, (256, 256, 256))
    assert (skeleton.actor_layer_norm, skeleton.critic_layer_norm) == (False, True)


# --- Presets ---

COMMON = {
    "shared_std": False,
    "discount": 0.99,
    "tau": 0.005,
    "batch_size": 256,
    "actor_lr": 3e-4,
    "critic_lr": 3e-4,
    "hidden": (256, 256),
    "actor": "clipped",
    "actor_layer_norm": False,
    "critic_layer_norm": False,
    "initialisation": "fan_in",
    "value_weight": 0.0,
}
WIDE = {"actor_lr": 1e-4, "hidden": (256, 256, 256)}  # the networks of the FOVA paper
FOVA = WIDE | {
    "critic_layer_norm": True,
    "actor": "squashed",
    "alpha": 5.0,
    "lam": 5.0,
    "beta": 5.0,
    "conservative": "vote",
    "soft_vote": "q",
    "soft_temperature": 1.0,
    "td_scale": 0.5,
    "entropy": "none",
    "temperature_lr": 1e-4,
    "density_offset": 0.0,
    "vote_order": "min_then_max",
    "advantage_from": "current",
    "weight_gradient": False,
    "weight_cap": 100.0,
    "update_order": "together",
    "fresh_samples": False,
    "terminal_action": "none",
    "weigh": "global",
    "imitate": "data",
    "relative_weights": False,
    "data_returns": False,
    "server_weights": "plain",
    "episode_weights": "plain",
    "vote": True,
    "awr": True,
    "continual": 0.0,
}
CQL = WIDE | {
    "actor": "squashed",
    "alpha": 5.0,
    "samples": 10,
    "pool": "all",
    "soft_gradient": "exact",
    "update_order": "together",
    "gradient_clip": 0.0,
    "temperature": "auto",
    "temperature_lr": 1e-4,
    "temperature_loss": "log",
    "density_offset": 0.0,
    "saturation": 1e-6,
    "log_std_least": -5.0,
    "trained_log_std": False,
    "critic_initialisation": "same",
}
KIT = CQL | {"pool": "triples", "update_order": "actor_first", "density_offset": 1e-6}
LAYER_NORM = {"critic_layer_norm": True}
DRPO = CQL | {"alpha": 10.0, "gradient_clip": 1.0, "eta": 0.6, "regularisation": 1.0}
DRPO_PROGRAM = DRPO | {
    "critic_lr": 1e-4,
    "temperature_loss": "value",
    "saturation": 1e-7,
    "log_std_least": -20.0,
    "trained_log_std": True,
    "critic_initialisation": "orthogonal",
}
TD3BC = {"actor": "deterministic", "q_weight": 2.5, "target_noise": 0.2, "noise_clip": 0.5, "policy_delay": 2}
RECOMMENDED = (
    FOVA
    | {"actor": "clipped", "weigh": "data", "alpha": "auto", "lam": "auto", "beta": "auto"}
    | {"server_weights": "returns", "actor_lr": 3e-4, "data_returns": True, "relative_weights": True}
)
PUBLISHED = {
    ("fova", "equations"): FOVA,
    ("fova", "released"): FOVA
    | {
        "conservative": "logsumexp",
        "soft_vote": "q_minus_log_pi",
        "td_scale": 1.0,
        "entropy": "auto",
        "density_offset": 1e-6,
        "vote_order": "max_then_min",
        "advantage_from": "target",
        "weight_gradient": True,
        "weight_cap": 1.0,
        "update_order": "actor_first",
        "fresh_samples": True,
        "terminal_action": "negated",
        "lam": 3.0,
        "beta": 3.0,
        "actor_layer_norm": True,
    },
    ("fova", "recommended"): RECOMMENDED,
    ("fova", "good-episodes"): RECOMMENDED | {"episode_weights": "returns", "awr": False, "lam": 3.0},
    ("cql-fl", "published"): KIT,
    ("cql-fl", "paper"): CQL,
    ("cql-fl", "fova-program"): KIT | LAYER_NORM | {"actor_layer_norm": True, "temperature": 0.2},
    ("cql-fl", "assisted"): KIT | LAYER_NORM | {"actor": "clipped", "samples": 1},
    ("drpo", "published"): DRPO_PROGRAM,
    ("drpo", "paper"): DRPO,
    ("drpo", "assisted"): DRPO_PROGRAM | LAYER_NORM | {"actor": "clipped", "soft_gradient": "estimated"},
    ("fed-td3bc", "published"): TD3BC,
    ("fedora", "published"): TD3BC
    | {"value_weight": 0.1, "decay": 0.995, "optimistic": True, "global_pull": 1.0, "previous_pull": 1.0},
    ("fed-iql", "published"): {"expectile": 0.7, "beta": 3.0, "shared_std": True},
    ("fed-iql", "layer-norm"): {"expectile": 0.7, "beta": 3.0} | LAYER_NORM,  # what scored more in our study
    ("fed-bc", "published"): {"critic_layer_norm": True},  # it has no critics
}


@pytest.mark.parametrize(("name", "preset"), PUBLISHED)
def test_published_settings(name, preset):
    assert asdict(algorithms.configure(name, preset)) == COMMON | PUBLISHED[name, preset]


def test_every_preset_is_in_the_table_or_adds_layer_norm():
    presets = {(name, preset) for name, kind in algorithms.by_name().items() for preset in kind.presets}
    assert {name for name, preset in presets - set(PUBLISHED)} == set(algorithms.by_name()) - {"fova", "fed-iql"}
    for name, preset in presets - set(PUBLISHED):
        with_layer_norm = asdict(algorithms.configure(name, "published")) | {"critic_layer_norm": True}
        assert (preset, asdict(algorithms.configure(name, preset))) == ("layer-norm", with_layer_norm)
        assert next(iter(algorithms.get(name).presets)) == "published"
    assert next(iter(algorithms.get("fova").presets)) == "recommended"

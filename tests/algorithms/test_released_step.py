"""One step of the authors' program and of the preset `released`: the same networks, minibatch and draws.

`released_step.npz` holds our inputs and figures of what their published update made of them (PyTorch 2.13, one
sampled action, fresh Adam, the same draws in every term): losses, and gradients and updated parameters projected on
64 random sign vectors. The root mean square of the projections of a difference estimates its norm.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova.algorithms import base, configure
from fova.algorithms.base import FIELDS, Batch, Broadcast, replace
from fova.spaces import Space

RECORD = np.load(Path(__file__).with_name("released_step.npz"))
DRAWS = ("local", "global", "next_local", "next_global", "uniform")
RATES = {"actor_lr": 3e-4, "critic_lr": 3e-4, "temperature_lr": 3e-4}
NETWORKS = {"actor": None, "critic1": 0, "critic2": 1}  # and which of the twins


def filled(network, name):
    """The network with the recorded parameters."""

    def recorded(part):
        return jnp.asarray(RECORD[f"start.{name}.{part}"])

    net = network.net
    layers = [replace(old, weight=recorded(f"w{i}"), bias=recorded(f"b{i}")) for i, old in enumerate(net.layers)]
    norms = [replace(old, scale=recorded(f"s{i}"), shift=recorded(f"t{i}")) for i, old in enumerate(net.norms)]
    last = replace(net.last, weight=recorded("w_last"), bias=recorded("b_last"))
    return replace(network, net=replace(net, layers=layers, norms=norms, last=last))


def start(algorithm):
    fresh = algorithm.init(jax.random.key(0), Space.unit(11, 3))
    actor, critic = fresh.actor.network, fresh.critic.network
    temperature = replace(fresh.extra.temperature, log=jnp.asarray(RECORD["start.logtemp"]))
    learner = replace(
        fresh,
        actor=replace(fresh.actor, network=filled(actor, "actor")),
        critic=replace(fresh.critic, network=filled(critic, "critic")),
        target_critic=filled(critic, "slow"),
        extra=replace(fresh.extra, temperature=temperature),
    )
    return learner, Broadcast(filled(actor, "global"), critic)


def projected(network, member=None):
    """The parameters of a network, or of one of the twins, along the 64 sign vectors."""
    net = network.net
    parts = [part for layer in net.layers for part in (layer.weight, layer.bias)]
    parts += [part for norm in net.norms for part in (norm.scale, norm.shift)] + [net.last.weight, net.last.bias]
    flat = np.concatenate([np.ravel(part if member is None else part[member]) for part in parts])
    signs = np.random.default_rng(0).integers(0, 2, (64, len(flat)), np.int8) * 2 - 1
    return signs.astype(np.float64) @ flat.astype(np.float64)


def one_step(monkeypatch, **settings):
    """The learner after the step, its metrics and its gradients by the names of NETWORKS."""
    algorithm = configure("fova", "released", hidden=(128, 128), fresh_samples=False, **RATES | settings)
    learner, broadcast = start(algorithm)
    fields = {name: jnp.asarray(RECORD[f"batch.{name}"]) for name in FIELDS if name != "next_returns"}
    batch = Batch(**fields, next_returns=jnp.zeros_like(fields["rewards"]))
    adam_step = base.adam_step

    def recorded(draw, shape, **_):
        assert RECORD[f"noise.{draw}"].shape == shape
        return jnp.asarray(RECORD[f"noise.{draw}"])

    @jax.jit
    def step(learner):
        gradients = []
        monkeypatch.setattr(base, "adam_step", lambda *given: (gradients.append(given[2]), adam_step(*given))[1])
        new, metrics = algorithm.step(learner, broadcast, batch, jax.random.key(0))
        return new, metrics, [gradient for gradient in gradients if hasattr(gradient, "net")]

    monkeypatch.setattr(jax.random, "split", lambda key, count: DRAWS)  # names in the place of keys
    monkeypatch.setattr(jax.random, "normal", recorded)
    monkeypatch.setattr(jax.random, "uniform", recorded)
    new, metrics, (actor, critic) = step(learner)
    return new, metrics, {"actor": actor, "critic1": critic, "critic2": critic}


def relative_errors(gradients):
    errors = {}
    for name, member in NETWORKS.items():
        difference = projected(gradients[name], member) - RECORD[f"gradient.{name}"]
        errors[name] = np.sqrt(np.mean(np.square(difference))) / RECORD[f"gradient_norm.{name}"]
    return errors


def test_a_step_of_the_released_preset_is_the_authors(monkeypatch):
    new, metrics, gradients = one_step(monkeypatch)
    assert float(metrics["actor_loss"]) == pytest.approx(float(RECORD["loss.actor"]), rel=1e-6)
    critic_loss = float(RECORD["loss.critic1"] + RECORD["loss.critic2"])
    assert float(metrics["critic_loss"]) == pytest.approx(critic_loss, rel=2e-6)
    assert max(relative_errors(gradients).values()) < 4e-6
    for name, member in NETWORKS.items():
        network = (new.actor if name == "actor" else new.critic).network
        difference = projected(network, member) - RECORD[f"after.{name}"]
        assert np.abs(difference).max() < 1.2e-5, name


@pytest.mark.parametrize(
    ("setting", "networks"),
    [
        ({"soft_vote": "q"}, ("critic1", "critic2")),
        ({"weight_gradient": False}, ("actor",)),
        ({"update_order": "together"}, ("critic1", "critic2")),
    ],
)
def test_the_authors_step_needs_each_of_these_settings(monkeypatch, setting, networks):
    _, _, gradients = one_step(monkeypatch, **setting)
    errors = relative_errors(gradients)
    assert min(errors[name] for name in networks) > 1e-4

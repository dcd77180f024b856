"""Judging as a whole, on a tiny task whose truth is known: reward is 1 - |a - target|, and a = 0.5 is best."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fova
from fova.algorithms.base import replace as changed
from fova.data.normalise import Normaliser
from fova.data.transitions import Episode, from_episodes
from fova.errors import FovaError
from fova.evaluation.judging.judge import JudgeSettings, judge
from fova.networks import make_actor
from fova.policy import from_actor
from fova.spaces import Discrete, Space

DISCOUNT = 0.5
SETTINGS = JudgeSettings(rounds=10, steps=50, critics=2, hidden=(16,), batch_size=32, critic_lr=0.01)
SPACE = Space.unit(1, 1)


def data(rng, centre, episodes=40, steps=6):
    """Actions around a centre; states say nothing. Every other episode is cut off."""

    def one(number):
        actions = np.clip(centre + 0.3 * rng.normal(size=(steps, 1)), -1, 1)
        states = rng.normal(size=(steps + 1, 1))
        return Episode(*(np.asarray(v, np.float32) for v in (states, actions, 1 - np.abs(actions[:, 0] - 0.5))),
                       terminated=number % 2 == 0)  # fmt: skip

    return from_episodes(one(number) for number in range(episodes))


def constant(action):
    """The policy that always takes one action."""
    actor = make_actor(jax.random.key(0), SPACE, "deterministic", (4,))
    last = changed(actor.net.last, weight=jnp.zeros((4, 1)), bias=jnp.full(1, np.arctanh(action)))
    actor = changed(actor, net=changed(actor.net, last=last))
    return from_actor(actor, Normaliser.identity(1), SPACE)


@pytest.fixture(scope="module")
def federation():
    rng = np.random.default_rng(0)
    clients = {"good": data(rng, 0.5), "poor": data(rng, 0.0)}
    return fova.Federation.of(clients).holding_out(0.5, seed=0)


@pytest.fixture(scope="module")
def verdict(federation):
    return judge(constant(0.4), federation, DISCOUNT, SETTINGS)


def test_the_value_is_the_truth(verdict):
    # 0.9 a step; half of the episodes end after 6 steps, the others go on: about 0.9 / (1 - 0.5 * 11/12)
    for figures in verdict.clients.values():
        assert figures.value == pytest.approx(0.9 / (1 - DISCOUNT * 11 / 12), abs=0.2)
        assert figures.low < figures.value < figures.high
    assert verdict.federation.value == pytest.approx(np.mean([f.value for f in verdict.clients.values()]))


def test_better_where_practice_is_poor(verdict):
    assert verdict.held_out
    assert verdict.clients["poor"].finding == "better"
    assert verdict.clients["good"].finding in ("no clear difference", "better")
    assert verdict.clients["poor"].inside > 0.75
    assert verdict.clients["good"].inside > 0.9
    assert verdict.sentence().startswith("Better than current practice at ")


def test_the_same_seed_gives_the_same_figures(verdict, federation):
    assert judge(constant(0.4), federation, DISCOUNT, SETTINGS) == verdict


def test_a_policy_outside_the_data_is_no_evidence(federation):
    found = judge(constant(-0.9), federation, DISCOUNT, replace(SETTINGS, rounds=1))
    assert [figures.finding for figures in found.clients.values()] == ["not enough evidence"] * 2
    assert found.clients["good"].inside < 0.1


def test_without_held_out_episodes_the_verdict_says_so(federation):
    whole = fova.Federation.of(federation.clients)
    found = judge(constant(0.4), whole, DISCOUNT, replace(SETTINGS, rounds=1))
    assert not found.held_out
    assert "flatters" in found.sentence()
    assert found.clients["good"].episodes == 20
    assert found.clients["good"].inside > 0.9


def test_the_reward_scale_changes_values_and_nothing_else(federation, verdict):
    def scaled(clients):
        return {name: replace(part, rewards=part.rewards * np.float32(8)) for name, part in clients.items()}

    larger = replace(federation, clients=scaled(federation.clients), held_out=scaled(federation.held_out))
    found = judge(constant(0.4), larger, DISCOUNT, SETTINGS)
    for name, figures in found.clients.items():
        assert figures.value == pytest.approx(8 * verdict.clients[name].value, rel=1e-3)
        assert figures.finding == verdict.clients[name].finding


def test_data_of_another_space_is_refused(federation):
    other = fova.Federation.of(federation.clients, bounds=(-2, 2))
    with pytest.raises(FovaError, match="space that it was trained in"):
        judge(constant(0.4), other)


# --- Discrete actions ---


def test_discrete_actions_have_ratios_too():
    """Action 1 pays 1, action 0 nothing; the data takes each half of the time; one step an episode."""
    rng = np.random.default_rng(0)

    def one():
        action = rng.integers(0, 2, (1, 1)).astype(np.float32)
        return Episode(np.zeros((2, 1), np.float32), action, action[:, 0], True)

    space = Space(1, Discrete.numbered(2))
    clients = {name: from_episodes(one() for _ in range(120)) for name in "ab"}
    federation = fova.Federation.of(clients, action=space.action).holding_out(0.5)
    actor = make_actor(jax.random.key(0), space, "clipped", (4,))
    actor = changed(actor, net=changed(actor.net, last=changed(actor.net.last, bias=jnp.array([0.0, 9.0]))))
    found = judge(from_actor(actor, Normaliser.identity(1), space), federation, DISCOUNT, SETTINGS)
    for figures in found.clients.values():
        assert figures.value == pytest.approx(1.0, abs=0.05)
        assert figures.importance_sampling == pytest.approx(1.0)  # only episodes with action 1 count
        assert figures.doubly_robust == pytest.approx(1.0, abs=0.05)
        assert 20 <= figures.effective_episodes <= 40
        assert figures.finding == "better"
        assert figures.inside == 1.0
    assert found.federation.effective_episodes == sum(f.effective_episodes for f in found.clients.values())

"""The contract between algorithms and engines, tried with algorithms that use all of its freedom."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fova
from fova import algorithms
from fova.algorithms.base import Server, Submission
from fova.algorithms.bc import FedBc
from fova.errors import FovaError
from fova.federation.aggregation import AGGREGATIONS
from fova.federation.engine import RoundSettings
from fova.federation.simulation import Simulation
from fova.networks import MLP, DeterministicActor
from fova.spaces import Box, Space
from tiny import make_transitions

SPACE = Space.unit(3, 2)


@pytest.fixture(scope="module")
def clients():
    return {f"c{i}": make_transitions(i, episodes=2 + i) for i in range(3)}


def run(algorithm, clients, rounds=2, **settings):
    simulation = Simulation(algorithm, clients, SPACE, RoundSettings(local_steps=2, **settings))
    state, reports = simulation.start(), []
    for _ in range(rounds):
        state, report = simulation.round(state)
        reports.append(report)
    return state, reports


def assert_close(one, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, other)


# --- Messages are any pytree ---


@dataclass(frozen=True)
class DictMessages:
    """Cloning by plain gradient steps. Its messages are dicts, and it derives from nothing of the package."""

    name: ClassVar[str] = "dict-messages"
    mergeable: ClassVar[bool] = True
    action_spaces: ClassVar[tuple[type, ...]] = (Box,)
    stride: ClassVar[int] = 1
    reward_unit: ClassVar[str] = "raw"
    client_weights: ClassVar[str] = "submitted"
    row_weights: ClassVar[str] = "uniform"

    batch_size: int = 8
    discount: float = 0.99
    rate: float = 0.1

    def init(self, key, space):
        actor = DeterministicActor(MLP(key, space.observation, (8,), space.action.size))
        return {"actor": actor, "rounds": jnp.zeros(())}

    def start(self, learner):
        return Server({"pi": learner["actor"], "round": jnp.zeros(())}, {"votes": jnp.zeros(())})

    def receive(self, learner, broadcast):
        return learner | {"actor": broadcast["pi"]}

    def step(self, learner, broadcast, batch, key):
        def loss(actor):
            return jnp.square(actor(batch.observations).mode() - batch.actions).mean()

        objective, gradient = jax.value_and_grad(loss)(learner["actor"])
        actor = jax.tree.map(lambda p, g: p - self.rate * g, learner["actor"], gradient)
        return learner | {"actor": actor}, {"actor_loss": objective}

    def submit(self, learner, broadcast, data):
        learner = learner | {"rounds": learner["rounds"] + 1}
        sent = {"pi": learner["actor"], "round": broadcast["round"] + 1}
        return learner, Submission(sent, jnp.zeros(()), {"rows": data.length.astype(jnp.float32)})

    def aggregate(self, server, submissions):
        mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), submissions.parameters)
        return Server(mean, {"votes": server.kept["votes"] + len(submissions.log_weight)})

    def policy(self, broadcast):
        return broadcast["pi"]

    def local_policy(self, learner):
        return learner["actor"]

    def networks(self, parameters):
        return parameters["pi"]

    def data_changed(self, learner, rescale):
        return learner


@pytest.mark.parametrize(
    "settings", [{}, {"together": False}, {"aggregation": AGGREGATIONS["krum"]}, {"cohort": 2}]
)
def test_messages_may_be_dicts(clients, settings):
    state, reports = run(DictMessages(), clients, **settings)
    assert all(report.rejected == {} for report in reports)
    assert reports[-1].clients["c1"]["update_norm"] > 0
    np.testing.assert_array_equal(state.server.broadcast["round"], np.full_like(state.broadcast["round"], 2.0))
    np.testing.assert_array_equal(state.learners["rounds"], [2.0, 2.0, 2.0])


def test_an_algorithm_of_its_own_kind_is_trained_saved_and_resumed(clients, tmp_path, monkeypatch):
    monkeypatch.setitem(algorithms.installed(), "dict-messages", DictMessages)
    settings = {"algorithm": "dict-messages", "rounds": 3, "local_steps": 2, "checkpoint_seconds": 0.0}
    federation = fova.Federation.of(clients)
    whole = fova.train(clients=federation, directory=tmp_path / "whole", **settings)
    assert whole.policy(np.zeros(3)).shape == (2,)
    fova.train(clients=federation, directory=tmp_path / "parts", **settings)
    (tmp_path / "parts/result.json").unlink()
    (tmp_path / "parts/checkpoints/round-000003.safetensors").unlink()
    fova.resume(tmp_path / "parts", federation=federation)
    last = "checkpoints/round-000003.safetensors"
    assert (tmp_path / "parts" / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()
    assert b"votes" in (tmp_path / "whole" / last).read_bytes(), "what the server keeps is in the checkpoint"


# --- Aggregation that depends on more than the mean ---


@dataclass(frozen=True)
class LargestStep(FedBc):
    """The server takes, number by number, the submission that moved furthest. It needs the whole round."""

    name: ClassVar[str] = "largest-step"
    mergeable: ClassVar[bool] = False

    def aggregate(self, server, submissions):
        def furthest(before, sent):
            counts = (submissions.log_weight > -jnp.inf).reshape(-1, *[1] * before.ndim)
            moved = jnp.where(counts, jnp.abs(sent - before), -1.0)
            return jnp.take_along_axis(sent, moved.argmax(axis=0)[None], axis=0)[0]

        return Server(jax.tree.map(furthest, server.broadcast, submissions.parameters))


TINY = {"hidden": (8,), "batch_size": 8, "actor_lr": 1e-3}


def test_a_non_linear_aggregation_sees_the_whole_round(clients):
    state, _ = run(LargestStep(**TINY), clients, rounds=1)
    before = Simulation(LargestStep(**TINY), clients, SPACE, RoundSettings(local_steps=2)).start().broadcast

    def furthest(start, learned):
        moved = np.abs(learned - start).argmax(axis=0)
        return np.take_along_axis(learned, moved[None], axis=0)[0]

    expected = jax.tree.map(furthest, before.actor, state.learners.actor.network)
    assert_close(state.broadcast.actor, expected, atol=1e-7)


def test_a_non_linear_aggregation_refuses_cohorts_instead_of_merging_them(clients):
    with pytest.raises(FovaError, match="Raise --cohort to 3"):
        run(LargestStep(**TINY), clients, cohort=2)


# --- Policies of an unknown kind ---


class Categorical(eqx.Module):
    """An actor that chooses among three actions."""

    net: MLP

    def __call__(self, observation):
        return self.net(observation)


@dataclass(frozen=True)
class ChoosesAmongThree(DictMessages):
    name: ClassVar[str] = "three"

    def init(self, key, space):
        return {"actor": Categorical(MLP(key, space.observation, (8,), 3)), "rounds": jnp.zeros(())}


def test_a_policy_that_nobody_could_play_is_refused_before_training(clients, tmp_path, monkeypatch):
    monkeypatch.setitem(algorithms.installed(), "three", ChoosesAmongThree)
    with pytest.raises(FovaError, match=r"Categorical(.|\n)*a DeterministicActor or a CategoricalActor"):
        fova.train(clients=fova.Federation.of(clients), algorithm="three", directory=tmp_path / "run", rounds=1)
    assert not (tmp_path / "run").exists()


# --- Weights ---


@pytest.mark.parametrize("cohort", [64, 2])
def test_any_algorithm_can_count_clients_by_the_returns_in_their_data(clients, cohort):
    log_weights = {"c0": 0.0, "c1": -1.0, "c2": -4.0}
    settings = RoundSettings(local_steps=2, aggregation=AGGREGATIONS["returns"], cohort=cohort)
    simulation = Simulation(FedBc(**TINY), clients, SPACE, settings, log_weights)
    state, report = simulation.round(simulation.start())
    shares = np.exp([0.0, -1.0, -4.0]) / np.exp([0.0, -1.0, -4.0]).sum()
    np.testing.assert_allclose([c["server_weight"] for c in report.clients.values()], shares, rtol=1e-6)
    mean = jax.tree.map(lambda leaf: np.tensordot(shares, leaf, 1), state.learners.actor.network)
    assert_close(state.broadcast.actor, mean, atol=1e-6)


def test_weights_are_logged_only_where_there_are_weights(clients):
    for settings in ({"aggregation": AGGREGATIONS["median"]}, {"together": False}):
        _, reports = run(FedBc(**TINY), clients, rounds=1, **settings)
        assert all("server_weight" not in metrics for metrics in reports[0].clients.values())

"""Soft actor-critic against numbers worked out in NumPy, and the trainer on a task that takes seconds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from fova.errors import FovaError
from fova.policy import Policy
from fova.spaces import Space
from fova.tasks import behaviour, registry
from fova.tasks.behaviour import (
    Batch,
    BehaviourConfig,
    Evaluation,
    Learner,
    Simulators,
    actor_loss,
    critic_loss,
    critic_target,
    init_learner,
    measure_returns,
    temperature_loss,
    train_behaviour,
    update_actor,
    update_critic,
)
from fova.tasks.behaviour_policy import read_policy

SPACE = Space.unit(3, 2)
SMALL = BehaviourConfig(batch=8, actor_hidden=(6,), critic_hidden=(5, 4), actor_rate=0.01, critic_rate=0.02)


# --- The equations ----------------------------------------------------------------------------------------


def random_batch(seed: int = 0, rows: int = 8) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(
        observations=rng.normal(size=(rows, 3)).astype(np.float32),
        actions=rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        rewards=rng.normal(size=rows).astype(np.float32),
        next_observations=rng.normal(size=(rows, 3)).astype(np.float32),
        terminals=(np.arange(rows) % 3 == 0).astype(np.float32),
    )


def numpy_mlp(net, x, member=None):
    """The network's forward pass written out, in float64; `member` picks one of a stack."""

    def take(leaf):
        return np.asarray(leaf if member is None else leaf[member], np.float64)

    for i, layer in enumerate(net.layers):
        x = x @ take(layer.weight) + take(layer.bias)
        if net.norms:
            x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
            x = x * take(net.norms[i].scale) + take(net.norms[i].shift)
        x = np.maximum(x, 0)
    return x @ take(net.last.weight) + take(net.last.bias)


def numpy_values(critic, observations, actions):
    rows = np.concatenate([observations, actions], axis=1).astype(np.float64)
    return np.stack([numpy_mlp(critic.net, rows, member)[:, 0] for member in range(2)])


def numpy_sample(actor, observations, key):
    """Action and log-density, the density by the textbook change of variables."""
    mean, log_std = np.split(numpy_mlp(actor.net, observations.astype(np.float64)), 2, axis=1)
    log_std = np.clip(log_std, -5, 2)
    noise = np.asarray(jax.random.normal(key, mean.shape), np.float64)
    u = mean + np.exp(log_std) * noise
    gaussian = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(u), (gaussian - np.log(1 - np.tanh(u) ** 2)).sum(1)


def random_learner() -> Learner:
    """A learner with random weights everywhere, a temperature of exp(-0.7) and an Adam that has not begun."""
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(lambda: init_learner(SPACE, SMALL))
    zero = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    drawn = jax.tree.map(lambda leaf: rng.normal(0.0, 0.5, leaf.shape).astype(np.float32), shapes)
    return eqx.tree_at(
        lambda part: (part.actor, part.critic, part.slow_critic, part.log_temperature),
        zero,
        (drawn.actor, drawn.critic, drawn.slow_critic, np.float32(-0.7)),
    )


class Overheard(NamedTuple):
    """A learner, what an update of each kind made of it, and the values of the losses on the way."""

    learner: Learner
    batch: Batch
    key: jax.Array
    after_critic: Learner
    after_actor: Learner
    values: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def overheard() -> Overheard:
    learner, batch, key, values = random_learner(), random_batch(), jax.random.key(1), {}

    def speaking(name):
        original = getattr(behaviour, name)

        def speak(*arguments):
            value = original(*arguments)
            jax.debug.callback(lambda number: values.__setitem__(name, np.asarray(number)), value)
            return value

        return speak

    with pytest.MonkeyPatch.context() as patch:
        for name in ("critic_target", "critic_loss", "actor_loss", "temperature_loss"):
            patch.setattr(behaviour, name, speaking(name))
        both = jax.jit(lambda *given: (update_critic(*given, SMALL), update_actor(*given, SMALL)))
        after_critic, after_actor = both(learner, batch, key)
        jax.effects_barrier()
    return Overheard(learner, batch, key, after_critic, after_actor, values)


def shifted(network, index, step):
    """The network with one bias of its last layer moved."""
    bias = np.array(network.net.last.bias, np.float64)
    bias[index] += step
    return eqx.tree_at(lambda part: part.net.last.bias, network, bias)


def first_gradient(moments) -> np.ndarray:
    """The flat gradient of the first update: Adam's first moment is then a tenth of it."""
    return 10.0 * np.asarray(moments[0].mu)


def test_target_by_hand():
    batch = Batch(*(np.zeros((2, 1)),) * 2, np.array([1.0, 2.0]), np.zeros((2, 1)), np.array([0.0, 1.0]))
    target = critic_target(batch, np.array([[3.0, 9.0], [5.0, 7.0]]), np.array([-2.0, 1.0]), 0.5, 0.9)
    # row 0: 1 + 0.9 (min(3, 5) + 0.5 * 2) = 4.6; row 1 is terminal: its reward alone
    np.testing.assert_allclose(target, [4.6, 2.0], rtol=1e-6)


def test_losses_by_hand():
    values = jnp.array([[1.0, 4.0], [2.0, 3.0]])
    # critics: 1/2 (mean(1, 4) + mean(0, 1)) with target (2, 2) -> differences (-1, 2) and (0, 1)
    np.testing.assert_allclose(critic_loss(values, jnp.array([2.0, 2.0])), 0.5 * (2.5 + 0.5))
    # actor: mean(0.5 * -2 - 1, 0.5 * 4 - 3) = mean(-2, -1)
    np.testing.assert_allclose(actor_loss(values, jnp.array([-2.0, 4.0]), 0.5), -1.5)
    # temperature: -e^0 * (mean(-2, 4) - 3) = 2
    np.testing.assert_allclose(temperature_loss(jnp.zeros(()), jnp.array([-2.0, 4.0]), 3), 2.0)


@pytest.mark.parametrize(("log_probs", "sign"), [((5.0, 5.0), +1), ((-5.0, -5.0), -1)])
def test_temperature_rises_when_the_entropy_is_too_small(log_probs, sign):
    slope = jax.grad(temperature_loss)(jnp.zeros(()), jnp.array(log_probs), 2)
    assert np.sign(-slope) == sign


def numpy_target(learner: Learner, batch: Batch, key: jax.Array) -> np.ndarray:
    actions, log_probs = numpy_sample(learner.actor, batch.next_observations, key)
    soft = numpy_values(learner.slow_critic, batch.next_observations, actions).min(0) - np.exp(-0.7) * log_probs
    return batch.rewards + 0.99 * (1 - batch.terminals) * soft


def slope(loss, network, index) -> float:
    """The loss's slope in one bias of the network's last layer, by central difference."""
    return (loss(shifted(network, index, 1e-4)) - loss(shifted(network, index, -1e-4))) / 2e-4


def test_critic_update_against_numpy(overheard: Overheard):
    learner, batch, key, updated, _, values = overheard
    target = numpy_target(learner, batch, key)

    def loss(critic) -> float:
        errors = numpy_values(critic, batch.observations, batch.actions) - target
        return 0.5 * (errors**2).mean(1).sum()

    np.testing.assert_allclose(values["critic_target"], target, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values["critic_loss"], loss(learner.critic), rtol=1e-4)
    slopes = [slope(loss, learner.critic, (i, 0)) for i in range(2)]
    np.testing.assert_allclose(first_gradient(updated.critic_moments)[-2:], slopes, rtol=1e-3)
    # Adam's first step moves each weight by its rate against the sign of the slope.
    bias, moved = learner.critic.net.last.bias, updated.critic.net.last.bias
    np.testing.assert_allclose((moved - bias)[:, 0], -0.02 * np.sign(slopes), rtol=1e-3)
    slow = 0.995 * learner.slow_critic.net.last.bias + 0.005 * np.asarray(moved)
    np.testing.assert_allclose(updated.slow_critic.net.last.bias, slow, rtol=1e-5)
    assert jax.tree.all(jax.tree.map(np.array_equal, updated.actor, learner.actor))


def test_actor_update_against_numpy(overheard: Overheard):
    learner, batch, key, _, updated, values = overheard

    def loss(actor) -> float:
        actions, log_probs = numpy_sample(actor, batch.observations, key)
        scores = numpy_values(learner.critic, batch.observations, actions).min(0)
        return float((np.exp(-0.7) * log_probs - scores).mean())

    np.testing.assert_allclose(values["actor_loss"], loss(learner.actor), rtol=1e-4)
    slopes = [slope(loss, learner.actor, i) for i in range(4)]
    gradient = first_gradient(updated.actor_moments)
    np.testing.assert_allclose(gradient[-5:-1], slopes, rtol=1e-3, atol=1e-5)
    bias, moved = learner.actor.net.last.bias, updated.actor.net.last.bias
    np.testing.assert_allclose(moved - bias, -0.01 * np.sign(slopes), rtol=1e-3)
    assert jax.tree.all(jax.tree.map(np.array_equal, updated.critic, learner.critic))


def test_temperature_update_against_numpy(overheard: Overheard):
    learner, batch, key, _, updated, values = overheard
    _, log_probs = numpy_sample(learner.actor, batch.observations, key)
    loss = -np.exp(-0.7) * (log_probs.mean() - 2)  # which is also its slope in the log-temperature
    np.testing.assert_allclose(values["temperature_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(first_gradient(updated.actor_moments)[-1], loss, rtol=1e-4)
    np.testing.assert_allclose(updated.log_temperature, -0.7 - 0.01 * np.sign(loss), rtol=1e-3)


# --- The trainer ------------------------------------------------------------------------------------------


class Track(gymnasium.Env):
    """A cart on a line: pushed by the action, rewarded for being near 0, off the track beyond 2."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.uniform(-1.5, 1.5), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place += 0.3 * float(action[0])
        self.time += 1
        terminated = abs(self.place) > 2
        return np.array([self.place], np.float32), 1 - self.place**2, terminated, self.time >= 20, {}


TRACK = BehaviourConfig(
    steps=2400,
    segment=240,
    warmup=240,
    chunk=80,
    batch=32,
    actor_hidden=(16,),
    critic_hidden=(16,),
    actor_rate=3e-3,
    critic_rate=3e-3,
    evaluation_episodes=8,
)


@pytest.fixture(scope="module", autouse=True)
def track():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_register_builtin", lambda: None)
        patch.setattr(registry, "_TASKS", {})
        registry.register(registry.Task(name="track", make=Track, space=Space.unit(1, 1), time_limit=20))
        yield


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory) -> tuple[Path, list[Evaluation]]:
    """A run without interruption."""
    directory = tmp_path_factory.mktemp("whole")
    told: list[Evaluation] = []
    assert train_behaviour("track", TRACK, directory, told.append) == told
    return directory, told


def test_training_improves_the_policy(whole_run):
    directory, history = whole_run
    assert history[-1].mean > 15 > history[0].mean  # 20 is the most there is; a policy that idles gets about 5
    last = read_policy(directory / "actor-00002400.safetensors")
    assert last(np.array([[1.2]]))[0, 0] < -0.3
    assert last(np.array([[-1.2]]))[0, 0] > 0.3


class Interrupted(Exception):
    pass


def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path: Path, whole_run):
    whole, expected = whole_run

    def interrupt(evaluation: Evaluation) -> None:
        if evaluation.steps == 720:
            raise Interrupted

    with pytest.raises(Interrupted):
        train_behaviour("track", TRACK, tmp_path, interrupt)
    # A file of the segment that was under way when the machine went down must do no harm.
    (tmp_path / "experience-0003.safetensors").write_bytes(b"half a file")
    assert train_behaviour("track", TRACK, tmp_path) == expected
    names = sorted(path.name for path in whole.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 10 + 10 + 1
    for name in names:
        assert (whole / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_a_finished_run_can_be_lengthened(tmp_path: Path, whole_run):
    train_behaviour("track", replace(TRACK, steps=480), tmp_path)
    assert train_behaviour("track", TRACK, tmp_path) == whole_run[1]
    once, twice = (load_file(directory / "learner.safetensors") for directory in (whole_run[0], tmp_path))
    assert once.keys() == twice.keys()
    assert all(np.array_equal(once[name], twice[name]) for name in once)


def test_step_sizes_settle():
    config = replace(TRACK, settle_at=480, settled=0.5)
    assert config.at(479) == config
    assert (config.at(480).actor_rate, config.at(480).critic_rate) == (1.5e-3, 1.5e-3)
    assert TRACK.at(10**9) == TRACK


def test_settling_changes_what_follows_and_nothing_before(tmp_path: Path, whole_run):
    # The decision may be taken during the run, as long as it concerns what is still to come.
    train_behaviour("track", replace(TRACK, steps=480), tmp_path)
    train_behaviour("track", replace(TRACK, steps=720, settle_at=480, settled=0.0), tmp_path)
    actors = [(tmp_path / f"actor-{steps:08d}.safetensors").read_bytes() for steps in (480, 720)]
    assert actors[0] == (whole_run[0] / "actor-00000480.safetensors").read_bytes()
    assert actors[1] == actors[0]  # with step sizes of 0 nothing moves any more
    with pytest.raises(FovaError, match="settle_at was 480, now 240"):
        train_behaviour("track", replace(TRACK, steps=720, settle_at=240, settled=0.0), tmp_path)


def test_another_config_in_the_same_directory_is_refused(tmp_path: Path):
    config = replace(TRACK, steps=240)
    train_behaviour("track", config, tmp_path)
    with pytest.raises(FovaError, match=r"holds another run: seed was 0, now 1; batch was 32, now 16"):
        train_behaviour("track", replace(config, seed=1, batch=16), tmp_path)


def test_experience_keeps_terminals_apart_from_time_limits(tmp_path: Path):
    train_behaviour("track", replace(TRACK, steps=240), tmp_path)
    rows = load_file(tmp_path / "experience-0000.safetensors")
    off_track = np.abs(rows["next_observations"][:, 0]) > 2
    np.testing.assert_array_equal(rows["terminals"], off_track.astype(np.float32))
    assert 0 < off_track.sum() < 240
    np.testing.assert_allclose(rows["next_observations"], rows["observations"] + 0.3 * rows["actions"], atol=1e-5)
    np.testing.assert_allclose(rows["rewards"], 1 - rows["next_observations"][:, 0] ** 2, atol=1e-5)


def test_simulators_start_the_next_episode_at_once():
    simulators = Simulators([Track(), Track()], np.random.default_rng(0))
    for _ in range(20):
        rows = simulators.step(np.zeros((2, 1), np.float32))
    np.testing.assert_array_equal(rows["observations"], rows["next_observations"])  # nobody pushed
    assert (simulators.observations != rows["next_observations"]).all()  # yet a new episode has begun
    assert [env.time for env in simulators.environments] == [0, 0]


def test_measured_returns_are_those_of_whole_episodes():
    weights = {
        "last.weight": np.zeros((1, 2), np.float32),
        "last.bias": np.zeros(2, np.float32),
    }  # mean 0, spread 1
    policy = Policy("squashed", weights, Space.unit(1, 1))
    environments = [Track() for _ in range(3)]
    returns = measure_returns(policy, environments, [7])
    np.testing.assert_array_equal(returns, measure_returns(policy, environments, [7]))
    rng = np.random.default_rng([7])
    simulators = Simulators(environments, rng)
    alive, expected = [0, 1, 2], np.zeros(3)
    places = simulators.observations[:, 0].astype(float)
    for _ in range(20):
        pushes = 0.3 * np.tanh(rng.standard_normal((len(alive), 1), np.float32))[:, 0]
        for i, push in zip(list(alive), pushes):
            places[i] += push
            expected[i] += 1 - places[i] ** 2
            if abs(places[i]) > 2:
                alive.remove(i)
    np.testing.assert_allclose(returns, expected, rtol=1e-4)


# --- What is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"steps": 250}, {"segment": 100, "steps": 100, "warmup": 100}, {"environments": 3}, {"critic_updates": 3}],
)
def test_sizes_that_do_not_fit_are_refused(change):
    with pytest.raises(FovaError, match="multiple of"):
        replace(TRACK, **change)


def test_unscaled_actions_are_refused(tmp_path: Path):
    def make():
        env = Track()
        env.action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))
        return env

    registry.register(registry.Task(name="wide", make=make, space=Space.unit(1, 1), time_limit=20))
    with pytest.raises(FovaError, match=r"\[-2, 2\].*RescaleAction"):
        train_behaviour("wide", TRACK, tmp_path)


def test_the_record_of_a_run_is_readable(tmp_path: Path):
    from safetensors import safe_open

    train_behaviour("track", replace(TRACK, steps=240), tmp_path)
    with safe_open(tmp_path / "learner.safetensors", "numpy") as file:
        record = json.loads(file.metadata()["run"])
    assert record["task"] == "track"
    assert BehaviourConfig(**{**record["config"], "actor_hidden": (16,), "critic_hidden": (16,)}).steps == 240

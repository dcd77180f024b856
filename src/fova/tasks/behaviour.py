"""Training of behaviour policies: soft actor-critic in a simulator, for tasks whose data fova makes itself.

The networks are those of the offline algorithms. Training is a chain of segments: each starts fresh episodes
from a seed of its own, and between two segments everything that matters is on disk (the learner in one file,
the experience of each segment in another). A run that was interrupted therefore goes on from its last whole
segment and ends with the very parameters it would have had.

What a trained policy needs in order to act is in `behaviour_policy.py`; which snapshots of a run become the
levels of a task is decided in `behaviour_levels.py`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import Env
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.numpy import save as format_tensors

from fova.errors import FovaError
from fova.machine.files import write_atomically
from fova.networks import GaussianActor, Squashed, TwinCritic, make_actor, polyak
from fova.policy import Policy, from_actor
from fova.spaces import Space
from fova.tasks import registry
from fova.tasks.behaviour_policy import save_policy


@dataclass(frozen=True)
class BehaviourConfig:
    """Soft actor-critic with automatic temperature."""

    seed: int = 0
    """Seed of networks, environments and sampled actions."""
    steps: int = 1_000_000
    """Environment steps in all. A finished run goes on when this is raised."""
    segment: int = 10_000
    """Environment steps between two checkpoints; each segment starts fresh episodes and ends with an evaluation."""
    environments: int = 4
    """Environments stepped side by side."""
    chunk: int = 80
    """Environment steps between two visits to the learner."""
    steps_per_update: int = 2
    """Environment steps per critic update."""
    critic_updates: int = 2
    """Critic updates per update of actor and temperature."""
    warmup: int = 10_000
    """First steps, taken with uniformly random actions and without learning; whole segments."""
    batch: int = 128
    """Transitions per update."""
    actor_hidden: tuple[int, ...] = (128, 128)
    """Widths of the actor's hidden layers."""
    critic_hidden: tuple[int, ...] = (192, 192)
    """Widths of the critics' hidden layers; each is followed by LayerNorm."""
    actor_rate: float = 5e-4
    """Adam's step size for actor and temperature."""
    critic_rate: float = 1e-3
    """Adam's step size for the critics."""
    settle_at: int | None = None
    """Environment steps after which both step sizes shrink to `settled` of themselves; None: they never do."""
    settled: float = 0.3
    """What is left of the step sizes from then on."""
    discount: float = 0.99
    """Weight of the next step's value."""
    polyak_rate: float = 0.005
    """How fast the slow critics follow the current ones."""
    evaluation_episodes: int = 5
    """Episodes with sampled actions that end each segment."""

    def __post_init__(self) -> None:
        per_visit = self.steps_per_update * self.critic_updates
        for name, value, divisor in (
            ("steps", self.steps, self.segment),
            ("warmup", self.warmup, self.segment),
            ("chunk", self.chunk, self.environments),
            ("chunk", self.chunk, per_visit),
            ("segment", self.segment, self.chunk),
        ):
            if value < divisor or value % divisor:
                raise FovaError(f"{name} is {value}, but must be a positive multiple of {divisor}.")

    def at(self, steps: int) -> "BehaviourConfig":
        """The config with the step sizes that hold after so many environment steps."""
        if self.settle_at is None or steps < self.settle_at:
            return self
        return replace(self, actor_rate=self.actor_rate * self.settled, critic_rate=self.critic_rate * self.settled)


# --- The learner ------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Transitions drawn from the experience."""

    observations: Float[Array, "batch observation"]
    actions: Float[Array, "batch action"]
    rewards: Float[Array, " batch"]
    next_observations: Float[Array, "batch observation"]
    terminals: Float[Array, " batch"]


class Learner(eqx.Module):
    """Everything that training carries from one update to the next."""

    actor: GaussianActor
    critic: TwinCritic
    slow_critic: TwinCritic
    log_temperature: Float[Array, ""]
    actor_moments: optax.OptState
    critic_moments: optax.OptState


def _optimisers(config: BehaviourConfig) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    return optax.flatten(optax.adam(config.actor_rate)), optax.flatten(optax.adam(config.critic_rate))


def init_learner(space: Space, config: BehaviourConfig) -> Learner:
    """Fresh networks; the temperature starts at 1."""
    actor_key, critic_key = jax.random.split(jax.random.key(config.seed))
    actor = make_actor(actor_key, space, "squashed", config.actor_hidden)
    assert isinstance(actor, GaussianActor)
    critic = TwinCritic(critic_key, space, config.critic_hidden)
    log_temperature = jnp.zeros(())
    actor_optimiser, critic_optimiser = _optimisers(config)
    return Learner(
        actor=actor,
        critic=critic,
        slow_critic=jax.tree.map(jnp.copy, critic),
        log_temperature=log_temperature,
        actor_moments=actor_optimiser.init((actor, log_temperature)),
        critic_moments=critic_optimiser.init(critic),
    )


# --- The equations ----------------------------------------------------------------------------------------


def critic_target(
    batch: Batch,
    next_values: Float[Array, "2 batch"],
    next_log_probs: Float[Array, " batch"],
    temperature: Float[Array, ""],
    discount: float,
) -> Float[Array, " batch"]:
    """y = r + gamma (1 - terminal) (min_i Q_i(s', a') - temperature log pi(a'|s')), a' ~ pi(.|s')."""
    soft_values = next_values.min(axis=0) - temperature * next_log_probs
    return batch.rewards + discount * (1.0 - batch.terminals) * soft_values


def critic_loss(values: Float[Array, "2 batch"], target: Float[Array, " batch"]) -> Float[Array, ""]:
    """1/2 E[(Q_i(s, a) - y)^2], summed over the two critics."""
    return 0.5 * jnp.square(values - target).mean(axis=1).sum()


def actor_loss(
    values: Float[Array, "2 batch"], log_probs: Float[Array, " batch"], temperature: Float[Array, ""]
) -> Float[Array, ""]:
    """E[temperature log pi(a|s) - min_i Q_i(s, a)], a ~ pi(.|s)."""
    return jnp.mean(temperature * log_probs - values.min(axis=0))


def temperature_loss(
    log_temperature: Float[Array, ""], log_probs: Float[Array, " batch"], action_size: int
) -> Float[Array, ""]:
    """-temperature E[log pi(a|s) + H], H = -dim(A): the temperature falls while the entropy exceeds H."""
    return -jnp.exp(log_temperature) * jnp.mean(jax.lax.stop_gradient(log_probs) - action_size)


# --- Updates ----------------------------------------------------------------------------------------------


def update_critic(learner: Learner, batch: Batch, key: PRNGKeyArray, config: BehaviourConfig) -> Learner:
    """One step of the critics towards their target, and of the slow critics after them."""
    next_actions, next_log_probs = _sample(learner.actor, batch.next_observations, key)
    next_values = learner.slow_critic(batch.next_observations, next_actions)
    temperature = jnp.exp(learner.log_temperature)
    target = critic_target(batch, next_values, next_log_probs, temperature, config.discount)
    gradient = jax.grad(lambda critic: critic_loss(critic(batch.observations, batch.actions), target))(
        learner.critic
    )
    steps, moments = _optimisers(config)[1].update(gradient, learner.critic_moments)
    critic = optax.apply_updates(learner.critic, steps)
    slow_critic = polyak(learner.slow_critic, critic, config.polyak_rate)
    return eqx.tree_at(
        lambda part: (part.critic, part.slow_critic, part.critic_moments), learner, (critic, slow_critic, moments)
    )


def update_actor(learner: Learner, batch: Batch, key: PRNGKeyArray, config: BehaviourConfig) -> Learner:
    """One step of actor and temperature."""

    def loss(parts: tuple[GaussianActor, Float[Array, ""]]) -> Float[Array, ""]:
        actor, log_temperature = parts
        actions, log_probs = _sample(actor, batch.observations, key)
        values = learner.critic(batch.observations, actions)
        temperature = jnp.exp(jax.lax.stop_gradient(log_temperature))
        return actor_loss(values, log_probs, temperature) + temperature_loss(
            log_temperature, log_probs, batch.actions.shape[-1]
        )

    parts = (learner.actor, learner.log_temperature)
    steps, moments = _optimisers(config)[0].update(jax.grad(loss)(parts), learner.actor_moments)
    actor, log_temperature = optax.apply_updates(parts, steps)
    return eqx.tree_at(
        lambda part: (part.actor, part.log_temperature, part.actor_moments),
        learner,
        (actor, log_temperature, moments),
    )


def _sample(
    actor: GaussianActor, observations: Float[Array, "batch observation"], key: PRNGKeyArray
) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
    distribution = actor(observations)
    assert isinstance(distribution, Squashed)
    return distribution.sample_with_log_prob(key)


@partial(jax.jit, static_argnames="config", donate_argnames="learner")
def learn(learner: Learner, batches: Batch, key: PRNGKeyArray, config: BehaviourConfig) -> Learner:
    """Updates on a stack of batches [visits, critic updates, batch, ...]; the actor learns on each visit's last."""

    def visit(learner: Learner, drawn: tuple[Batch, PRNGKeyArray]) -> tuple[Learner, None]:
        batches, key = drawn
        keys = jax.random.split(key, config.critic_updates + 1)
        # Unrolled rather than chosen by a condition: the compiled step stays free of branches.
        for i in range(config.critic_updates):
            batch = Batch(*(field[i] for field in batches))
            learner = update_critic(learner, batch, keys[i], config)
        return update_actor(learner, batch, keys[-1], config), None

    keys = jax.random.split(key, len(batches.rewards))
    return jax.lax.scan(visit, learner, (batches, keys))[0]


# --- Experience -------------------------------------------------------------------------------------------


class Experience:
    """All transitions of a run in the order they were made; each segment is also a file of its own."""

    def __init__(self, space: Space, capacity: int) -> None:
        self.size = 0
        self.rows = {
            "observations": np.zeros((capacity, space.observation), np.float32),
            "actions": np.zeros((capacity, space.action.size), np.float32),
            "rewards": np.zeros(capacity, np.float32),
            "next_observations": np.zeros((capacity, space.observation), np.float32),
            "terminals": np.zeros(capacity, np.float32),
        }

    def add(self, rows: dict[str, NDArray]) -> None:
        end = self.size + len(rows["rewards"])
        for name, values in rows.items():
            self.rows[name][self.size : end] = values
        self.size = end

    def last(self, count: int) -> dict[str, NDArray]:
        return {name: values[self.size - count : self.size] for name, values in self.rows.items()}

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Batch:
        """Batches drawn uniformly with replacement."""
        chosen = rng.integers(self.size, size=shape)
        return Batch(**{name: jnp.asarray(values[chosen]) for name, values in self.rows.items()})


class Simulators:
    """Environments stepped side by side; an episode that ends is followed at once by the next."""

    def __init__(self, environments: Sequence[Env], rng: np.random.Generator) -> None:
        self.environments = environments
        seeds = rng.integers(2**31, size=len(environments))
        self.observations = np.stack(
            [env.reset(seed=int(seed))[0] for env, seed in zip(environments, seeds)]
        ).astype(np.float32)

    def step(self, actions: NDArray) -> dict[str, NDArray]:
        """One step of every environment, as rows of experience."""
        before, rewards, terminals = self.observations.copy(), [], []
        after = np.empty_like(before)
        for i, env in enumerate(self.environments):
            after[i], reward, terminated, truncated, _ = env.step(actions[i])
            rewards.append(reward)
            terminals.append(terminated)
            self.observations[i] = env.reset()[0] if terminated or truncated else after[i]
        return {
            "observations": before,
            "actions": actions,
            "rewards": np.asarray(rewards, np.float32),
            "next_observations": after,
            "terminals": np.asarray(terminals, np.float32),
        }


def measure_returns(policy: Policy, environments: Sequence[Env], seed: Sequence[int]) -> NDArray:
    """The return of one episode with sampled actions in each environment, played side by side."""
    rng = np.random.default_rng(seed)
    playing = list(range(len(environments)))
    returns = np.zeros(len(environments))
    observations = Simulators(environments, rng).observations
    while playing:
        actions = _sampled_actions(policy, observations[playing], rng)
        for i, action in zip(list(playing), actions):
            observations[i], reward, terminated, truncated, _ = environments[i].step(action)
            returns[i] += reward
            if terminated or truncated:
                playing.remove(i)
    return returns


def _sampled_actions(policy: Policy, observations: NDArray, rng: np.random.Generator) -> NDArray:
    """A random action in [-1, 1] for each row: [n, observation] -> [n, action]."""
    noise = rng.standard_normal((len(observations), policy.space.action.size), np.float32)
    return policy.unit_actions(observations, noise)


# --- Training ---------------------------------------------------------------------------------------------


class Evaluation(NamedTuple):
    """What a segment ended with; `steps` environment steps had been taken."""

    steps: int
    mean: float
    sd: float


def train_behaviour(
    task_name: str,
    config: BehaviourConfig,
    directory: Path,
    progress: Callable[[Evaluation], None] = lambda evaluation: None,
) -> list[Evaluation]:
    """Train, or go on training, in `directory`; every segment leaves `actor-STEPS.safetensors` there."""
    task = registry.get(task_name)
    directory.mkdir(parents=True, exist_ok=True)
    environments = [task.make() for _ in range(max(config.environments, config.evaluation_episodes))]
    _check_bounds(task_name, environments[0])
    learner = init_learner(task.space, config)
    experience = Experience(task.space, config.steps)
    learner, history = _resume(directory, task_name, config, learner, experience)
    while len(history) * config.segment < config.steps:
        index = len(history)
        current = config.at(experience.size)
        learner = _run_segment(index, learner, experience, environments[: config.environments], task.space, current)
        policy = from_actor(learner.actor, None, task.space)
        returns = measure_returns(policy, environments[: config.evaluation_episodes], [config.seed, index, 1])
        history.append(Evaluation(experience.size, float(returns.mean()), float(returns.std())))
        save_policy(policy, directory / f"actor-{experience.size:08d}.safetensors")
        _save_experience(directory, index, experience.last(config.segment))
        _save_learner(directory, task_name, config, learner, history)
        progress(history[-1])
    return history


def _run_segment(
    index: int,
    learner: Learner,
    experience: Experience,
    environments: Sequence[Env],
    space: Space,
    config: BehaviourConfig,
) -> Learner:
    """One segment from fresh episodes. Its randomness depends on the seed and the index alone."""
    rng = np.random.default_rng([config.seed, index, 0])
    key = jax.random.fold_in(jax.random.key(config.seed + 1), index)
    simulators = Simulators(environments, rng)
    action_shape = (config.environments, space.action.size)
    warming_up = experience.size < config.warmup
    end = experience.size + config.segment
    while experience.size < end:
        policy = from_actor(learner.actor, None, space)
        for _ in range(config.chunk // config.environments):
            if warming_up:
                actions = rng.uniform(-1.0, 1.0, action_shape).astype(np.float32)
            else:
                actions = _sampled_actions(policy, simulators.observations, rng)
            experience.add(simulators.step(actions))
        if not warming_up:
            visits = config.chunk // (config.steps_per_update * config.critic_updates)
            batches = experience.draw((visits, config.critic_updates, config.batch), rng)
            learner = learn(learner, batches, jax.random.fold_in(key, experience.size), config)
    return learner


def _check_bounds(task_name: str, env: Env) -> None:
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    if not (np.allclose(low, -1.0) and np.allclose(high, 1.0)):
        raise FovaError(
            f"The actions of task {task_name!r} lie in [{low.min():g}, {high.max():g}], but a behaviour policy "
            "acts in [-1, 1]. Wrap the environment in gymnasium.wrappers.RescaleAction(env, -1, 1)."
        )


# --- Checkpoints ------------------------------------------------------------------------------------------


def _save_experience(directory: Path, index: int, rows: dict[str, NDArray]) -> None:
    write_atomically(directory / f"experience-{index:04d}.safetensors", format_tensors(rows))


def _save_learner(
    directory: Path, task_name: str, config: BehaviourConfig, learner: Learner, history: list[Evaluation]
) -> None:
    leaves = {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(learner))}
    record = {"task": task_name, "config": asdict(config), "history": history}
    write_atomically(directory / "learner.safetensors", format_tensors(leaves, {"run": json.dumps(record)}))


def _resume(
    directory: Path, task_name: str, config: BehaviourConfig, learner: Learner, experience: Experience
) -> tuple[Learner, list[Evaluation]]:
    """The state after the last whole segment on disk, or the fresh one if there is none."""
    path = directory / "learner.safetensors"
    if not path.exists():
        return learner, []
    with safe_open(path, "numpy") as file:
        record: dict[str, Any] = json.loads(file.metadata()["run"])
    _check_same_run(directory, record, task_name, config)
    saved = load_file(path)
    leaves, structure = jax.tree.flatten(learner)
    learner = jax.tree.unflatten(structure, [jnp.asarray(saved[str(i)]) for i in range(len(leaves))])
    history = [Evaluation(*entry) for entry in record["history"]]
    for index in range(len(history)):
        experience.add(load_file(directory / f"experience-{index:04d}.safetensors"))
    return learner, history


def _check_same_run(directory: Path, record: dict[str, Any], task_name: str, config: BehaviourConfig) -> None:
    """A run's past must stay what it was: the config may differ only in what has not come into play yet."""
    before = {"task": record["task"], **record["config"]}
    now = {"task": task_name, **json.loads(json.dumps(asdict(config)))}
    steps = record["history"][-1][0]
    still_open = {"steps"}
    if all(at is None or at >= steps for at in (before.get("settle_at"), now["settle_at"])):
        still_open |= {"settle_at", "settled"}
    changed = [name for name in now if name not in still_open and now[name] != before.get(name)]
    if changed:
        told = "; ".join(f"{name} was {before.get(name)!r}, now {now[name]!r}" for name in changed)
        raise FovaError(f"{directory} holds another run: {told}. Give the same values or another directory.")

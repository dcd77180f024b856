"""Training of behaviour policies in a simulator, for tasks whose data fova generates.

The algorithm is soft actor-critic (`soft_actor_critic.py`). Training is a sequence of segments. Each segment starts
new episodes from its own seed. After each segment the complete state is on disk: the learner in one file, and the
experience of each segment in another. An interrupted run continues from its last complete segment and ends with the
same parameters as an uninterrupted run.

`behaviour_policy.py` reads and writes trained policies. `behaviour_levels.py` decides which snapshots of a run
become the levels of a task.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Env
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file
from safetensors.numpy import save as format_tensors

from fova.algorithms.base import Learner
from fova.errors import FovaError
from fova.machine.files import write_atomically
from fova.policy import from_actor
from fova.settings import SEEDS, Within, check_kinds, check_ranges
from fova.spaces import Discrete, Space
from fova.tasks import registry
from fova.tasks.behaviour_policy import save_policy
from fova.tasks.experience import Environments, Experience, Rows, measure_returns, sampled_actions
from fova.tasks.soft_actor_critic import SoftActorCritic, learn

COUNT = Within(1)


@dataclass(frozen=True)
class BehaviourConfig:
    """Soft actor-critic with automatic temperature."""

    seed: Annotated[int, SEEDS] = 0
    """Seed of networks, environments and sampled actions."""
    steps: Annotated[int, COUNT] = 1_000_000
    """Environment steps in all. Raise it to continue a finished run."""
    segment: Annotated[int, COUNT] = 10_000
    """Environment steps between two checkpoints; each segment starts fresh episodes and ends with an evaluation."""
    environments: Annotated[int, Within(1, 1000)] = 4
    """Environments stepped side by side."""
    chunk: Annotated[int, COUNT] = 80
    """Environment steps between two visits to the learner."""
    steps_per_update: Annotated[int, COUNT] = 2
    """Environment steps per critic update."""
    critic_updates: Annotated[int, COUNT] = 2
    """Critic updates per update of actor and temperature."""
    warmup: Annotated[int, COUNT] = 10_000
    """First steps, taken with uniformly random actions and without learning; whole segments."""
    batch: Annotated[int, COUNT] = 128
    """Transitions per update."""
    actor_hidden: Annotated[tuple[int, ...], COUNT] = (128, 128)
    """Widths of the actor's hidden layers."""
    critic_hidden: Annotated[tuple[int, ...], COUNT] = (192, 192)
    """Widths of the critics' hidden layers; each is followed by LayerNorm."""
    actor_rate: Annotated[float, Within(0)] = 5e-4
    """Adam's step size for actor and temperature."""
    critic_rate: Annotated[float, Within(0)] = 1e-3
    """Adam's step size for the critics."""
    settle_at: Annotated[int | None, Within(0)] = None
    """Environment steps after which both step sizes shrink to `settled` of themselves; None: they never do."""
    settled: Annotated[float, Within(0)] = 0.3
    """What is left of the step sizes from then on."""
    discount: Annotated[float, Within(0, 1, below=True)] = 0.99
    """Weight of the next step's value."""
    polyak_rate: Annotated[float, Within(0, 1)] = 0.005
    """Share of the current critics that the target critics take over at every update."""
    evaluation_episodes: Annotated[int, Within(1, 1000)] = 5
    """Episodes with sampled actions that end each segment."""

    def __post_init__(self) -> None:
        check_kinds(self, "of a behaviour policy's training")
        check_ranges(self)
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
        """The config with the learning rates that apply after `steps` environment steps."""
        if self.settle_at is None or steps < self.settle_at:
            return self
        return replace(self, actor_rate=self.actor_rate * self.settled, critic_rate=self.critic_rate * self.settled)

    @property
    def algorithm(self) -> SoftActorCritic:
        return SoftActorCritic(
            discount=self.discount,
            tau=self.polyak_rate,
            batch_size=self.batch,
            actor_lr=self.actor_rate,
            critic_lr=self.critic_rate,
            hidden=self.actor_hidden,
            critic_hidden=self.critic_hidden,
            critic_updates=self.critic_updates,
        )


# --- Training ---------------------------------------------------------------------------------------------


class Evaluation(NamedTuple):
    """The evaluation at the end of a segment, after `steps` environment steps in total."""

    steps: int
    mean: float
    sd: float


def train_behaviour(
    task_name: str,
    config: BehaviourConfig,
    directory: Path,
    progress: Callable[[Evaluation], None] = lambda evaluation: None,
) -> list[Evaluation]:
    """Train, or continue training, in `directory`. Every segment writes `actor-STEPS.safetensors` there."""
    task = registry.get(task_name)
    if isinstance(task.space.action, Discrete):
        raise FovaError(
            f"The task {task_name} has {task.space.action.words()}, but this training needs continuous ones."
        )
    directory.mkdir(parents=True, exist_ok=True)
    environments = [task.make() for _ in range(max(config.environments, config.evaluation_episodes))]
    _check_bounds(task_name, environments[0])
    learner = config.algorithm.init(jax.random.key(config.seed), task.space)
    experience = Experience(task.space, config.steps)
    learner, history = _resume(directory, task_name, config, learner, experience)
    while len(history) * config.segment < config.steps:
        index, current = len(history), config.at(experience.size)
        learner = _run_segment(index, learner, experience, environments[: config.environments], task.space, current)
        policy = from_actor(learner.actor.network, None, task.space)
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
    """Run one segment from new episodes. Its randomness depends only on the seed and the index."""
    rng = np.random.default_rng([config.seed, index, 0])
    key = jax.random.fold_in(jax.random.key(config.seed + 1), index)
    playground, algorithm = Environments(environments, rng), config.algorithm
    learner = algorithm.with_learning_rates(learner)
    warming_up = experience.size < config.warmup
    end = experience.size + config.segment
    while experience.size < end:
        policy = from_actor(learner.actor.network, None, space)
        for _ in range(config.chunk // config.environments):
            if warming_up:
                actions = rng.uniform(-1.0, 1.0, (config.environments, space.action.size)).astype(np.float32)
            else:
                actions = sampled_actions(policy, playground.observations, rng)
            experience.add(playground.step(actions))
        if not warming_up:
            steps = config.chunk // (config.steps_per_update * config.critic_updates)
            batches = experience.draw((steps, config.critic_updates * config.batch), rng)
            learner = learn(learner, batches, jax.random.fold_in(key, experience.size), algorithm)
    return learner


def _check_bounds(task_name: str, env: Env) -> None:
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    if not (np.allclose(low, -1.0) and np.allclose(high, 1.0)):
        raise FovaError(
            f"The actions of task {task_name!r} lie in [{low.min():g}, {high.max():g}], but a behaviour policy "
            "acts in [-1, 1]. Wrap the environment in gymnasium.wrappers.RescaleAction(env, -1, 1)."
        )


# --- Checkpoints ------------------------------------------------------------------------------------------


def _save_experience(directory: Path, index: int, rows: Rows) -> None:
    write_atomically(directory / f"experience-{index:04d}.safetensors", format_tensors(rows))


def _save_learner(
    directory: Path, task_name: str, config: BehaviourConfig, learner: Learner, history: list[Evaluation]
) -> None:
    arrays = {name: np.asarray(array) for name, array in _named_arrays(learner).items()}
    record = {"task": task_name, "config": asdict(config), "history": history}
    write_atomically(directory / "learner.safetensors", format_tensors(arrays, {"run": json.dumps(record)}))


def _named_arrays(learner: Learner) -> dict[str, Any]:
    """The arrays of a learner by path, such as `.critic.network.net.last.bias`."""
    return {jax.tree_util.keystr(path): array for path, array in jax.tree_util.tree_leaves_with_path(learner)}


def _resume(
    directory: Path, task_name: str, config: BehaviourConfig, learner: Learner, experience: Experience
) -> tuple[Learner, list[Evaluation]]:
    """The state after the last complete segment on disk, or the initial state if there is none."""
    path = directory / "learner.safetensors"
    if not path.exists():
        return learner, []
    try:
        with safe_open(path, "numpy") as file:
            record: dict[str, Any] = json.loads(file.metadata()["run"])
        saved = load_file(path)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise FovaError(f"{path} is damaged ({error}). Train in another directory.") from error
    _check_same_run(directory, record, task_name, config)
    expected = {name: array.shape for name, array in _named_arrays(learner).items()}
    if {name: array.shape for name, array in saved.items()} != expected:
        raise FovaError(f"{path} was written by another version of fova. Train in another directory.")
    arrays = [jnp.asarray(saved[name]) for name in expected]
    learner = jax.tree.unflatten(jax.tree.structure(learner), arrays)
    history = [Evaluation(*entry) for entry in record["history"]]
    for index in range(len(history)):
        experience.add(load_file(directory / f"experience-{index:04d}.safetensors"))
    return learner, history


def _check_same_run(directory: Path, record: dict[str, Any], task_name: str, config: BehaviourConfig) -> None:
    """Refuse a config that differs from the run's config, except in settings that have not taken effect yet."""
    before = {"task": record["task"], **record["config"]}
    now = {"task": task_name, **json.loads(json.dumps(asdict(config)))}
    steps = record["history"][-1][0]
    still_open = {"steps"}
    if all(at is None or at >= steps for at in (before.get("settle_at"), now["settle_at"])):
        still_open |= {"settle_at", "settled"}
    changed = [name for name in now if name not in still_open and now[name] != before.get(name)]
    if changed:
        differences = "; ".join(f"{name} was {before.get(name)!r}, now {now[name]!r}" for name in changed)
        raise FovaError(f"{directory} holds another run: {differences}. Give the same values or another directory.")

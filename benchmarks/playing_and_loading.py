"""Playing policies against a plain loop, and reading data files. Called by `bench.py`."""

import tempfile
from pathlib import Path
from typing import Any

import jax
from step_speed import made_up
from turns import Timer, now, ratios, seconds_of, spread, take_turns

from fova import algorithms
from fova.data.normalise import Normaliser
from fova.data.npz import save_npz
from fova.data.sources import load
from fova.evaluation.rollouts import play
from fova.policy import Policy, from_actor
from fova.tasks import registry
from fova.tasks.registry import Task

POLICIES, EPISODES, PLAIN_STEPS = 5, 4, 1000
FILE_ROWS = 200_000


def playing(task_name: str, turns: int) -> dict[str, Any]:
    """Environment steps per second: a server and four clients evaluated as `fova train` does, and one by one."""
    task = registry.get(task_name)
    policies = {f"policy-{i}": untrained(task, seed=i) for i in range(POLICIES)}

    def together() -> float:
        began = now()
        played = play(policies, task, EPISODES)
        return (now() - began) / sum(int(rollouts.lengths.sum()) for rollouts in played.values())

    seconds = take_turns({"together": together, "plain loop": plain_loop(task, policies["policy-0"])}, turns)
    return {name: spread([1 / s for s in values]) for name, values in seconds.items()} | {
        "times_quicker": ratios(seconds["plain loop"], seconds["together"])
    }


def untrained(task: Task, seed: int) -> Policy:
    """A policy of the default size that has learned nothing."""
    algorithm = algorithms.configure("fova")
    actor = algorithm.local_policy(algorithm.init(jax.random.key(seed), task.space))
    return from_actor(actor, Normaliser.identity(task.space.observation), task.space, task=task.name)


def plain_loop(task: Task, policy: Policy) -> Timer:
    """One Gymnasium environment and one policy call per step."""
    environment = task.make()

    def timer() -> float:
        began = now()
        observation, _ = environment.reset(seed=0)
        for _ in range(PLAIN_STEPS):
            observation, _, terminated, truncated, _ = environment.step(policy(observation))
            if terminated or truncated:
                observation, _ = environment.reset()
        return (now() - began) / PLAIN_STEPS

    return timer


def loading(turns: int) -> dict[str, Any]:
    """Rows per second from a file to checked transitions."""
    data = made_up(FILE_ROWS, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        save_npz(data, path)
        seconds = take_turns({"npz": seconds_of(lambda: load(str(path)))}, turns)
    return {name: spread([FILE_ROWS / s for s in values]) for name, values in seconds.items()}

"""Choose the snapshots of a training run that become the levels of a task, and measure their returns.

Levels are chosen by the evaluations made during training. They are then measured again from the stored files, with
other seeds, so that the reported return does not come from a lucky evaluation. Nothing is trained here.
"""

import importlib.metadata
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env
from safetensors import safe_open

from fova.errors import FovaError
from fova.tasks import registry
from fova.tasks.behaviour import Evaluation
from fova.tasks.behaviour_policy import read_policy
from fova.tasks.experience import measure_returns

EPISODES = 20
RUNGS = 8
CANDIDATES = 3
VERSIONED = ("fova", "gymnasium", "mujoco", "jax", "numpy")
# Random streams that differ from each other and from those of the evaluations in training.
CHOICE, MEASUREMENT = 2, 3


def choose_levels(history: Sequence[Evaluation], expert_steps: int) -> dict[str, int]:
    """Level -> environment steps of its snapshot, given the steps of the expert.

    `medium` is the evaluation up to the expert that is nearest to a third of the expert's return. The ladder holds
    the snapshots up to medium, or a selection about evenly spaced in return if there are more than `RUNGS`. It
    represents what a replay buffer has seen until medium is reached.
    """
    means = np.array([evaluation.mean for evaluation in history])
    expert = [evaluation.steps for evaluation in history].index(expert_steps)
    medium = int(np.abs(means[: expert + 1] - means[expert] / 3).argmin())
    rungs = list(range(medium + 1))
    if len(rungs) > RUNGS:
        heights = np.linspace(means[0], means[medium], RUNGS)
        rungs = sorted({int(np.argmax(means[: medium + 1] >= height)) for height in heights})
    chosen = {"expert": expert, "medium": medium}
    chosen |= {f"ladder-{number:02d}": index for number, index in enumerate(rungs)}
    return {level: history[index].steps for level, index in chosen.items()}


def keep_levels(
    run: Path, directory: Path, progress: Callable[[str, float], None] = lambda level, mean: None
) -> dict[str, Any]:
    """Copy a run's levels to `directory`, measure them there and write `policies.json` beside them."""
    record = _read_record(run)
    history = [Evaluation(*entry) for entry in record["history"]]
    task = registry.get(record["task"])
    environments = [task.make() for _ in range(EPISODES)]
    levels = choose_levels(history, _expert_steps(run, history, environments))
    directory.mkdir(parents=True, exist_ok=True)
    policies = {}
    for level, steps in levels.items():
        file = directory / f"{level}.safetensors"
        shutil.copyfile(_snapshot(run, steps), file)
        returns = measure_returns(read_policy(file), environments, [steps, MEASUREMENT])
        mean, sd = round(float(returns.mean()), 1), round(float(returns.std()), 1)
        policies[level] = {"steps": steps, "mean": mean, "sd": sd, "episodes": EPISODES}
        progress(level, mean)
    spec = environments[0].spec
    result = {
        "task": record["task"],
        "environment": {"id": spec.id, "options": spec.kwargs} if spec else None,
        "config": record["config"],
        "trained_steps": history[-1].steps,
        "versions": {name: importlib.metadata.version(name) for name in VERSIONED},
        "policies": policies,
    }
    (directory / "policies.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


def _expert_steps(run: Path, history: Sequence[Evaluation], environments: Sequence[Env]) -> int:
    """The steps of the best snapshot. The best candidates are compared over more episodes than in training."""
    best = sorted(history, key=lambda evaluation: evaluation.mean)[-CANDIDATES:]

    def mean_return(steps: int) -> float:
        policy = read_policy(_snapshot(run, steps))
        return float(measure_returns(policy, environments, [steps, CHOICE]).mean())

    return max((evaluation.steps for evaluation in best), key=mean_return)


def _snapshot(run: Path, steps: int) -> Path:
    return run / f"actor-{steps:08d}.safetensors"


def _read_record(run: Path) -> dict[str, Any]:
    path = run / "learner.safetensors"
    if not path.is_file():
        raise FovaError(f"{run} holds no training run: {path.name} is missing. Train one there first.")
    with safe_open(path, "numpy") as file:
        return dict(json.loads(file.metadata()["run"]))

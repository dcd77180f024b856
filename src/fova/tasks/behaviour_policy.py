"""Behaviour policies as they are used: small weight files in, sampled actions out.

NumPy only, so that making data needs neither a compiler nor an accelerator. These policies act in [-1, 1] on raw
observations; `fova.policy` is for those that fova trains, with the frame they were trained in. Training lives in
`behaviour.py`; nothing here learns. The package's own policies are in `weights/TASK/LEVEL.safetensors`,
and `weights/TASK/policies.json` says how each was made and what return it was measured to reach.
"""

import json
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors

from fova.errors import FovaError, unknown
from fova.machine.files import write_atomically
from fova.policy import LOG_STD_RANGE

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class BehaviourPolicy:
    """A ReLU network whose last layer gives mean and log standard deviation of a tanh-squashed Gaussian."""

    weights: tuple[Floats, ...]  # one [inputs, outputs] per layer
    biases: tuple[Floats, ...]

    def __call__(self, observations: Floats, rng: np.random.Generator) -> Floats:
        """A sampled action in [-1, 1] for each row: [n, observation] -> [n, action]."""
        mean, log_std = self._moments(observations)
        return np.tanh(mean + np.exp(log_std) * rng.standard_normal(mean.shape, np.float32))

    def mode(self, observations: Floats) -> Floats:
        """The squashed mean, without noise, for each row: [n, observation] -> [n, action]."""
        return np.tanh(self._moments(observations)[0])

    def _moments(self, observations: Floats) -> tuple[Floats, Floats]:
        x = np.asarray(observations, np.float32)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1]):
            x = np.maximum(x @ weight + bias, 0.0)
        mean, log_std = np.split(x @ self.weights[-1] + self.biases[-1], 2, axis=-1)
        return mean, np.clip(log_std, *LOG_STD_RANGE)


def policy_of(actor: Any) -> BehaviourPolicy:
    """The policy of a squashed `fova.networks.GaussianActor` without LayerNorm."""
    layers = [*actor.net.layers, actor.net.last]
    return BehaviourPolicy(
        weights=tuple(np.asarray(layer.weight) for layer in layers),
        biases=tuple(np.asarray(layer.bias) for layer in layers),
    )


# --- The policies of the package --------------------------------------------------------------------------


def levels(task_name: str) -> list[str]:
    """The levels that come with the package: expert, medium, then the ladder from its lowest rung up."""
    return list(_task_record(task_name)["policies"])


def load_behaviour(task_name: str, level: str) -> BehaviourPolicy:
    """The package's policy of that task and level."""
    known = levels(task_name)
    if level not in known:
        raise unknown(f"behaviour policy of {task_name}", level, known)
    file = _shelf() / task_name / f"{level}.safetensors"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise FovaError(f"{file} cannot be read ({error}). Install fova again.") from error
    return parse_policy(content, str(file))


def behaviour_record(task_name: str, level: str) -> dict[str, Any]:
    """What is known about a policy: the steps it was trained for and the return it was measured to reach."""
    policies = _task_record(task_name)["policies"]
    if level not in policies:
        raise unknown(f"behaviour policy of {task_name}", level, policies)
    return dict(policies[level])


def _shelf() -> Traversable:
    return resources.files("fova.tasks") / "weights"


def _task_record(task_name: str) -> dict[str, Any]:
    shelf = _shelf()
    known = [entry.name for entry in shelf.iterdir() if entry.is_dir()] if shelf.is_dir() else []
    if task_name not in known:
        raise unknown(
            "task with behaviour policies", task_name, known, "Train one with `fova data train-behaviour`."
        )
    file = shelf / task_name / "policies.json"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FovaError(f"{file} cannot be read ({error}). Install fova again.") from error
    return dict(record)


# --- Files ------------------------------------------------------------------------------------------------


def save_policy(policy: BehaviourPolicy, path: Path) -> None:
    """Write a policy in half precision; the file appears whole or not at all."""
    tensors = {}
    for i, (weight, bias) in enumerate(zip(policy.weights, policy.biases)):
        tensors[f"weight.{i}"] = weight.astype(np.float16)
        tensors[f"bias.{i}"] = bias.astype(np.float16)
    write_atomically(path, format_tensors(tensors))


def read_policy(path: Path) -> BehaviourPolicy:
    """A policy from a file that `save_policy` or training wrote."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FovaError(f"The policy file {path} cannot be read: {error.strerror or error}.") from error
    return parse_policy(content, str(path))


def parse_policy(content: bytes, name: str) -> BehaviourPolicy:
    """A policy from the bytes of its file; `name` is what an error calls it."""
    try:
        tensors = parse_tensors(content)
    except SafetensorError as error:
        raise FovaError(f"{name} is not a whole safetensors file ({error}). Copy or make it again.") from error
    layers = len(tensors) // 2
    expected = {f"{kind}.{i}" for i in range(layers) for kind in ("weight", "bias")}
    if not layers or set(tensors) != expected:
        raise FovaError(
            f"{name} does not hold a behaviour policy: it has {', '.join(sorted(tensors)) or 'nothing'}, "
            "but weight.0, bias.0, weight.1, ... are expected. Is it another kind of file?"
        )
    policy = BehaviourPolicy(
        weights=tuple(tensors[f"weight.{i}"].astype(np.float32) for i in range(layers)),
        biases=tuple(tensors[f"bias.{i}"].astype(np.float32) for i in range(layers)),
    )
    _check_layers(policy, name)
    return policy


def _check_layers(policy: BehaviourPolicy, name: str) -> None:
    shapes = [(weight.shape, bias.shape) for weight, bias in zip(policy.weights, policy.biases)]
    width = shapes[0][0][0] if policy.weights[0].ndim == 2 else 0
    for i, (weight, bias) in enumerate(shapes):
        if len(weight) != 2 or weight[0] != width or bias != (weight[1],):
            raise FovaError(
                f"{name} does not hold a behaviour policy: layer {i} has weights {weight} and biases {bias}, "
                f"which do not follow {width} values."
            )
        width = weight[1]
    if width == 0 or width % 2:
        raise FovaError(
            f"{name} does not hold a behaviour policy: {width} outputs are no pairs of mean and spread."
        )
    if not all(np.isfinite(values).all() for values in (*policy.weights, *policy.biases)):
        raise FovaError(f"{name} holds weights that are NaN or infinite. Take another checkpoint.")

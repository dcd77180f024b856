"""Behaviour policies: their files, and the policies that come with the package.

A behaviour policy is a `fova.policy.Policy` that takes raw observations and samples actions in [-1, 1]. Its file is
small: it holds only the weights, in half precision. The package's policies are in `weights/TASK/LEVEL.safetensors`.
`weights/TASK/policies.json` records how each was trained and its measured return. Training is in `behaviour.py`.
"""

import json
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as format_tensors

from fova.errors import FovaError, unknown
from fova.machine.files import write_atomically
from fova.policy import Floats, Policy, insist_on_sound_weights, parse_weights
from fova.spaces import Space

# --- The policies of the package --------------------------------------------------------------------------


def levels(task_name: str) -> list[str]:
    """The levels that come with the package: expert, medium, then the ladder from its lowest rung up."""
    return list(_task_record(task_name)["policies"])


def load_behaviour(task_name: str, level: str) -> Policy:
    """The package's policy for a task and level."""
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
    """The record of a policy: its training steps and its measured return."""
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


def save_policy(policy: Policy, path: Path) -> None:
    """Write a behaviour policy in half precision. The write is atomic."""
    tensors = {}
    for i, layer in enumerate(_layer_names(len(policy.weights) // 2)):
        for part in ("weight", "bias"):
            tensors[f"{part}.{i}"] = policy.weights[f"{layer}.{part}"].astype(np.float16)
    write_atomically(path, format_tensors(tensors))


def read_policy(path: Path) -> Policy:
    """A behaviour policy from a file that `save_policy` or training wrote."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FovaError(f"The policy file {path} cannot be read: {error.strerror or error}.") from error
    return parse_policy(content, str(path))


def parse_policy(content: bytes, name: str) -> Policy:
    """A behaviour policy from the bytes of its file. Errors refer to the file as `name`."""
    try:
        policy = _policy_of(parse_weights(content))
        insist_on_sound_weights(policy)
    except FovaError as error:
        raise FovaError(f"{name} does not hold a behaviour policy: {error}.") from error
    return policy


def _policy_of(tensors: dict[str, Floats]) -> Policy:
    layers = _layer_names(len(tensors) // 2)
    if not layers or set(tensors) != {f"{part}.{i}" for i in range(len(layers)) for part in ("weight", "bias")}:
        raise FovaError(
            f"it has {', '.join(sorted(tensors)) or 'nothing'}, but weight.0, bias.0, weight.1, ... are expected"
        )
    inputs, outputs = tensors["weight.0"].shape[0], tensors[f"bias.{len(layers) - 1}"].size
    if not outputs or outputs % 2:
        raise FovaError(f"{outputs} outputs are not pairs of mean and spread")
    weights = {
        f"{layer}.{part}": tensors[f"{part}.{i}"] for i, layer in enumerate(layers) for part in ("weight", "bias")
    }
    return Policy("squashed", weights, Space.unit(inputs, outputs // 2))


def _layer_names(count: int) -> list[str]:
    """The names that `Policy` uses for layers 0, 1, ... of a file."""
    return [*(f"layers.{i}" for i in range(count - 1)), "last"][:count]

"""Writes a policy as an ONNX file, after comparing the file with the policy."""

from pathlib import Path
from typing import Any

import numpy as np

from fova.deploy.graph import ACTION, OBSERVATION, PROBABILITIES, OnInvalid, policy_model
from fova.errors import FovaError
from fova.machine.files import as_file, write_atomically
from fova.policy import NORMALISER, Floats, Policy
from fova.recipe import Recipe
from fova.settings import argument
from fova.spaces import Discrete

ROWS_COMPARED = 64
TOLERANCE = 1e-4  # as a share of the range of an action


def export_onnx(policy: Policy, path: str | Path, on_invalid: OnInvalid = "error") -> float:
    """Write the policy to an ONNX file and return the largest difference from it.

    The difference is a share of an action's range, or for discrete actions a difference of probabilities. It is
    that of 64 random observations near those of training, with ONNX's reference implementation. A file that differs
    by more than rounding is not written.
    """
    policy = argument("policy", policy, Policy)
    on_invalid = argument("on_invalid", on_invalid, OnInvalid)
    path = as_file("path", path)
    if path.suffix != ".onnx":
        raise FovaError(f"The output is {path}, but an ONNX file's name must end in .onnx.")
    model = policy_model(policy, on_invalid)
    difference = _difference(policy, model)
    if not difference <= TOLERANCE:
        raise FovaError(
            f"The ONNX graph differs from the policy by {difference:.1e}, so it was not written. This should not "
            "happen: please report it with the policy's .json file."
        )
    write_atomically(path, model.SerializeToString())
    return difference


def _difference(policy: Policy, model: Any) -> float:
    from onnx.reference import ReferenceEvaluator  # after `graph`, which says how to install a missing onnx

    observations: Any = _plausible(policy)
    feed = {OBSERVATION: observations}
    if policy.inputs is not None:
        observations, feed = _records(policy.inputs, observations)
    wanted = PROBABILITIES if isinstance(policy.space.action, Discrete) else ACTION
    outputs: Any = ReferenceEvaluator(model).run([wanted], feed)
    if isinstance(policy.space.action, Discrete):
        return float(np.abs(outputs[0] - policy.probabilities(observations)).max())
    low, high = policy.space.action.bounds
    return float((np.abs(outputs[0] - policy(observations)) / (high - low)).max())


def _plausible(policy: Policy) -> Floats:
    """Random observations with the mean and spread of those in training."""
    drawn = np.random.default_rng(0).standard_normal((ROWS_COMPARED, policy.space.observation), np.float32)
    if NORMALISER[0] not in policy.weights:
        return drawn
    mean, std = (policy.weights[name] for name in NORMALISER)
    return mean + std * drawn


def _records(recipe: Recipe, numbers: Floats) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Records with these numbers and every category, missing values included where the recipe replaces them.

    They are given as a policy takes them and as the ONNX graph does.
    """
    columns: dict[str, Any] = {}
    place, rows = 0, np.arange(len(numbers))
    for each in recipe.inputs:
        if each.categories is None:
            columns[each.name] = numbers[:, place].copy()
            if each.has_indicator:
                columns[each.name][rows % 3 == 0] = np.nan
        else:
            choices = [*each.categories, "a category that no client had"]
            choices += [""] if each.missing == "unknown" else []
            columns[each.name] = np.array([choices[row % len(choices)] for row in rows], object)
        place += each.width
    records = [{name: values[row] for name, values in columns.items()} for row in rows]
    return records, columns

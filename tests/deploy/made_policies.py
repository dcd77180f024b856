"""Small policies of every kind with random weights, for the tests of what deploys them."""

import numpy as np

from fova.policy import Policy
from fova.spaces import Box, Space

COLUMNS = 3
MEAN, STD = np.float32([1.0, -2.0, 60.0]), np.float32([2.0, 0.5, 15.0])
SPACE = Space(COLUMNS, Box.of(2, [-1.0, 0.0], [3.0, 10.0]))
KINDS = ("clipped", "squashed", "deterministic")


def make_policy(kind="clipped", layer_norm=True, normaliser=True, hidden=(8, 7), seed=0) -> Policy:
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32)

    widths = (COLUMNS, *hidden, 2 if kind == "deterministic" else 4)
    names = [*(f"layers.{i}" for i in range(len(hidden))), "last"]
    weights = {}
    for name, inputs, outputs in zip(names, widths, widths[1:]):
        weights |= {f"{name}.weight": draw(inputs, outputs) / inputs, f"{name}.bias": draw(outputs)}
    if layer_norm:
        for i, width in enumerate(hidden):
            weights |= {f"norms.{i}.scale": 1 + 0.1 * draw(width), f"norms.{i}.shift": draw(width)}
    if normaliser:
        weights |= {"observation_mean": MEAN, "observation_std": STD}
    return Policy(kind, weights, SPACE, {"task": "somewhere", "rounds": 4})


def observations(rows=6, seed=1):
    return (MEAN + STD * np.random.default_rng(seed).normal(size=(rows, COLUMNS))).astype(np.float32)

"""Small policies of every kind with random weights, for the tests of what deploys them."""

import numpy as np

from fova.policy import Policy
from fova.spaces import Box, Discrete, Space

COLUMNS = 3
MEAN, STD = np.float32([1.0, -2.0, 60.0]), np.float32([2.0, 0.5, 15.0])
SPACE = Space(COLUMNS, Box.of(2, [-1.0, 0.0], [3.0, 10.0]))
CHOICE = Space(COLUMNS, Discrete(("nothing", "fluids", "vasopressor")))
KINDS = ("clipped", "squashed", "deterministic")


def make_policy(kind="clipped", layer_norm=True, normaliser=True, hidden=(8, 7), seed=0) -> Policy:
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32)

    widths = (COLUMNS, *hidden, {"deterministic": 2, "categorical": 3}.get(kind, 4))
    names = [*(f"layers.{i}" for i in range(len(hidden))), "last"]
    weights = {}
    for name, inputs, outputs in zip(names, widths, widths[1:]):
        weights |= {f"{name}.weight": 2 * draw(inputs, outputs) / inputs**0.5, f"{name}.bias": 0.1 * draw(outputs)}
    if layer_norm:
        for i, width in enumerate(hidden):
            weights |= {f"norms.{i}.scale": 1 + 0.1 * draw(width), f"norms.{i}.shift": draw(width)}
    if normaliser:
        weights |= {"observation_mean": MEAN, "observation_std": STD}
    space = CHOICE if kind == "categorical" else SPACE
    return Policy(kind, weights, space, {"task": "somewhere", "rounds": 4})


def observations(rows=6, seed=1):
    return (MEAN + STD * np.random.default_rng(seed).normal(size=(rows, COLUMNS))).astype(np.float32)

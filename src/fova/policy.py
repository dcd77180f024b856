"""A trained policy as a person deploys it: raw observations in, raw actions out, NumPy only.

A policy is two files side by side: `NAME.safetensors` with the weights, the observation normaliser and the
action bounds, and `NAME.json` which says what they are. No training library is needed to run one.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from fova.errors import FovaError
from fova.machine.files import write_atomically
from fova.spaces import Space

Floats = NDArray[np.floating[Any]]
Kind = Literal["clipped", "squashed", "deterministic"]


class Normalised(Protocol):
    """The frame of observations: `fova.data.normalise.Normaliser`."""

    @property
    def mean(self) -> Floats: ...

    @property
    def std(self) -> Floats: ...


FORMAT = "fova-policy-1"
LOG_STD_RANGE = (-5.0, 2.0)


@dataclass(frozen=True)
class Policy:
    """`policy(observations)` gives the policy's best actions; `policy.sample(observations, rng)` random ones.

    Observations may have any leading axes, or none for a single one. Several policies of one shape can be
    stacked along a leading axis of every weight and run at once (`stack`).
    """

    kind: Kind
    weights: dict[str, Floats]  # see `_parameters_of` for the names
    facts: dict[str, Any] = field(default_factory=dict)  # where it comes from; not needed to run it

    def __call__(self, observations: ArrayLike) -> Floats:
        mean, _ = self._outputs(observations)
        return self._to_raw(np.tanh(mean))

    def sample(self, observations: ArrayLike, rng: np.random.Generator) -> Floats:
        """Actions drawn from the policy's distribution (for a deterministic policy: its actions)."""
        mean, log_std = self._outputs(observations)
        if log_std is None:
            return self._to_raw(np.tanh(mean))
        noise = np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)
        if self.kind == "squashed":
            return self._to_raw(np.tanh(mean + noise))
        return self._to_raw(np.clip(np.tanh(mean) + noise, -1.0, 1.0))

    def _outputs(self, observations: ArrayLike) -> tuple[Floats, Floats | None]:
        x: Floats = np.asarray(observations, np.float32)
        expected = self.weights["observation_mean"].shape[-1]
        if x.ndim == 0 or x.shape[-1] != expected:
            raise FovaError(f"The policy takes observations of {expected} numbers, but got shape {x.shape}.")
        single = x.ndim == 1
        x = np.atleast_2d(x)
        w = self.weights
        x = (x - _row(w["observation_mean"])) / _row(w["observation_std"])
        depth = sum(name.startswith("layers.") and name.endswith(".weight") for name in w)
        for i in range(depth):
            x = x @ w[f"layers.{i}.weight"] + _row(w[f"layers.{i}.bias"])
            if f"norms.{i}.scale" in w:
                centred = x - x.mean(axis=-1, keepdims=True)
                spread = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-5)
                x = centred / spread * _row(w[f"norms.{i}.scale"]) + _row(w[f"norms.{i}.shift"])
            x = np.maximum(x, 0.0)
        x = x @ w["last.weight"] + _row(w["last.bias"])
        x = x[..., 0, :] if single else x
        if self.kind == "deterministic":
            return x, None
        mean, log_std = np.split(x, 2, axis=-1)
        return mean, np.clip(log_std, *LOG_STD_RANGE)

    def _to_raw(self, action: Floats) -> Floats:
        low, high = self.weights["action_low"], self.weights["action_high"]
        if low.ndim > 1 and action.ndim > low.ndim - 1:
            low, high = _row(low), _row(high)
        return low + (action + 1.0) * 0.5 * (high - low)

    def copy(self) -> "Policy":
        """The same policy with weights of its own; those of a client's actor change as training goes on."""
        return replace(self, weights={name: weights.copy() for name, weights in self.weights.items()})

    # --- Files ---

    def save(self, path: str | Path) -> None:
        """Write `path` (ending in .safetensors) and the .json beside it; neither is ever half-written."""
        path = Path(path)
        description = {"format": FORMAT, "kind": self.kind, **self.facts}
        write_atomically(path, save({name: np.ascontiguousarray(v) for name, v in self.weights.items()}))
        write_atomically(path.with_suffix(".json"), (json.dumps(description, indent=2) + "\n").encode())


def _row(values: Floats) -> Floats:
    """A vector, or a stack of vectors, made to add to rows."""
    return values[..., None, :]


def stack(policies: list[Policy]) -> Policy:
    """Several policies of the same shape as one: observations [policies, batch, columns] in, actions out."""
    weights = {name: np.stack([p.weights[name] for p in policies]) for name in policies[0].weights}
    return replace(policies[0], weights=weights)


def from_actor(
    actor: Any,
    normaliser: Normalised,
    space: Space,
    **facts: Any,
) -> Policy:
    """The policy of a trained actor (`fova.networks`), with the frame it was trained in.

    An actor of any other class is refused: what its outputs mean as actions would have to be guessed.
    """
    from fova.networks import DeterministicActor, GaussianActor

    if isinstance(actor, GaussianActor):
        kind: Kind = actor.kind
    elif isinstance(actor, DeterministicActor):
        kind = "deterministic"
    else:
        raise FovaError(
            f"The algorithm's policy is a {type(actor).__name__}, which cannot be saved or played. Return a "
            "GaussianActor or a DeterministicActor of fova.networks from `policy`."
        )
    low, high = space.action.bounds
    weights = _parameters_of(actor.net) | {
        "observation_mean": np.asarray(normaliser.mean, np.float32),
        "observation_std": np.asarray(normaliser.std, np.float32),
        "action_low": low,
        "action_high": high,
    }
    return Policy(kind, weights, facts)


def _parameters_of(net: Any) -> dict[str, Floats]:
    named: dict[str, Any] = {"last.weight": net.last.weight, "last.bias": net.last.bias}
    for i, layer in enumerate(net.layers):
        named |= {f"layers.{i}.weight": layer.weight, f"layers.{i}.bias": layer.bias}
    for i, norm in enumerate(net.norms):
        named |= {f"norms.{i}.scale": norm.scale, f"norms.{i}.shift": norm.shift}
    return {name: np.asarray(value, np.float32) for name, value in named.items()}


def load_policy(path: str | Path) -> Policy:
    """The policy of a run directory, or of a `.safetensors` file with its `.json` beside it."""
    path = Path(path)
    if path.is_dir():
        path = path / "policy.safetensors"
    if not path.is_file():
        raise FovaError(f"There is no policy at {path}. Give a run directory or a policy's .safetensors file.")
    try:
        description = json.loads(path.with_suffix(".json").read_text())
        weights = load_file(path)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, SafetensorError) as error:
        raise FovaError(f"The policy {path} cannot be read: {error}") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise FovaError(f"{path.with_suffix('.json')} does not describe a {FORMAT} policy.")
    missing = {"observation_mean", "observation_std", "action_low", "action_high", "last.weight"} - set(weights)
    if missing or description.get("kind") not in ("clipped", "squashed", "deterministic"):
        raise FovaError(f"The policy {path} is incomplete: {', '.join(sorted(missing)) or 'kind'} is missing.")
    facts = {name: value for name, value in description.items() if name not in ("format", "kind")}
    return Policy(description["kind"], {name: np.asarray(w, np.float32) for name, w in weights.items()}, facts)

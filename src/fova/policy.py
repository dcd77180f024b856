"""A policy as a person deploys it: raw observations in, actions in the user's units out. NumPy only.

One class serves the policies that fova trains, the behaviour policies that make data, and stacks of either. A saved
policy is two files side by side: `NAME.safetensors` holds the weights and the observation normaliser, and
`NAME.json` holds the kind of policy, its space and where it comes from. No training library is needed to run one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fova.errors import FovaError
from fova.machine.files import as_file, insist_on_regular, write_atomically
from fova.recipe import Recipe, is_records
from fova.settings import SEEDS, Within, check_kinds, fill, shown
from fova.spaces import Box, Discrete, Space

Floats = NDArray[np.floating[Any]]
Actions = NDArray[Any]  # floats, or the integer codes of discrete actions
Kind = Literal["clipped", "squashed", "deterministic", "categorical"]
KINDS: tuple[Kind, ...] = get_args(Kind)

SUFFIX = ".safetensors"
FORMAT = "fova-policy-2"
OLD_FORMAT = "fova-policy-1"  # held the action bounds among the weights
DESCRIPTION = ("format", "kind", "space", "inputs", "log_std_range")  # what its .json says beside the facts
NORMALISER = ("observation_mean", "observation_std")

LOG_STD_RANGE = (-5.0, 2.0)
LARGEST_LOG_STD = 50.0
# The largest normalised observation. Single precision overflows inside the network when values are much larger.
LARGEST_INPUT = 1e15
LAYER_NORM_EPSILON = 1e-5


class Normalised(Protocol):
    """The statistics of observations: `fova.data.normalise.Normaliser`."""

    @property
    def mean(self) -> Floats: ...

    @property
    def std(self) -> Floats: ...


class _Layer(NamedTuple):
    """One layer; all vectors are shaped to be added to rows."""

    weight: Floats
    bias: Floats
    norm: tuple[Floats, Floats] | None  # scale and shift of the LayerNorm


@dataclass(frozen=True, repr=False)
class Policy:
    """`policy(observations)` gives the policy's best actions; `policy.sample(observations, rng)` random ones.

    Observations may have any leading axes, or none for a single one. Continuous actions have a last axis of their
    columns. Discrete actions are integer codes without one; `policy.space.action.names` has the name of each code.
    Several policies of one shape can be stacked along a leading axis of every weight and run at once (`stack`).
    A policy that was trained on tables also takes raw records: a mapping from column to value, a list of them, or a
    table.

    The weights are named `layers.0.weight`, `layers.0.bias`, ..., `last.weight`, `last.bias`. There may also be
    `norms.0.scale`, `norms.0.shift`, ... (LayerNorm), and `observation_mean` with `observation_std`. Without the
    latter the network takes raw observations.
    """

    kind: Kind
    weights: dict[str, Floats]
    space: Space
    facts: dict[str, Any] = field(default_factory=dict)  # where it comes from; not needed to run it
    inputs: Recipe | None = None  # how a raw record becomes an observation, if it was trained on tables
    log_std_range: tuple[float, float] = LOG_STD_RANGE  # a Gaussian's log-std is clipped to it

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise FovaError(f"A policy's kind is {self.kind!r}, but must be one of {', '.join(KINDS)}.")
        check_kinds(self, "of a policy")
        least, most = self.log_std_range if len(self.log_std_range) == 2 else (np.nan, np.nan)
        if not -LARGEST_LOG_STD <= least < most <= LARGEST_LOG_STD:
            raise FovaError(
                f"log_std_range is {list(self.log_std_range)}, but must be two rising numbers of at most "
                f"{LARGEST_LOG_STD:g} either way."
            )
        needed = Discrete if self.kind == "categorical" else Box
        if not isinstance(self.space.action, needed):
            raise FovaError(
                f"A {self.kind} policy acts in a {needed.__name__}, but its action space is {self.space.action!r}."
            )
        _insist_on_shapes(self)

    def __call__(self, observations: ArrayLike) -> Actions:
        outputs = self._outputs(observations)
        if self.kind == "categorical":
            return outputs.argmax(axis=-1)
        return self.space.action.from_unit(self._unit_actions(outputs, None))

    def sample(self, observations: ArrayLike, rng: np.random.Generator) -> Actions:
        """Actions drawn from the policy's distribution (for a deterministic policy: its actions)."""
        outputs = self._outputs(observations)
        if self.kind == "deterministic":
            return self.space.action.from_unit(self._unit_actions(outputs, None))
        try:
            if self.kind == "categorical":  # the largest logit plus Gumbel noise is a draw from the softmax
                return (outputs + rng.gumbel(size=outputs.shape)).argmax(axis=-1)
            noise = rng.standard_normal((*outputs.shape[:-1], self.space.action.size), np.float32)
        except (AttributeError, TypeError) as error:
            words = "but must be a Generator, such as numpy.random.default_rng(0)"
            raise FovaError(f"rng is {shown(rng)}, {words}.") from error
        return self.space.action.from_unit(self._unit_actions(outputs, noise))

    def probabilities(self, observations: ArrayLike) -> Floats:
        """The probability of each discrete action, in a last axis of `space.action.count` numbers."""
        if self.kind != "categorical":
            raise FovaError(f"A {self.kind} policy has continuous actions, which have no probabilities.")
        return _softmax(self._outputs(observations))

    def unit_actions(self, observations: ArrayLike, noise: Floats | None = None) -> Floats:
        """Continuous actions in [-1, 1], before they are scaled to the action space.

        `noise` holds a standard normal number for each number of the actions; None gives the best actions.
        """
        if self.kind == "categorical":
            raise FovaError("A categorical policy has discrete actions, which are not numbers in [-1, 1].")
        if noise is not None:
            noise = _as_floats(noise, "The noise")
            if noise.shape[-1:] != (self.space.action.size,):
                raise FovaError(
                    f"The noise has shape {noise.shape}, but needs {self.space.action.size} numbers per action."
                )
        return self._unit_actions(self._outputs(observations), noise)

    def __repr__(self) -> str:
        origin = " ".join(str(self.facts[name]) for name in ("algorithm", "task") if self.facts.get(name))
        layers = f"hidden layers {', '.join(map(str, self.hidden))}" if self.hidden else "no hidden layer"
        records = f", records of {', '.join(each.name for each in self.inputs.inputs)}" if self.inputs else ""
        return f"<{self.kind} policy{f' of {origin}' * bool(origin)}: {self.space.words()}{records}, {layers}>"

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(self.weights[f"layers.{i}.bias"].shape[-1] for i in range(_depth(self.weights)))

    def copy(self) -> "Policy":
        """The same policy with weights of its own; those of a client's actor change as training goes on."""
        return replace(self, weights={name: weights.copy() for name, weights in self.weights.items()})

    # --- The forward pass ---

    def _outputs(self, observations: Any) -> Floats:
        """The network's outputs, one row for each observation."""
        x = _as_floats(self._encoded(observations) if is_records(observations) else observations)
        if x.ndim == 0 or x.shape[-1] != self.space.observation:
            raise FovaError(
                f"The policy takes observations of {self.space.observation} numbers, but got shape {x.shape}."
            )
        rows = x[None] if x.ndim == 1 else x
        if self._normaliser is not None:
            mean, std = self._normaliser
            rows = (rows - mean) / std
        # One comparison refuses NaN, infinity and what would overflow.
        if not np.maximum.reduce(np.abs(rows), axis=None, initial=0.0) <= LARGEST_INPUT:
            raise _not_finite(x, rows)
        outputs = _forward(rows, self._layers)
        return outputs[..., 0, :] if x.ndim == 1 else outputs

    def _encoded(self, records: Any) -> Floats:
        if self.inputs is None:
            raise FovaError(
                f"This policy was not trained on tables, so it takes no records. Give {self.space.observation} "
                "numbers."
            )
        return self.inputs.observations(records)

    def _unit_actions(self, outputs: Floats, noise: Floats | None) -> Floats:
        if self.kind == "deterministic":
            return np.tanh(outputs)
        size = self.space.action.size
        mean = outputs[..., :size]
        if noise is None:
            return np.tanh(mean)
        least, most = self.log_std_range  # two plain operations take half the time of np.clip on a few rows
        deviation = np.exp(np.minimum(np.maximum(outputs[..., size:], least), most)) * noise
        if self.kind == "squashed":
            return np.tanh(mean + deviation)
        return np.minimum(np.maximum(np.tanh(mean) + deviation, -1.0), 1.0)

    @cached_property
    def _normaliser(self) -> tuple[Floats, Floats] | None:
        if NORMALISER[0] not in self.weights:
            return None
        mean, std = (_row(self.weights[name]) for name in NORMALISER)
        return mean, std

    @cached_property
    def _layers(self) -> list[_Layer]:
        # Views: a change of the weights in place is seen.
        def layer(name: str, norm: str) -> _Layer:
            w = self.weights
            scaling = (_row(w[f"{norm}.scale"]), _row(w[f"{norm}.shift"])) if f"{norm}.scale" in w else None
            return _Layer(w[f"{name}.weight"], _row(w[f"{name}.bias"]), scaling)

        return [*(layer(f"layers.{i}", f"norms.{i}") for i in range(_depth(self.weights))), layer("last", "none")]

    # --- Files ---

    def save(self, path: str | Path) -> None:
        """Write `path` (ending in .safetensors) and the .json beside it; neither is ever half-written."""
        path = as_file("path", path)
        if path.suffix != SUFFIX:
            raise FovaError(f"The policy's file is {path}, but its name must end in {SUFFIX}.")
        description: dict[str, Any] = {"format": FORMAT, "kind": self.kind, "space": self.space.to_json()}
        if self.inputs is not None:
            description["inputs"] = self.inputs.to_json()
        if self.log_std_range != LOG_STD_RANGE:
            description["log_std_range"] = self.log_std_range
        description |= {name: fact for name, fact in self.facts.items() if name not in description}
        try:
            about = json.dumps(description, indent=2, allow_nan=False) + "\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise FovaError(f"The policy's facts cannot be written as JSON: {error}.") from error
        write_atomically(path, save({name: np.ascontiguousarray(v) for name, v in self.weights.items()}))
        write_atomically(path.with_suffix(".json"), about.encode())


def _forward(x: Floats, layers: Sequence[_Layer]) -> Floats:
    """Linear, LayerNorm where there is one, ReLU; the last layer is linear only."""
    for weight, bias, norm in layers[:-1]:
        x = x @ weight
        x += bias
        if norm is not None:
            x = _layer_norm(x, *norm)
        np.maximum(x, 0.0, out=x)
    return x @ layers[-1].weight + layers[-1].bias


def _softmax(logits: Floats) -> Floats:
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def _layer_norm(x: Floats, scale: Floats, shift: Floats) -> Floats:
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + LAYER_NORM_EPSILON)
    return centred / spread * scale + shift


def _row(values: Floats) -> Floats:
    """A vector, or a stack of vectors, shaped to be added to rows."""
    return values[..., None, :]


def _depth(weights: dict[str, Floats]) -> int:
    """The number of hidden layers."""
    return sum(name.startswith("layers.") and name.endswith(".weight") for name in weights)


def _as_floats(observations: ArrayLike, what: str = "Observations") -> Floats:
    if isinstance(observations, np.ma.MaskedArray) and np.ma.is_masked(observations):
        raise FovaError(f"{what} hold masked values, and a policy needs every number. Fill them in.")
    try:
        given = np.asarray(observations)
        if given.dtype.kind in "USMmcV":  # texts, times and complex numbers become numbers of another meaning
            raise FovaError(f"{what} must be arrays of numbers, but hold {given.dtype}.")
        with np.errstate(over="ignore"):  # what becomes infinite is refused
            return given.astype(np.float32, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise FovaError(f"{what} must be arrays of numbers: {error}.") from error


def _not_finite(observations: Floats, rows: Floats) -> FovaError:
    """The error for observations that a network cannot take; `rows` are the same normalised."""
    bad = np.argwhere(~(np.abs(rows) <= LARGEST_INPUT).reshape(-1, rows.shape[-1]))
    row, column = bad[0]
    value = observations.reshape(-1, rows.shape[-1])[row % (observations.size // rows.shape[-1]), column]
    if np.isfinite(value):
        return FovaError(f"Column {column} of observation {row} is {value:g}, too large for this policy.")
    return FovaError(
        f"Observations must be finite numbers, but column {column} of observation {row} is {value:g}. "
        "Check the sensor or the simulator that gave it."
    )


def stack(policies: Sequence[Policy]) -> Policy:
    """Several policies of the same shape as one: observations [policies, batch, columns] in, actions out."""
    if not isinstance(policies, list | tuple) or not policies or not all(isinstance(p, Policy) for p in policies):
        raise FovaError(f"policies is {shown(policies)}, but must be a list of policies, one at least.")
    first = policies[0]
    shapes = {name: weights.shape for name, weights in first.weights.items()}
    for policy in policies[1:]:
        alike = all(getattr(policy, what) == getattr(first, what) for what in ("kind", "space", "log_std_range"))
        if not alike or {name: weights.shape for name, weights in policy.weights.items()} != shapes:
            raise FovaError(
                "Policies of different kinds, spaces, sizes of network or ranges of the log-std cannot be run as "
                "one."
            )
    return replace(first, weights={name: np.stack([p.weights[name] for p in policies]) for name in shapes})


# --- From a trained actor ---------------------------------------------------------------------------------


def from_actor(
    actor: Any, normaliser: Normalised | None, space: Space, inputs: Recipe | None = None, **facts: Any
) -> Policy:
    """The policy of a trained actor (`fova.networks`), with the statistics it was trained with.

    A normaliser of None says that the actor takes raw observations. `inputs` makes observations of records. Any
    other class of actor is refused: what its outputs mean as actions would have to be guessed.
    """
    from fova.networks import CategoricalActor, DeterministicActor, GaussianActor

    if isinstance(actor, GaussianActor):
        kind: Kind = actor.kind
    elif isinstance(actor, DeterministicActor):
        kind = "deterministic"
    elif isinstance(actor, CategoricalActor):
        kind = "categorical"
    else:
        raise FovaError(
            f"The algorithm's policy is a {type(actor).__name__}, which cannot be saved or played. Return a "
            "GaussianActor, a DeterministicActor or a CategoricalActor of fova.networks from `policy`."
        )
    named = _parameters_of(actor.net) | _with_log_std(actor)
    if normaliser is not None:
        named |= dict(zip(NORMALISER, (normaliser.mean, normaliser.std)))
    weights = {name: np.asarray(value, np.float32) for name, value in named.items()}
    log_std_range = actor.form.log_std_range if isinstance(actor, GaussianActor) else LOG_STD_RANGE
    return Policy(kind, weights, space, facts, inputs, log_std_range)


def to_actor(policy: Policy) -> Any:
    """The actor of `fova.networks` with the policy's weights: the inverse of `from_actor`.

    It takes normalised observations; the normaliser stays with the policy.
    """
    import equinox as eqx
    import jax

    from fova.networks import GaussianForm, make_actor

    kind = "clipped" if policy.kind == "categorical" else policy.kind  # a discrete space has one kind of actor
    layer_norm = any(name.startswith("norms.") for name in policy.weights)
    form = GaussianForm(policy.log_std_range)
    actor = make_actor(jax.random.key(0), policy.space, kind, policy.hidden, layer_norm, "fan_in", form)
    weights = [jax.numpy.asarray(policy.weights[name]) for name in _parameters_of(actor.net)]
    return eqx.tree_at(lambda made: list(_parameters_of(made.net).values()), actor, weights)


def _with_log_std(actor: Any) -> dict[str, Any]:
    """The last layer of an actor that trains numbers of its log-std, with these worked into it; else nothing."""
    if getattr(actor, "log_std", None) is None:
        return {}
    weight, bias, log_std = (np.array(part) for part in (actor.net.last.weight, actor.net.last.bias, actor.log_std))
    if actor.form.shared_std:
        columns = np.concatenate([weight, np.zeros_like(weight)], axis=-1)  # the state has no effect on the log-std
        return {"last.weight": columns, "last.bias": np.concatenate([bias, log_std], axis=-1)}
    multiplier, offset = (log_std[..., i, None] for i in range(2))  # [*stack, 1]
    size = bias.shape[-1] // 2
    weight[..., size:] *= multiplier[..., None]
    bias[..., size:] = multiplier * bias[..., size:] + offset
    return {"last.weight": weight, "last.bias": bias}


def _parameters_of(net: Any) -> dict[str, Any]:
    named: dict[str, Any] = {"last.weight": net.last.weight, "last.bias": net.last.bias}
    for i, layer in enumerate(net.layers):
        named |= {f"layers.{i}.weight": layer.weight, f"layers.{i}.bias": layer.bias}
    for i, norm in enumerate(net.norms):
        named |= {f"norms.{i}.scale": norm.scale, f"norms.{i}.shift": norm.shift}
    return named


# --- From a file ------------------------------------------------------------------------------------------


def load_policy(path: str | Path) -> Policy:
    """The policy of a run directory, or of a `.safetensors` file with its `.json` beside it."""
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise FovaError(
            f"The policy is {shown(path)}, but must be the path of a run directory or of a policy's file."
        )
    path = Path(path)
    if path.is_dir():
        path = path / "policy.safetensors"
    if not path.is_file() or path.suffix != SUFFIX:
        raise FovaError(f"There is no policy at {path}. Give a run directory or a policy's {SUFFIX} file.")
    try:
        text = insist_on_regular(path.with_suffix(".json")).read_text(encoding="utf-8")
        description = json.loads(text, parse_constant=_refuse_constant)
        weights = parse_weights(path.read_bytes())
        policy = _read(description, weights)
    except (OSError, ValueError, RecursionError, FovaError) as error:
        raise FovaError(f"The policy {path} cannot be read: {str(error).rstrip('.')}.") from error
    return policy


def _refuse_constant(name: str) -> None:
    raise ValueError(f"its .json holds {name}, which is no number")


@dataclass(frozen=True)
class Origin:
    """What fova itself notes about where a policy comes from. A program may note other facts beside these."""

    client: str | None = None
    rounds: Annotated[int | None, Within(0)] = None
    task: str | None = None
    algorithm: str | None = None
    seed: Annotated[int | None, SEEDS] = None
    judged: dict[str, Any] | None = None


def _read(description: Any, weights: dict[str, Floats]) -> Policy:
    """The policy that `save` wrote, or that an earlier version did; an error says what is wrong."""
    given = description.get("format") if isinstance(description, dict) else None
    if given == OLD_FORMAT:
        description = description | {"space": _old_space(weights).to_json()}
        weights = {name: values for name, values in weights.items() if name not in ("action_low", "action_high")}
    elif given != FORMAT:
        raise FovaError(f"its .json does not describe a {FORMAT} or {OLD_FORMAT} policy")
    facts = {name: fact for name, fact in description.items() if name not in DESCRIPTION}
    origin = {name: fact for name, fact in facts.items() if name in Origin.__dataclass_fields__}
    fill(Origin, origin, "of its .json")
    inputs = Recipe.from_json(description["inputs"]) if "inputs" in description else None
    log_std_range = description.get("log_std_range", LOG_STD_RANGE)
    space = Space.from_json(description.get("space"))
    policy = Policy(description.get("kind"), weights, space, facts, inputs, log_std_range)
    insist_on_sound_weights(policy)
    return policy


def _old_space(weights: dict[str, Floats]) -> Space:
    """The space of a fova-policy-1: its weights held the bounds of the actions."""
    missing = sorted({"observation_mean", "action_low", "action_high"} - set(weights))
    if missing:
        raise FovaError(f"{', '.join(missing)} is missing among its weights")
    low, high = weights["action_low"], weights["action_high"]
    return Space(weights["observation_mean"].size, Box.of(low.size, low, high))


def parse_weights(content: bytes) -> dict[str, Floats]:
    """The tensors of a safetensors file, in single precision."""
    try:
        return {name: np.asarray(values, np.float32) for name, values in load(content).items()}
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise FovaError(f"it is not a whole safetensors file ({error})") from error


def insist_on_sound_weights(policy: Policy) -> None:
    """Refuse weights that are missing, unknown, of the wrong shape, NaN or infinite."""
    if policy.inputs is not None and policy.inputs.width != policy.space.observation:
        raise FovaError(
            f"its records make {policy.inputs.width} numbers, but its observations have {policy.space.observation}"
        )
    for name, shape in _expected_shapes(policy).items():
        values = policy.weights[name]
        if values.shape != shape:
            raise _wrong_shape(policy, name, shape)
        if not np.isfinite(values).all() or (name == "observation_std" and not (values > 0.0).all()):
            raise FovaError(f"its {name} holds numbers that are NaN, infinite or, for a spread, not above 0")


def _insist_on_shapes(policy: Policy) -> None:
    """Refuse weights that are no arrays, missing, unknown or of a wrong shape. Policies may be stacked."""
    for name, values in policy.weights.items():
        if not isinstance(name, str) or not isinstance(values, np.ndarray) or values.dtype.kind != "f":
            raise FovaError(f"its weight {shown(name)} is {shown(values)}, but must be an array of numbers")
    shapes = _expected_shapes(policy)
    wrong = sorted(set(policy.weights) ^ set(shapes))
    if wrong:
        raise FovaError(f"its weights {', '.join(wrong)} are missing or unknown")
    for name, shape in shapes.items():
        if policy.weights[name].shape[-len(shape) :] != shape:
            raise _wrong_shape(policy, name, shape)


def _wrong_shape(policy: Policy, name: str, shape: tuple[int, ...]) -> FovaError:
    given = policy.weights[name].shape
    return FovaError(f"its {name} has shape {given}, but {shape} is needed for {policy.space.words()}")


def _expected_shapes(policy: Policy) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every weight, given the widths of the hidden layers and which optional parts there are."""
    weights, depth = policy.weights, _depth(policy.weights)
    biases = [weights[f"layers.{i}.bias"] for i in range(depth) if f"layers.{i}.bias" in weights]
    hidden = [bias.shape[-1] if bias.ndim else 0 for bias in biases]
    widths = [policy.space.observation, *hidden, _output_size(policy)]
    layers = [*(f"layers.{i}" for i in range(len(hidden))), "last"]
    shapes: dict[str, tuple[int, ...]] = {}
    for i, layer in enumerate(layers):
        shapes |= {f"{layer}.weight": (widths[i], widths[i + 1]), f"{layer}.bias": (widths[i + 1],)}
    if any(name.startswith("norms.") for name in weights):
        shapes |= {f"norms.{i}.{part}": (hidden[i],) for i in range(len(hidden)) for part in ("scale", "shift")}
    if any(name in weights for name in NORMALISER):
        shapes |= dict.fromkeys(NORMALISER, (policy.space.observation,))
    return shapes


def _output_size(policy: Policy) -> int:
    """The number of the network's outputs: logits, actions, or means with spreads."""
    if isinstance(policy.space.action, Discrete):
        return policy.space.action.count
    return policy.space.action.size * (1 if policy.kind == "deterministic" else 2)

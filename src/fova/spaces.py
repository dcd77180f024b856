"""Observation and action spaces, shared by data, networks, messages and policy files.

Continuous actions lie in a `Box`: networks return them in [-1, 1], and the space converts between this range and
the user's units. Discrete actions are codes of named choices, which need no conversion. NumPy only.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fova.errors import FovaError
from fova.settings import LARGEST, SMALLEST, check_kinds, shown

Floats = NDArray[np.float32]
# A network has one output for each discrete action. A column with more values than this is hardly a choice.
MOST_ACTIONS = 10_000


@dataclass(frozen=True)
class Box:
    """Continuous actions between bounds, with one pair of bounds for each column."""

    kind: ClassVar[str] = "box"

    low: tuple[float, ...]
    high: tuple[float, ...]

    @staticmethod
    def of(size: int, low: ArrayLike, high: ArrayLike) -> "Box":
        """A box of `size` columns; each bound is one number for all columns, or one number per column."""
        bounds = {"action_low": _numbers(low), "action_high": _numbers(high)}
        for name, bound in bounds.items():
            if bound.shape not in ((), (1,), (size,)):
                raise FovaError(
                    f"{name} has {bound.size} numbers, but actions have {size}. Give one, or one per column."
                )
        lower, upper = (np.broadcast_to(bound, (size,)) for bound in bounds.values())
        if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            raise FovaError(f"Action bounds must be finite numbers, but are {lower} and {upper}.")
        if not (lower < upper).all():
            raise FovaError(f"action_low {lower} must be below action_high {upper} in every column.")
        widths = upper.astype(np.float64) - lower
        if not ((widths >= SMALLEST) & (widths <= LARGEST)).all():
            raise FovaError(
                f"Action bounds must be {SMALLEST:g} to {LARGEST:g} apart, because training computes in single "
                f"precision, but are {lower} and {upper}. Give the actions in another unit."
            )
        return Box(tuple(lower.tolist()), tuple(upper.tolist()))

    @property
    def size(self) -> int:
        """Number of columns of an action."""
        return len(self.low)

    @cached_property
    def bounds(self) -> tuple[Floats, Floats]:
        """Lowest and highest action as read-only arrays, [size] each."""
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        low.flags.writeable = high.flags.writeable = False
        return low, high

    def to_unit(self, actions: Floats) -> Floats:
        """Actions converted from the user's units to [-1, 1], clipped to the bounds."""
        low, high = self.bounds
        return np.clip((actions - low) / (0.5 * (high - low)) - 1.0, -1.0, 1.0)

    def from_unit(self, actions: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Actions converted from [-1, 1] to the user's units."""
        low, high = self.bounds
        return low + (actions + 1.0) * 0.5 * (high - low)

    def words(self) -> str:
        return f"{self.size} action {'column' if self.size == 1 else 'columns'}"


def _numbers(bound: ArrayLike) -> Floats:
    """A bound as an array. A text is no number, even if it looks like one."""
    try:
        given = np.asarray(bound)
        if given.dtype.kind not in "fiubO":
            raise TypeError(f"it holds {given.dtype}")
        with np.errstate(over="ignore"):  # such a bound is refused later
            return given.astype(np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise FovaError(f"An action bound is {shown(bound)}, but must be numbers: {error}.") from error


@dataclass(frozen=True)
class Discrete:
    """A choice among named actions. In data an action is its code, a whole number from 0 to count - 1."""

    kind: ClassVar[str] = "discrete"
    size: ClassVar[int] = 1
    """Number of columns of an action in data: its code, as a float."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.names, tuple) or not all(
            isinstance(name, str) and name.strip() for name in self.names
        ):
            raise FovaError(
                f"The names of discrete actions must be texts that are not empty, but are {self.names!r}."
            )
        if not 2 <= len(self.names) <= MOST_ACTIONS:
            raise FovaError(
                f"A discrete action space has {len(self.names)} actions, but needs 2 to {MOST_ACTIONS}."
            )
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise FovaError(f"Two discrete actions are called {twice!r}. Give each its own name.")

    @staticmethod
    def numbered(count: int) -> "Discrete":
        """`count` actions whose names are their codes."""
        return Discrete(tuple(str(code) for code in range(count)))

    @property
    def count(self) -> int:
        """Number of actions to choose from."""
        return len(self.names)

    def to_unit(self, actions: Floats) -> Floats:
        """The codes as they are: networks take them so."""
        return actions

    def from_unit(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The codes as they are."""
        return actions

    def words(self) -> str:
        return f"{self.count} discrete actions"


ActionSpace = Box | Discrete


@dataclass(frozen=True)
class Space:
    """The number of observation columns, and the action space. Hashable."""

    observation: int
    action: ActionSpace

    def __post_init__(self) -> None:
        check_kinds(self, "of a space")
        if self.observation < 1:
            raise FovaError(f"A space has {self.observation} observation columns, but needs at least 1.")

    @staticmethod
    def unit(observation: int, action: int) -> "Space":
        """A space of `observation` columns and `action` continuous actions in [-1, 1]."""
        return Space(observation, Box((-1.0,) * action, (1.0,) * action))

    def words(self) -> str:
        columns = "column" if self.observation == 1 else "columns"
        return f"{self.observation} observation {columns} and {self.action.words()}"

    # --- As plain values, for messages and files ---

    def to_json(self) -> dict[str, Any]:
        return {"observation": self.observation, "action": _action_to_json(self.action)}

    @staticmethod
    def from_json(content: Any) -> "Space":
        """The space that `to_json` wrote. Anything else, including an unknown kind of action, is refused."""
        try:
            observation, action = content["observation"], _action_from_json(content["action"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FovaError(f"{shown(content)} does not describe a space of observations and actions.") from error
        if type(observation) is not int or observation < 1 or action.size < 1:
            raise FovaError(f"{shown(content)} does not describe a space: observations and actions need columns.")
        return Space(observation, action)


def _action_to_json(action: ActionSpace) -> dict[str, Any]:
    if isinstance(action, Discrete):
        return {"kind": action.kind, "names": list(action.names)}
    return {"kind": action.kind, "low": list(action.low), "high": list(action.high)}


def _action_from_json(content: Any) -> ActionSpace:
    if content["kind"] == Discrete.kind:
        return Discrete(tuple(content["names"]))
    if content["kind"] == Box.kind:
        return Box.of(len(content["low"]), content["low"], content["high"])
    raise FovaError(
        f"The action space is of kind {content['kind']!r}, but this version of fova knows {Box.kind!r} and "
        f"{Discrete.kind!r} only."
    )

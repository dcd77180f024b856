"""Whether logged actions are codes of discrete actions or continuous numbers. What is not clear is asked for.

A column of integers holds codes. A column of decimal numbers holds quantities, unless all of them are whole and few
are different: then the user has to say which. This module accesses no files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.spaces import MOST_ACTIONS, Discrete

ActionKind = Literal["auto", "discrete", "continuous"]
FEW = 50  # a column with at most so many different whole numbers may hold codes

CHOICES = (
    "If the numbers are codes of actions (0, 1, 2, ...), say --actions discrete. If they are quantities, of which "
    "values in between make sense, say --actions continuous and give their bounds (--action-low, --action-high)."
)


@dataclass(frozen=True)
class LoggedActions:
    """The actions of one source, and what it declares about them."""

    values: NDArray[Any]  # [rows, columns]
    integers: bool = False  # stored as integers
    names: tuple[str, ...] | None = None  # of discrete actions
    bounded: bool = False  # bounds are declared
    quantities: bool = False  # the source says that decimal numbers are quantities: a Minari dataset does


def discrete_actions(
    sources: Mapping[str, LoggedActions],
    kind: ActionKind = "auto",
    names: tuple[str, ...] = (),
    bounded: bool = False,
) -> Discrete | None:
    """The discrete actions that all sources share, or None if actions are continuous.

    `kind` and `names` are what the user says about the actions. `bounded` tells whether the user gave bounds.
    """
    if kind == "continuous":
        if names:
            raise FovaError("action_names are given, but actions are said to be continuous. Leave one of them out.")
        return None
    declared = agreed_names(sources, names)
    if kind == "auto" and not declared and not _are_codes(sources, bounded):
        return None
    if bounded:
        raise FovaError("Action bounds are given, but actions are discrete. Leave action_low and action_high out.")
    for name, source in sources.items():
        if source.values.ndim != 2 or source.values.shape[1] != 1:
            raise FovaError(_several(name, source))
    return Discrete(declared) if declared else Discrete.numbered(_count(sources))


def agreed_names(
    sources: Mapping[str, LoggedActions], given: tuple[str, ...] = (), whose: str = "action_names"
) -> tuple[str, ...]:
    """The names of the actions that are given or that the sources declare; empty if there are none.

    `whose` says in an error where the given names come from.
    """
    agreed = given
    for name, source in sources.items():
        if source.names is None:
            continue
        if agreed and source.names != agreed:
            raise FovaError(
                f"{name} has the actions {_listed(source.names)}, but {whose} has {_listed(agreed)}. All clients "
                "need the same actions in the same order."
            )
        if not agreed:
            agreed, whose = source.names, name
    return agreed


def _are_codes(sources: Mapping[str, LoggedActions], bounded: bool) -> bool:
    """Whether actions without names are codes. An error if this cannot be told."""
    whole = [name for name, source in sources.items() if source.integers or _may_be_codes(source)]
    if len(whole) < len(sources):
        mixed = [name for name in whole if sources[name].integers]
        if mixed:
            other = next(name for name in sources if name not in whole)
            raise FovaError(f"The actions of {mixed[0]} are integers, but those of {other} are not. {CHOICES}")
        return False
    first, source = next(iter(sources.items()))
    if not all(source.integers for source in sources.values()):
        different = len(np.unique(np.concatenate([np.unique(source.values) for source in sources.values()])))
        raise FovaError(f"The actions of {first} are whole numbers, {different} different ones. {CHOICES}")
    if source.values.shape[1] > 1:
        raise FovaError(_several(first, source))
    if bounded or any(source.bounded for source in sources.values()):
        raise FovaError(f"The actions of {first} are integers, and bounds are declared for them. {CHOICES}")
    return True


def _may_be_codes(source: LoggedActions) -> bool:
    """Whether one column of decimal numbers holds at least two different ones, few and all whole."""
    values = source.values
    if source.quantities or values.ndim != 2 or values.shape[1] != 1:
        return False
    different = np.unique(values[: 10 * FEW])  # most data shows within a few rows that it is continuous
    if len(different) <= FEW and (different == np.floor(different)).all():
        different = np.unique(values)
    return 2 <= len(different) <= FEW and bool((different == np.floor(different)).all())


def _count(sources: Mapping[str, LoggedActions]) -> int:
    """Number of actions if codes count from 0: the largest code of any source, plus 1."""
    largest = {name: _largest_code(name, source.values) for name, source in sources.items()}
    if max(largest.values()) < 1:
        raise FovaError(
            "All actions have the code 0, so there is nothing to choose. Name all actions: --action-names"
        )
    name = max(largest, key=lambda name: largest[name])
    if largest[name] >= MOST_ACTIONS:
        raise FovaError(
            f"The actions of {name} are integers up to {largest[name]:,}, but there can be at most "
            f"{MOST_ACTIONS:,} discrete actions. {CHOICES}"
        )
    return largest[name] + 1


def _largest_code(name: str, values: NDArray[Any]) -> int:
    wrong = np.flatnonzero(
        ~(np.isfinite(values[:, 0]) & (values[:, 0] >= 0) & (values[:, 0] == np.floor(values[:, 0])))
    )
    if len(wrong):
        raise FovaError(
            f"The actions of {name} are discrete, but row {wrong[0]} holds {values[wrong[0], 0]:g}. Number the "
            "actions 0, 1, 2 and so on."
        )
    return int(values.max())


def _several(name: str, source: LoggedActions) -> str:
    return (
        f"The actions of {name} are {source.values.shape[-1]} columns of integers, but one discrete action per "
        "step is needed. Number the combinations in one column. If these are quantities, say --actions continuous "
        "and give their bounds (--action-low, --action-high)."
    )


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")

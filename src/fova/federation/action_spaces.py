"""The action space that all clients of a federation share."""

from collections.abc import Mapping

from numpy.typing import ArrayLike

from fova.data.action_kind import ActionKind, agreed_names, discrete_actions
from fova.data.sources import Source
from fova.errors import FovaError
from fova.spaces import ActionSpace, Box, Discrete

Bounds = tuple[ArrayLike, ArrayLike] | None


def agreed_actions(
    found: Mapping[str, Source],
    action: ActionSpace | None,
    bounds: Bounds,
    kind: ActionKind,
    names: tuple[str, ...],
) -> ActionSpace | None:
    """The action space of all sources; None if their actions are continuous and none is given."""
    logged = {name: source.logged_actions for name, source in found.items()}
    if isinstance(action, Discrete):
        agreed_names(logged, action.names)
        return action
    discrete = discrete_actions(logged, kind, names, bounds is not None)
    if action is not None and discrete is not None:
        raise FovaError(
            f"The actions are discrete ({discrete.words()}), but {action.words()} of numbers are expected."
        )
    return action or discrete


def declared_bounds(found: Mapping[str, Source]) -> Bounds:
    """The bounds that the sources declare. Different ones are refused: a number would not mean the same action."""
    declared = {
        name: (tuple(source.action_low.tolist()), tuple(source.action_high.tolist()))
        for name, source in found.items()
        if source.action_low is not None and source.action_high is not None
    }
    first = next(iter(declared), "")
    for name, given in declared.items():
        if given != declared[first]:
            raise FovaError(
                f"{name} declares other bounds of the actions than {first}: {given} and {declared[first]}. Say "
                f"which apply: --action-low and --action-high."
            )
    return next(iter(declared.values()), None)


def bounded(action: ActionSpace, bounds: tuple[ArrayLike, ArrayLike]) -> Box:
    """The continuous action space with other bounds."""
    if isinstance(action, Discrete):
        raise FovaError("Action bounds are given, but actions are discrete. Leave action_low and action_high out.")
    return Box.of(action.size, *bounds)

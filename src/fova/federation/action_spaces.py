"""The action space that all clients of a federation share."""

from collections.abc import Mapping

from numpy.typing import ArrayLike

from fova.data.action_kind import ActionKind, agreed_names, discrete_actions
from fova.data.sources import Source
from fova.errors import FovaError
from fova.settings import shown
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
    if kind == "auto" and all(_are_quantities(source) for source in found.values()):
        kind = "continuous"
    if isinstance(action, Discrete):
        agreed_names(logged, action.names)
        return action
    _refuse_codes_of_choices(found, kind)
    discrete = discrete_actions(logged, kind, names, bounds is not None)
    if action is not None and discrete is not None:
        raise FovaError(
            f"The actions are discrete ({discrete.words()}), but {action.words()} of numbers are expected."
        )
    return action or discrete


def _are_quantities(source: Source) -> bool:
    """Whether the source is a table whose columns say that actions are numbers."""
    return source.action_columns is not None and source.action_names is None


def _refuse_codes_of_choices(found: Mapping[str, Source], kind: ActionKind) -> None:
    """Refuse continuous actions if a table's action column was read as choices: their codes are not quantities."""
    for name, source in found.items():
        if kind == "continuous" and source.action_columns is not None and source.action_names is not None:
            column = source.action_columns[0]
            raise FovaError(
                f"{name}: {column} is read as a choice, but actions are said to be continuous. If it holds "
                f"quantities, say so in the columns: numbers={column}"
            )


def insist_on_actions(
    task: str, action: ActionSpace, found: Mapping[str, Source], kind: ActionKind, names: tuple[str, ...]
) -> None:
    """Refuse discrete actions or action names of the user or the sources that differ from the task's."""
    logged = {name: source.logged_actions for name, source in found.items() if source.action_columns is None}
    if isinstance(action, Discrete):
        agreed_names(logged, action.names, task)
        if names and names != action.names:
            raise FovaError(
                f"action_names are given, but {task} has names of its own: {', '.join(action.names[:12])} ... "
                "Leave action_names out."
            )
        if kind == "continuous":
            raise FovaError(
                f"{task} has {action.words()}, but continuous actions are asked for. Leave --actions out."
            )
        return
    named = next((name for name, each in logged.items() if each.names), None)
    if kind == "discrete" or names or named:
        said = f"the actions of {named} have names" if named else "discrete actions are asked for"
        raise FovaError(f"{task} has {action.words()} of numbers, but {said}. Leave --task out, or take another.")


def declared_bounds(found: Mapping[str, Source]) -> Bounds:
    """The bounds that all sources declare. Different ones are refused: the same number would be another action."""
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
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        raise FovaError(f"bounds is {shown(bounds)}, but must be a pair: the lowest and the highest action.")
    if isinstance(action, Discrete):
        raise FovaError("Action bounds are given, but actions are discrete. Leave action_low and action_high out.")
    return Box.of(action.size, *bounds)

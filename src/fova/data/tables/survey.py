"""What the clients agree on before the first round: vocabularies, means and the names of actions.

Each client tells what the agreement needs about its own table (`survey`): the kind of every column, the set of
values of each category, and a count and a sum of each column whose mean stands in for missing values. The server
derives one recipe for all (`agree`). A vocabulary or mean that the user gives in the mapping is not asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from fova.data.tables.columns import Columns
from fova.data.tables.logged import Logged
from fova.data.tables.values import MOST_CATEGORIES, Coded, by_number
from fova.errors import FovaError
from fova.recipe import Input, Recipe, as_number
from fova.spaces import ActionSpace, Discrete

Kind = Literal["number", "category", "empty"]
KINDS = ("number", "category", "empty")
MOST_LISTED = 25  # names of actions in a message
NO_STATISTICS = "under privacy clients tell nothing about their data. In a configuration file, give {what}"


@dataclass(frozen=True)
class Told:
    """What a client tells about one column."""

    kind: Kind  # empty: the column has no value at all
    values: tuple[str, ...] = ()  # of a category whose vocabulary is agreed
    count: int = 0  # of known numbers, if their mean stands in for missing ones
    total: float = 0.0


@dataclass(frozen=True)
class Survey:
    """What a client tells about its table: one entry per column, never a row."""

    inputs: Mapping[str, Told]
    actions: Mapping[str, Told]

    def to_json(self) -> dict[str, Any]:
        return {part: {name: asdict(told) for name, told in getattr(self, part).items()} for part in PARTS}

    @staticmethod
    def from_json(content: Any) -> "Survey":
        """The survey that `to_json` wrote; anything else is refused."""
        try:
            return Survey(*({str(n): _told(told) for n, told in content[part].items()} for part in PARTS))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FovaError("its survey of columns cannot be read") from error


PARTS = ("inputs", "actions")


def _told(content: Mapping[str, Any]) -> Told:
    told = Told(content["kind"], tuple(content["values"]), int(content["count"]), float(content["total"]))
    if told.kind not in KINDS or not all(isinstance(value, str) for value in told.values):
        raise ValueError(told)
    if told.count < 0 or not np.isfinite(told.total) or len(told.values) > MOST_CATEGORIES:
        raise ValueError(told)
    return told


@dataclass(frozen=True)
class Agreement:
    """What all clients agree on: how observations are made, and what the actions are."""

    recipe: Recipe
    actions: tuple[str, ...]  # columns of numbers, or the one column of choices
    choices: tuple[str, ...] | None  # the names of discrete actions; None: continuous

    def to_json(self) -> dict[str, Any]:
        choices = None if self.choices is None else list(self.choices)
        return {"inputs": self.recipe.to_json(), "actions": list(self.actions), "choices": choices}

    @staticmethod
    def from_json(content: Any) -> "Agreement":
        try:
            choices = content["choices"]
            return Agreement(
                Recipe.from_json(content["inputs"]),
                tuple(map(str, content["actions"])),
                None if choices is None else tuple(map(str, choices)),
            )
        except (KeyError, TypeError) as error:
            raise FovaError(f"{content!r} does not describe an agreement on columns.") from error


# --- A client's part ---------------------------------------------------------------------------------------


def survey(table: Logged, columns: Columns) -> Survey:
    """What a client tells about its table. The client computes it on its own data."""
    inputs = {name: _about(column, name, table.treatments[name], columns) for name, column in table.inputs.items()}
    if isinstance(table.actions, Coded):
        (name,) = table.action_columns
        values = () if columns.categories.get(name) else table.actions.names
        return Survey(inputs, {name: Told("category", values)})
    return Survey(inputs, {name: Told("number") for name in table.action_columns})


def _about(column: Any, name: str, treatment: tuple[str, float | None], columns: Columns) -> Told:
    if isinstance(column, Coded):
        return Told("category", () if columns.categories.get(name) else column.names)
    known = ~np.isnan(column)
    if not known.any():
        return Told("empty")
    way, mean = treatment
    if "mean" in way and mean is None:
        return Told("number", (), int(known.sum()), float(np.sum(column, where=known, dtype=np.float64)))
    return Told("number")


# --- The server's part -------------------------------------------------------------------------------------


def agree(surveys: Mapping[str, Survey], columns: Columns) -> Agreement:
    """One recipe for all clients, from what each of them told. The order of the clients does not matter."""
    first = _insist_on_one_layout(surveys)
    inputs = tuple(
        _input(name, {client: told.inputs[name] for client, told in surveys.items()}, columns)
        for name in first.inputs
    )
    kinds = {client: {told.kind for told in each.actions.values()} for client, each in surveys.items()}
    odd = next((client for client in kinds if kinds[client] != kinds[min(surveys)]), None)
    if odd is not None:
        raise FovaError(
            f"The action is a choice at one of the clients {min(surveys)!r} and {odd!r}, and a number at the "
            "other. Store it in the same way at all clients, or say what it is: categories=... or numbers=..."
        )
    if {"category"} != next(iter(kinds.values())):
        return Agreement(Recipe(inputs), tuple(first.actions), None)
    (name,) = first.actions
    return Agreement(Recipe(inputs), (name,), _choices(name, surveys, columns))


def stated(columns: Columns) -> Agreement:
    """The agreement where clients tell nothing: all of it must be in the mapping itself."""
    for name in (*columns.observations, *columns.action):
        if any(sign in name for sign in "*?["):
            raise FovaError(f"{name!r} is a pattern, but {NO_STATISTICS.format(what='the names of all columns')}.")
    for name, values in columns.categories.items():
        if values is None:
            raise FovaError(f"{name}: {NO_STATISTICS.format(what='its values, as in categories.ward = [...]')}.")
    inputs = tuple(_input(name, {}, columns) for name in columns.observations)
    choices = columns.categories.get(columns.action[0])
    if len(columns.action) > 1 and any(name in columns.categories for name in columns.action):
        raise FovaError("Several choices at once are not supported: join the action columns into one.")
    return Agreement(Recipe(inputs), columns.action, choices)


def for_task(agreed: Agreement, task: str, action: ActionSpace) -> Agreement:
    """The agreement with choices in the order of a task's actions. Actions that the task does not have are refused.

    Choices are the task's by name, or all of them are codes, whole numbers that count the task's actions from 0 on.
    """
    if agreed.choices is None:
        return agreed
    (column,) = agreed.actions
    if not isinstance(action, Discrete):
        raise FovaError(
            f"{column}: it is read as a choice among {len(agreed.choices)} actions ({_listed(agreed.choices)}), "
            f"but {task} has {action.words()} of numbers. If it holds quantities, add numbers={column}."
        )
    codes = Discrete.numbered(action.count).names
    for names in (action.names, codes):
        if set(agreed.choices) <= set(names):
            return replace(agreed, choices=names)
    strange = [name for name in agreed.choices if name not in action.names]
    wrong = next((name for name in strange if name not in codes), strange[0])
    raise FovaError(
        f"{column}: it holds {wrong!r}, which is no action of {task}. Its {action.count} actions are "
        f"{_listed(action.names)}. Use these names, or their codes 0 to {action.count - 1} in this order."
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_LISTED]) + (", ..." if len(names) > MOST_LISTED else "")


def _insist_on_one_layout(surveys: Mapping[str, Survey]) -> Survey:
    names = sorted(surveys)
    first = surveys[names[0]]
    for client in names[1:]:
        for part in PARTS:
            here, there = getattr(surveys[client], part), getattr(first, part)
            for has, lacks, name in (
                *((client, names[0], name) for name in here if name not in there),
                *((names[0], client, name) for name in there if name not in here),
            ):
                raise FovaError(
                    f"Client {has!r} has the column {name!r}, but client {lacks!r} does not. All clients need the "
                    "same columns: name the ones to use, or leave this one out of the pattern."
                )
    return first


def _input(name: str, told: Mapping[str, Told], columns: Columns) -> Input:
    kinds = {about.kind for about in told.values()} - {"empty"}
    if len(kinds) > 1:
        number = next(client for client, about in sorted(told.items()) if about.kind == "number")
        text = next(client for client, about in sorted(told.items()) if about.kind == "category")
        raise FovaError(
            f"{name}: it holds numbers at client {number!r} and text at client {text!r}. Store it in the same way "
            f"at all clients, or add categories={name} if the numbers are codes."
        )
    way, mean = columns.treatment(name)
    if name in columns.categories or kinds == {"category"}:
        given = columns.categories.get(name)
        values = {value for about in told.values() for value in about.values}
        vocabulary = given or tuple(sorted(values, key=by_number))
        return Input(name, way, None, vocabulary, columns.na or ())  # type: ignore[arg-type]
    if "mean" in way and mean is None:
        count = sum(about.count for about in told.values())
        if not told:
            raise FovaError(f"{name}: {NO_STATISTICS.format(what=f'its mean, as in {name} = mean:1.8')}.")
        if not count:
            raise FovaError(f"{name}: no client has a single value of it, so it has no mean. Leave the column out.")
        # Sums are added in the order of the clients' names, so that every engine rounds alike.
        mean = sum(told[client].total for client in sorted(told)) / count
    marks = tuple(text for text in columns.na or () if as_number(text) is not None)
    single = None if mean is None else float(np.float32(mean))
    return Input(name, way, single, na=marks)  # type: ignore[arg-type]


def _choices(name: str, surveys: Mapping[str, Survey], columns: Columns) -> tuple[str, ...]:
    given = columns.categories.get(name)
    if given:
        return given
    values = {value for each in surveys.values() for value in each.actions[name].values}
    return tuple(sorted(values, key=by_number))

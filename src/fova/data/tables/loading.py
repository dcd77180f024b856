"""Tables of all clients at once: read each, agree on one recipe, encode each by it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fova.data.cutting import lay_out, notes_on_missing_observations
from fova.data.fields import fault
from fova.data.sources import Source
from fova.data.tables.columns import Columns
from fova.data.tables.logged import Logged, read
from fova.data.tables.survey import Agreement, Survey, agree, for_task, stated, survey
from fova.data.tables.values import Coded
from fova.data.transitions import Floats
from fova.recipe import Recipe
from fova.spaces import ActionSpace


class Trained(NamedTuple):
    """How a trained policy sees records: nothing about them is left to agree on."""

    recipe: Recipe
    choices: tuple[str, ...] | None  # the names of discrete actions; None: continuous


@dataclass(frozen=True)
class TableReader:
    """Reads the tables of a federation by one mapping."""

    columns: Columns
    private: bool = False  # clients tell nothing, so the mapping must say everything
    agreed: Agreement | None = None  # over a network: what the server derived for all clients
    trained: Trained | None = None  # tables that are new to a policy: how it sees records
    task: tuple[str, ActionSpace] | None = None  # the name and the actions of the task, if there is one

    def load(
        self, tables: Mapping[str, Any], tell: Callable[[str], None] = lambda message: None
    ) -> tuple[Agreement, dict[str, Source]]:
        """The data of every table, encoded alike. `tables` maps a name to a file or a table in memory."""
        logged: dict[str, Logged] = {}
        for name, table in tables.items():
            tell(f"reading {name}")
            logged[name] = read(table, self.columns, name)
        agreed = self._agreement(logged)
        if self.task is not None:
            agreed = for_task(agreed, *self.task)
        return agreed, {name: encoded(logged.pop(name), agreed) for name in list(logged)}

    def _agreement(self, logged: Mapping[str, Logged]) -> Agreement:
        if self.agreed is not None:
            return self.agreed
        if self.trained is not None:
            columns = next(iter(logged.values())).action_columns
            return Agreement(self.trained.recipe, columns, self.trained.choices)
        return stated(self.columns) if self.private else agree(surveys(logged, self.columns), self.columns)


def surveys(logged: Mapping[str, Logged], columns: Columns) -> dict[str, Survey]:
    """What each client tells about its table."""
    return {name: survey(table, columns) for name, table in logged.items()}


def encoded(table: Logged, agreed: Agreement) -> Source:
    """A client's transitions by what all clients agreed on. The table is used up."""
    _insist_on_inputs(table, agreed)
    actions = _actions(table, agreed)
    observations = table.encode(agreed.recipe.inputs)
    notes = [*table.notes, *notes_on_missing_observations(table.terminals, table.ends)]
    data = lay_out(observations, actions, table.rewards, table.terminals, table.ends, None)
    if not len(data):
        raise fault(table.name, "", "every episode is a single row that was cut off, so no complete step is left.")
    return Source(
        table.name,
        table.format,
        data,
        tuple(notes),
        action_names=agreed.choices,
        observation_columns=tuple(agreed.recipe.places()),
        action_columns=agreed.actions,
        order_is_known=table.has_times,
    )


def _insist_on_inputs(table: Logged, agreed: Agreement) -> None:
    for each in agreed.recipe.inputs:
        column = table.inputs.get(each.name)
        if column is None:
            raise fault(table.name, each.name, "is missing, but all clients agreed on this column.")
        if not isinstance(column, Coded) and np.isnan(column).all():
            continue  # a column without a value has any kind
        if isinstance(column, Coded) != (each.categories is not None):
            kinds = ("numbers", "categories") if each.categories is None else ("categories", "numbers")
            raise fault(table.name, each.name, f"holds {kinds[1]}, but all clients agreed on {kinds[0]}.")
    for name in table.inputs:
        if name not in {each.name for each in agreed.recipe.inputs}:
            raise fault(table.name, name, "is a column that the clients did not agree on. Leave it out.")


def _actions(table: Logged, agreed: Agreement) -> Floats:
    if agreed.choices is None:
        if isinstance(table.actions, Coded) or table.action_columns != agreed.actions:
            raise fault(
                table.name, ", ".join(table.action_columns), "is not the action that all clients agreed on."
            )
        return table.actions
    if not isinstance(table.actions, Coded):
        raise fault(
            table.name, ", ".join(table.action_columns), "holds numbers, but all clients agreed on choices."
        )
    unknown = [name for name in table.actions.names if name not in agreed.choices]
    if unknown:
        listed = ", ".join(agreed.choices[:12])
        raise fault(table.name, agreed.actions[0], f"holds {unknown[0]!r}, which is none of the actions: {listed}.")
    place = np.array([agreed.choices.index(name) for name in table.actions.names], np.float32)
    return place[table.actions.codes][:, None]

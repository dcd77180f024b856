"""A client's table, read and checked: rows in order, every column in its role, nothing encoded yet.

The encoding of categories and missing values is agreed by all clients (`survey.py`). A client's own part is here:
read its table (`read`), then encode it by what was agreed (`loading.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fova.data.action_kind import FEW
from fova.data.fields import counted, fault, shown
from fova.data.tables import values
from fova.data.tables.arrow import Columnar, is_text, open_table
from fova.data.tables.columns import Columns, Resolved
from fova.data.tables.ordering import Flags, Ordered, ordered
from fova.data.tables.values import Coded
from fova.data.transitions import Floats
from fova.errors import FovaError
from fova.recipe import NO_VALUE, Input, Missing

SENTINELS = (-99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0)
LEAST_GAP = 10.0  # between such a number and all others


@dataclass
class Logged:
    """The rows of a table in order. `inputs` is emptied when the table is encoded, to save memory."""

    name: str
    format: str
    inputs: dict[str, Floats | Coded]  # numbers with NaN where one is missing, or categories
    actions: Floats | Coded  # [rows, action], or choices
    action_columns: tuple[str, ...]
    rewards: Floats
    terminals: Flags
    ends: Flags
    starts: NDArray[np.int64]
    treatments: dict[str, tuple[Missing, float | None]]
    notes: list[str]
    has_times: bool = True  # a column orders the rows of an episode

    def __len__(self) -> int:
        return len(self.rewards)

    def encode(self, inputs: Sequence[Input]) -> Floats:
        """The observations by an agreed recipe, [rows, width]."""
        observations = np.empty((len(self), sum(each.width for each in inputs)), np.float32)
        start = 0
        for each in inputs:
            column = self.inputs.pop(each.name)
            self._note_unknown(each, column)
            each.fill(_recoded(each, column), observations[:, start : start + each.width])
            start += each.width
        return observations

    def _note_unknown(self, each: Input, column: Floats | Coded) -> None:
        if not isinstance(column, Coded) or each.categories is None:
            return
        new = [name for name in column.names if name not in each.categories]
        if new:
            listed = ", ".join(repr(name) for name in new[:5])
            self.notes.append(f"{each.name}: not in the vocabulary, counted as unknown: {shown(listed)}.")


def _recoded(each: Input, column: Floats | Coded) -> NDArray[Any]:
    """Numbers as they are, categories as codes of the agreed vocabulary."""
    if each.categories is None:
        assert not isinstance(column, Coded)
        return column
    if not isinstance(column, Coded):  # a column without any value
        return np.full(len(column), NO_VALUE, np.int32)
    place = np.array([*(each.code(name) for name in column.names), NO_VALUE], np.int32)
    return place[column.codes]


def read(source: Any, columns: Columns, name: str | None = None) -> Logged:
    """Read a table and check it. `name` is what a table in memory is called in messages."""
    na = columns.na or ()
    table = open_table(source, name, (columns.episode, *columns.categories), na)
    roles = columns.resolve(table.names, table.name)
    rows = ordered(table, roles)
    notes = [*table.notes, *rows.notes]
    treatments = {each: _treatment(columns, each) for each in roles.observations}
    inputs: dict[str, Floats | Coded] = {}
    gaps: list[str] = []
    for each in roles.observations:
        column, remarks = _input(table, each, columns)
        notes += remarks
        column = column._replace(codes=rows.sort(column.codes)) if isinstance(column, Coded) else rows.sort(column)
        inputs[each], gap = _carried(column, each, treatments[each][0], rows)
        gaps += gap
    if gaps:
        what = f"{table.name}: values are missing in {counted(len(gaps), 'column')} ({table.rows:,} rows):"
        raise FovaError("\n".join([shown(what), *(shown(f"  - {gap}") for gap in gaps)]))
    actions, remarks = _actions(table, roles, columns)
    rewards, more = values.numbers(table, roles.reward, na)
    values.refuse_missing(table, roles.reward, np.isnan(rewards), "Write 0 where a step earned nothing.")
    _refuse_sentinels(table.name, columns, {**inputs, roles.reward: rewards})
    sorted_actions = (
        actions._replace(codes=rows.sort(actions.codes)) if isinstance(actions, Coded) else rows.sort(actions)
    )
    return Logged(
        name=table.name,
        format=table.format,
        inputs=inputs,
        actions=sorted_actions,
        action_columns=roles.actions,
        rewards=rows.sort(0.0 - rewards if roles.reward_is_cost else rewards),
        terminals=rows.terminals,
        ends=rows.ends,
        starts=rows.starts,
        treatments=treatments,
        notes=[*notes, *remarks, *more, *_known_late(roles), *_unused(table, roles)],
        has_times=roles.time is not None,
    )


def _treatment(columns: Columns, name: str) -> tuple[Missing, float | None]:
    way, mean = columns.treatment(name)
    return way, mean  # type: ignore[return-value]


# --- Observations ------------------------------------------------------------------------------------------


def _input(table: Columnar, name: str, columns: Columns) -> tuple[Floats | Coded, list[str]]:
    """A column of observations: a category if its type or the user says so, a number otherwise."""
    na, kind = columns.na or (), table.kinds[name]
    if name in columns.categories:
        return values.categories(table, name, na), []
    from pyarrow import types

    if types.is_dictionary(kind) and not is_text(kind):
        return values.categories(table, name, na), []
    if not is_text(kind) or values.holds_numbers(table.column(name), na):
        return values.numbers(table, name, na)
    values.refuse_doubtful_text(table, name, na)
    coded = values.categories(table, name, na)
    notes = [f"{name} is text, read as a category: {_first(coded.names)}."]
    notes += values.notes_on_spelling(name, coded.names)
    return coded, [shown(note) for note in notes]


def _first(names: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in names[:6]) + (", ..." if len(names) > 6 else "")


def _carried(
    column: Floats | Coded, name: str, treatment: Missing, rows: Ordered
) -> tuple[Floats | Coded, list[str]]:
    """The column with values carried forward where that is asked for, and what is still missing, in words."""
    data = column.codes if isinstance(column, Coded) else column
    absent = data == NO_VALUE if isinstance(column, Coded) else np.isnan(data)
    if not absent.any():
        return column, []
    if treatment == "refuse":
        ways = "carry or unknown" if isinstance(column, Coded) else "carry, mean or carry-mean"
        return column, [f"{name}: {int(absent.sum()):,} missing. Say what to do: --missing {name}=... ({ways})"]
    if "carry" not in treatment:
        return column, []
    known = np.where(absent, -1, np.arange(len(data)))
    np.maximum.accumulate(known, out=known)
    first = np.repeat(rows.starts, np.diff(np.append(rows.starts, len(data))))
    known = np.where(known >= first, known, -1)
    carried = np.where(known >= 0, data[known], data)
    left = int((known < 0).sum())
    if left and treatment == "carry":
        also = "" if isinstance(column, Coded) else f", or use the mean until then: --missing {name}=carry-mean"
        return column, [
            f"{name}: {left:,} at the start of episodes, with nothing to carry forward. Fill them in{also}"
        ]
    return (column._replace(codes=carried) if isinstance(column, Coded) else carried), []


def _known_late(roles: Resolved) -> list[str]:
    if roles.reward not in roles.observations:
        return []
    return [shown(f"{roles.reward} is the reward and also an observation. It must be known before the action.")]


def _unused(table: Columnar, roles: Resolved) -> list[str]:
    rest = [name for name in table.names if name not in roles.used()]
    if not rest:
        return []
    more = f" and {len(rest) - 8} more" if len(rest) > 8 else ""
    return [shown(f"Not used: {', '.join(rest[:8])}{more}.")]


# --- Actions -----------------------------------------------------------------------------------------------


def _actions(table: Columnar, roles: Resolved, columns: Columns) -> tuple[Floats | Coded, list[str]]:
    """The actions: numbers, or choices among names. Whole numbers are never quantities unless the user says so."""
    choices = [name for name in roles.actions if _is_choice(table, name, columns)]
    na = columns.na or ()
    if not choices:
        parts, notes = [], []
        for name in roles.actions:
            column, remarks = values.numbers(table, name, na)
            values.refuse_missing(table, name, np.isnan(column), "An unknown action cannot be learned from.")
            _ask_about_whole_numbers(table, name, column, columns)
            parts.append(column)
            notes += remarks
        return np.stack(parts, axis=1), notes
    if len(roles.actions) > 1:
        raise fault(
            table.name,
            choices[0],
            f"is a choice among values, and there are {len(roles.actions)} action columns. Several choices at once "
            "are not supported: join them into one column, or say that they are quantities (numbers=...).",
        )
    if is_text(table.kinds[choices[0]]) and choices[0] not in columns.categories:
        values.refuse_doubtful_text(table, choices[0], na)
    coded = values.categories(table, choices[0], na)
    values.refuse_missing(table, choices[0], coded.codes == NO_VALUE, "An unknown action cannot be learned from.")
    notes = [
        f"{choices[0]} is a choice among {counted(len(coded.names), 'action')}: {_first(coded.names)}.",
        *values.notes_on_spelling(choices[0], coded.names),
    ]
    return coded, [shown(note) for note in notes]


def _is_choice(table: Columnar, name: str, columns: Columns) -> bool:
    kind = table.kinds[name]
    if name in columns.categories:
        return True
    if name in columns.numbers:
        return False
    if values.is_marked_category(kind) or values.is_whole(kind):
        return True
    return is_text(kind) and not values.holds_numbers(table.column(name), columns.na or ())


def _ask_about_whole_numbers(table: Columnar, name: str, column: Floats, columns: Columns) -> None:
    """Refuse decimal numbers that may be codes: few different ones, all whole."""
    if name in columns.numbers or (column != np.round(column)).any():
        return
    different = len(np.unique(column))
    if different <= FEW:
        raise fault(
            table.name,
            name,
            f"holds only whole numbers ({different} different ones). If they are codes of actions, add "
            f"categories={name}; if they are quantities, add numbers={name}.",
        )


# --- Values that mark a missing one ------------------------------------------------------------------------


def _refuse_sentinels(file: str, columns: Columns, found: dict[str, Floats | Coded]) -> None:
    """Refuse numbers such as -999 that stand far from all others, until the user says what they are."""
    if columns.na is not None:
        return
    for name, column in found.items():
        if isinstance(column, Coded):
            continue
        sentinel = sentinel_in(column)
        if sentinel is not None:
            value, count, least, most = sentinel
            raise fault(
                file,
                name,
                f"holds {value:g} in {counted(count, 'row')}, far from its other values ({least:g} to {most:g}). "
                f"If it marks a missing value, add na={value:g} to --columns; if it is a true value, add na=none.",
            )


def sentinel_in(column: Floats) -> tuple[float, int, float, float] | None:
    """A number that seems to mark missing values: (number, rows, lowest and highest of the others), or None."""
    known = column[~np.isnan(column)]
    for extreme in (float(known.min()), float(known.max())) if len(known) else ():
        if extreme not in SENTINELS:
            continue
        others = known[known != np.float32(extreme)]
        if not len(others):
            continue
        low, high = float(others.min()), float(others.max())
        gap = low - extreme if extreme < low else extreme - high
        if gap > max(high - low, LEAST_GAP):
            return extreme, len(known) - len(others), low, high
    return None

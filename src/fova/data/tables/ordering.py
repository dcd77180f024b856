"""The rows of a table in the order of episodes and time, and where episodes end."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fova.data.fields import counted, fault
from fova.data.tables.arrow import Columnar, is_text
from fova.data.tables.columns import ENDED, Resolved
from fova.data.tables.values import Clock, categories, clock, episodes, equal, flags
from fova.recipe import label

Flags = NDArray[np.bool_]
IRREGULAR = 0.01  # a step is irregular if it differs from the usual one by more than this share
UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


class Ordered(NamedTuple):
    """The order of the rows, and what is marked in it."""

    order: NDArray[np.int64] | None  # None: the rows are in order as they stand
    starts: NDArray[np.int64]  # first row of each episode, in the new order
    terminals: Flags  # [rows] the task ended with this row
    ends: Flags  # [rows] the last row of an episode
    notes: list[str]

    def sort(self, values: NDArray[Any]) -> NDArray[Any]:
        return values if self.order is None else values[self.order]


def ordered(table: Columnar, roles: Resolved) -> Ordered:
    """Order the rows of a table, and find the ends of its episodes."""
    if not table.rows:
        raise fault(table.name, "", "holds no rows. Leave it out.")
    codes, names = episodes(table, roles.episode) if roles.episode else (np.zeros(table.rows, np.int64), None)
    when, notes = clock(table, roles.time) if roles.time else (None, [])
    order = _order(codes, when)
    if order is not None:
        codes = codes[order]
        by = " and ".join(name for name in (roles.episode, roles.time) if name)
        notes.append(f"The rows were not in order and were sorted by {by}.")
    last = np.append(np.diff(codes) != 0, True)
    if when is not None:
        when = when if order is None else when._replace(values=when.values[order])
        _refuse_same_times(table, roles, when, last, order, codes, names)
        notes += _notes_on_irregular_times(str(roles.time), when, last)
    terminals, remarks = _terminals(table, roles, last, order, codes, names)
    notes += remarks
    ends = last | terminals
    if roles.timeout:
        marked = flags(table, roles.timeout)
        marked = marked if order is None else marked[order]
        notes += _notes_on_timeouts(roles, marked, last)
        ends |= marked
    if roles.episode is None:
        _insist_on_ends(table, ends)
    starts = np.flatnonzero(np.append(True, ends[:-1]))
    return Ordered(order, starts, terminals, ends, notes)


def _order(codes: NDArray[np.int64], when: Clock | None) -> NDArray[np.int64] | None:
    """The stable order by episode and time, or None if the rows have it already."""
    following = np.diff(codes)
    in_order = following > 0
    if when is None:
        in_order |= following == 0
    else:
        in_order |= (following == 0) & (when.values[1:] >= when.values[:-1])
    if in_order.all():
        return None
    # The last key of lexsort is the primary one.
    return np.lexsort((codes,) if when is None else (when.values, codes))


def _refuse_same_times(
    table: Columnar,
    roles: Resolved,
    when: Clock,
    last: Flags,
    order: NDArray[np.int64] | None,
    codes: NDArray[np.int64],
    names: NDArray[Any] | None,
) -> None:
    same = np.flatnonzero((np.diff(when.values) == 0) & ~last[:-1])
    if not len(same):
        return
    place = int(same[0])
    rows = sorted(int(order[i]) if order is not None else i for i in (place, place + 1))
    where = "" if names is None else f" of episode {label(names[codes[place]])!r}"
    given = f"rows {rows[0]} and {rows[1]}{where} have the same time ({counted(len(same), 'such pair')})"
    remedy = "Which came first is not known: remove duplicates, or name a column that orders the rows."
    raise fault(table.name, str(roles.time), f"{given}. {remedy}")


def _notes_on_irregular_times(name: str, when: Clock, last: Flags) -> list[str]:
    steps = np.diff(when.values)[~last[:-1]].astype(np.float64)
    if not len(steps):
        return []
    usual = float(np.median(steps))
    odd = np.abs(steps - usual) > IRREGULAR * usual
    if not odd.any():
        return []
    shortest, longest = (_duration(value, when.per_second) for value in (float(steps.min()), float(steps.max())))
    return [
        f"{name}: time steps are irregular. The usual one is {_duration(usual, when.per_second)}, but "
        f"{odd.mean():.1%} differ, from {shortest} to {longest}. Training counts every row as one step."
    ]


def _duration(value: float, per_second: float | None) -> str:
    if per_second is None:
        return f"{value:g}"
    seconds = value / per_second
    size, word = next((unit for unit in UNITS if seconds >= unit[0]), UNITS[-1])
    return f"{seconds / size:.4g} {word}"


# --- Endings -----------------------------------------------------------------------------------------------


def _terminals(
    table: Columnar,
    roles: Resolved,
    last: Flags,
    order: NDArray[np.int64] | None,
    codes: NDArray[np.int64],
    names: NDArray[Any] | None,
) -> tuple[Flags, list[str]]:
    """[rows] True where the task itself ended, and notes."""
    if roles.terminal is None:
        return (last.copy() if roles.all_ended else np.zeros(len(last), bool)), []
    marked, notes = _marked(table, roles, roles.terminal)
    marked = marked if order is None else marked[order]
    if roles.terminal_is_outcome:
        return marked & last, notes
    inner = np.flatnonzero(marked & ~last) if roles.episode else np.zeros(0, np.int64)
    if len(inner):
        raise _inner_ending(table, roles, marked, last, order, codes, names, int(inner[0]), len(inner))
    return marked, notes


def _marked(table: Columnar, roles: Resolved, name: str) -> tuple[Flags, list[str]]:
    """[rows] in the order of the file: True where the terminal column says that the task ended, and notes."""
    if roles.terminal_value is not None:
        return equal(table, name, roles.terminal_value)
    if not is_text(table.kinds[name]):
        return flags(table, name), []
    texts = categories(table, name).names
    given = f"holds text ({', '.join(map(repr, texts[:3]))[:80]})" if texts else "holds empty text"
    meant = next((text for text in texts if text.lower() in ENDED.split()), texts[0] if texts else "died")
    example = f"terminal={'last:' * roles.terminal_is_outcome}{name}={meant}"
    raise fault(
        table.name, name, f"{given}. Write the value that means that the task itself ended, as in {example}"
    )


def _inner_ending(
    table: Columnar,
    roles: Resolved,
    marked: Flags,
    last: Flags,
    order: NDArray[np.int64] | None,
    codes: NDArray[np.int64],
    names: NDArray[Any] | None,
    place: int,
    count: int,
) -> Exception:
    row = place if order is None else int(order[place])
    episode = "" if names is None else f" of episode {label(names[codes[place]])!r}"
    given = f"row {row}{episode} is marked as the end, but the episode continues ({counted(count, 'such row')})"
    value = "" if roles.terminal_value is None else f"={roles.terminal_value}"
    ended = marked & last
    whole = np.isin(codes, codes[ended]) if ended.any() else np.zeros(len(last), bool)
    if (marked == whole).all():
        remedy = (
            f"It is 1 in every row of those episodes, so it tells how an episode ended. Write "
            f"terminal=last:{roles.terminal}{value} for that."
        )
    elif roles.time is None:
        remedy = "Are the rows out of order? Name the column that orders them (time=...)."
    else:
        remedy = f"Mark only the last row, or name the column that tells the parts of {roles.episode} apart."
    return fault(table.name, str(roles.terminal), f"{given}. {remedy}")


def _notes_on_timeouts(roles: Resolved, marked: Flags, last: Flags) -> list[str]:
    inner = int((marked & ~last).sum()) if roles.episode else 0
    if inner:
        return [f"{roles.timeout} cuts episodes in {counted(inner, 'row')} after which {roles.episode} continues."]
    return []


def _insist_on_ends(table: Columnar, ends: Flags) -> None:
    if not ends[:-1].any():
        raise fault(
            table.name,
            "",
            f"no ending is marked in {len(ends):,} rows, so all of them would be one episode. Name the column "
            "that tells episodes apart (episode=...), or one that marks where they were cut off (timeout=...).",
        )

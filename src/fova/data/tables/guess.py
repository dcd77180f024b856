"""A proposal for `--columns`, guessed from the names and values of the clients' tables.

A person decides: nothing here is used by training.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fova.data.action_kind import FEW
from fova.data.tables.arrow import Columnar, is_text
from fova.data.tables.columns import REQUIRED, quoted
from fova.data.tables.logged import sentinel_in
from fova.data.tables.values import holds_numbers, is_whole, numbers
from fova.data.transitions import bounds_in_words
from fova.errors import FovaError
from fova.recipe import label

ENOUGH = 200_000  # rows that are looked at
OPEN = "?"  # a role that could not be guessed
MOST_SHOWN = 5

# Words in column names, by role. The first role that has a match takes the column.
WORDS = {
    "timeout": "timeout timeouts truncated truncation truncations censored",
    "terminal": "terminal terminals terminated died death dead deceased mortality failed failure done ended "
    "crashed",
    "reward": "reward rewards score return payoff utility profit",
    "episode": "episode episodes patient subject stay icustay hadm admission encounter visit trip session "
    "trajectory traj ride flight user customer vehicle",
    "time": "time timestamp step steps hour day minute date datetime charttime tick t seq sequence",
    "action": "action actions dose dosage treatment drug therapy insulin control command setpoint offer bid price "
    "decision arm lane",
}
INDEX = re.compile(r"(unnamed:? ?\d+|index|row|row_?id|id|)", re.IGNORECASE)


@dataclass
class About:
    """One column as a person sees it."""

    name: str
    kind: str
    missing: int
    values: str
    role: str = ""


@dataclass
class Proposal:
    """A guessed mapping, and what a person must look at."""

    columns: list[About]
    roles: dict[str, list[str]]
    options: list[str] = field(default_factory=list)  # further flags: --missing, --action-low, ...
    open: list[str] = field(default_factory=list)  # questions that only a person can answer

    def flags(self) -> str:
        """The proposal as flags that can be pasted."""
        listed = ("observations", "action", "categories", "na")  # the other roles have one name each
        parts = [
            f"{role}={quoted(names) if role in listed else names[0]}" for role, names in self.roles.items() if names
        ]
        return " ".join(["--columns", *map(_quoted, parts), *self.options])


def _quoted(text: str) -> str:
    return text if text.endswith(f"={OPEN}") else shlex.quote(text)


def propose(tables: Sequence[Columnar]) -> Proposal:
    """A mapping for these tables of one federation: roles by the first of them, checked against the others."""
    looks = {name: _Look(tables[0], name) for name in tables[0].names}
    roles: dict[str, list[str]] = {role: [] for role in ("episode", "time", "observations", "action", "reward")}
    roles |= {"terminal": [], "timeout": [], "categories": [], "na": []}
    lacking = _lacking(tables)
    for name, look in looks.items():
        role = "" if name in lacking else _role(look)
        if role in ("action", "observations", ""):
            roles.get(role, []).append(name)
        elif not roles[role]:
            roles[role].append(name)
        elif not look.is_identifier:
            roles["observations"].append(name)
    proposal = Proposal([], roles)
    _add_open(proposal)
    proposal.open += lacking.values()
    _ask_about_text(proposal, tables)
    _add_options(proposal, looks, tables)
    used = {name: role for role, names in roles.items() if role not in ("categories", "na") for name in names}
    proposal.columns = [look.about(used.get(name, "not used")) for name, look in looks.items()]
    return proposal


def _lacking(tables: Sequence[Columnar]) -> dict[str, str]:
    """The columns that some tables lack, and in words which. All clients need the same columns."""
    found = {}
    for name in dict.fromkeys(name for table in tables for name in table.names):
        have = [table.name for table in tables if name in table.names]
        lack = [table.name for table in tables if name not in table.names]
        if lack:
            where = f"only in {_listed(have)}" if len(have) <= len(lack) else f"not in {_listed(lack)}"
            found[name] = f"{name}: {where}. All clients need the same columns, so it is left out."
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_SHOWN]) + (
        f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    )


def _ask_about_text(proposal: Proposal, tables: Sequence[Columnar]) -> None:
    """Ask about text in columns of numbers, and about columns that only some clients store as text."""
    for name in (name for role in ("observations", "action", "reward") for name in proposal.roles[role]):
        having = [table for table in tables if name in table.names]
        words = [table.name for table in having if _is_words(table, name)]
        if words and len(words) < len(having):
            numeric = next(table.name for table in having if table.name not in words)
            proposal.open.append(
                f"{name}: numbers in {numeric}, but text in {words[0]}. Store it in the same way at all clients, "
                f"or add categories={name} if the numbers are codes."
            )
        for table in having:
            if is_text(table.kinds[name]) and table.name not in words:
                proposal.open += _not_numbers(table, name)


def _is_words(table: Columnar, name: str) -> bool:
    return is_text(table.kinds[name]) and not holds_numbers(table.column(name), ())


def _not_numbers(table: Columnar, name: str) -> list[str]:
    """What keeps a column of text from being read as numbers, in words."""
    try:
        numbers(table, name)
    except FovaError as error:
        return [str(error)]
    return []


class _Look:
    """A column's name, type and first values."""

    def __init__(self, table: Columnar, name: str) -> None:
        import pyarrow
        from pyarrow import types

        self.name, self.rows = name, min(table.rows, ENOUGH)
        self.kind = table.kinds[name]
        self.column = table.column(name).slice(0, ENOUGH)
        self.missing = int(self.column.null_count)
        self.text, self.whole = is_text(self.kind), is_whole(self.kind)
        self.numeric_text = self.text and holds_numbers(self.column, ())
        self.temporal = bool(types.is_temporal(self.kind))
        self.boolean = bool(types.is_boolean(self.kind))
        self.words = {word for word in re.split(r"[^a-z0-9]+", name.lower()) if word}
        self.nested = bool(types.is_nested(self.kind))
        self.values = pyarrow.array([]) if self.nested else self.column.unique().drop_null()
        self.different = len(self.values)
        self.numbers = None
        if not (self.text or self.temporal or self.nested or types.is_null(self.kind)):
            self.numbers = self.column.cast(pyarrow.float64()).drop_null().to_numpy()

    @property
    def is_flag(self) -> bool:
        return self.boolean or (self.numbers is not None and bool(np.isin(self.numbers, (0, 1)).all()))

    @property
    def is_identifier(self) -> bool:
        """Whether the name says that it is one, or no value occurs twice."""
        if self.numeric_text:
            return False
        return bool(INDEX.fullmatch(self.name)) or ((self.text or self.whole) and self.different == self.rows > 1)

    def about(self, role: str) -> About:
        if self.numbers is not None and len(self.numbers):
            shown = f"{self.numbers.min():.6g} to {self.numbers.max():.6g}"
        elif self.temporal and self.different:
            times = self.values.sort()
            shown = f"{times[0]} to {times[-1]}"
        else:
            first = [label(value) for value in self.values.to_pylist()[:MOST_SHOWN]]
            shown = ", ".join(first) + (f", ... ({self.different:,})" if self.different > MOST_SHOWN else "")
        return About(self.name, str(self.kind), self.missing, shown, role)


def _role(look: _Look) -> str:
    """The role that a column's name and type suggest; "" for none."""
    if look.temporal:
        return "time"
    for role, words in WORDS.items():
        if not look.words & set(words.split()):
            continue
        if role in ("terminal", "timeout") and not look.is_flag:
            continue
        if role == "reward" and look.numbers is None and not look.numeric_text:
            continue
        if role == "episode" and not (look.text or look.whole):
            continue
        return role
    if look.name.lower().endswith("id") and (look.text or look.whole) and 1 < look.different < look.rows:
        return "episode"
    return "" if look.is_identifier or look.different < 1 else "observations"


def _add_open(proposal: Proposal) -> None:
    """Mark what could not be guessed, and ask about what is often wrong."""
    for role in REQUIRED:
        if not proposal.roles[role]:
            proposal.roles[role] = [OPEN]
            proposal.open.append(f"{role}: {REQUIRED[role]}")
    if proposal.roles["terminal"] == ["done"]:
        proposal.open.append("terminal: 'done' often marks time limits, too. Those are timeouts, not terminals.")


def _add_options(proposal: Proposal, looks: dict[str, _Look], tables: Sequence[Columnar]) -> None:
    roles, missing = proposal.roles, []
    for name in (name for name in roles["observations"] if name in looks):
        look = looks[name]
        if any(name in table.names and table.column(name).null_count for table in tables):
            missing.append(f"{name}={'unknown' if look.text else 'carry-mean'}")
        for table in tables:
            mark = _mark_of_missing(_Look(table, name))
            if mark and mark not in roles["na"]:
                roles["na"].append(mark)
    if missing:
        proposal.options += ["--missing", *map(shlex.quote, missing)]
    actions = [looks[name] for name in roles["action"] if name in looks]
    choices = [look for look in actions if (look.text and not look.numeric_text) or look.whole or look.boolean]
    if len(actions) == 1 and not choices and _may_be_codes(actions[0]):
        roles["categories"].append(actions[0].name)
        proposal.open.append(
            f"categories={actions[0].name}: the action holds whole numbers only. If they are quantities and not "
            f"codes, write numbers={actions[0].name} and give bounds."
        )
    elif choices:
        proposal.open.append(
            f"action: {choices[0].name} is read as a choice among {_different(tables, choices[0].name)} named "
            f"actions. If it is a quantity, add numbers={choices[0].name} and --action-low, --action-high."
        )
    elif actions and all(look.numbers is not None for look in actions):
        ranges = {look.name: _range(tables, look.name) for look in actions}
        empty = [name for name, known in ranges.items() if not known]
        if empty:
            proposal.open.append(f"action: {empty[0]} holds no values. Name the column of what was done.")
            return
        low, high = zip(*((min(known), max(known)) for known in ranges.values()))
        lowest, highest = bounds_in_words(low, high)
        proposal.options += ["--action-low", lowest, "--action-high", highest]
        proposal.open.append(
            "--action-low, --action-high: the range in the data. Give the true bounds if they are wider."
        )


def _may_be_codes(look: _Look) -> bool:
    values: Any = look.numbers
    return (
        values is not None
        and len(values) > 0
        and look.different <= FEW
        and bool((values == np.round(values)).all())
    )


def _mark_of_missing(look: _Look) -> str | None:
    """A number that seems to mark missing values, as text."""
    if look.numbers is None or not len(look.numbers):
        return None
    sentinel = sentinel_in(look.numbers.astype(np.float32))
    return None if sentinel is None else f"{sentinel[0]:g}"


def _different(tables: Sequence[Columnar], name: str) -> int:
    """The number of different values of a column at all clients."""
    return len({label(value) for table in tables for value in _Look(table, name).values.to_pylist()})


def _range(tables: Sequence[Columnar], name: str) -> list[float]:
    """The lowest and the highest value of a column in each table that has some."""
    import pyarrow.compute

    numeric = [each for each in tables if not is_text(each.kinds[name])]
    ranges = [pyarrow.compute.min_max(each.column(name)).as_py() for each in numeric]
    return [bound for each in ranges if each["min"] is not None for bound in each.values()]


def columns_wanted(tables: Sequence[Columnar]) -> FovaError:
    """The error for tables without a mapping of their columns, with a proposal to paste."""
    proposal = propose(tables)
    questions = "".join(f"\n  - {question}" for question in proposal.open)
    names = tables[0].name if len(tables) == 1 else f"{tables[0].name} and the others"
    return FovaError(
        f"Say what the columns of {names} mean. A proposal, guessed from their names; check every part:\n"
        f"  {proposal.flags()}{questions}\nSee the columns with: fova data inspect {tables[0].name}"
    )

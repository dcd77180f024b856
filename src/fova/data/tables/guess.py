"""A proposal for `--columns`, guessed from the names and values of the clients' tables.

A person decides: nothing here is used by training.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fova.data.action_kind import FEW
from fova.data.tables.arrow import Columnar, is_text
from fova.data.tables.columns import MINUS, OPEN, REQUIRED, ROLES, quoted
from fova.data.tables.logged import sentinel_in
from fova.data.tables.look import BIRTH, COSTS, MOST_SHOWN, RESULT, WHEN, About, Look
from fova.data.tables.values import clock, holds_numbers, numbers
from fova.data.transitions import bounds_in_words
from fova.errors import FovaError
from fova.recipe import label


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
    looks = {name: Look(tables[0], name) for name in tables[0].names}
    lacking = _lacking(tables)
    suggested: dict[str, list[Look]] = {}
    for name, look in looks.items():
        if name not in lacking and look.role:
            suggested.setdefault(look.role, []).append(look)
    proposal = Proposal([], {role: [] for role in ROLES if role not in ("numbers", "missing")})
    used = _give_roles(proposal, suggested, tables[0].names)
    _add_open(proposal)
    proposal.open += lacking.values()
    _ask_about_text(proposal, tables)
    _ask_about_times(proposal, tables)
    for name in (name for name, role in used.items() if role == "terminal"):
        _ask_about_endings(proposal, name, tables)
    _add_options(proposal, looks, tables)
    proposal.columns = [look.about(used.get(name, "not used")) for name, look in looks.items()]
    return proposal


# --- Which column gets which role --------------------------------------------------------------------------


def _give_roles(proposal: Proposal, suggested: Mapping[str, list[Look]], names: Sequence[str]) -> dict[str, str]:
    """Fill the roles of a proposal, with questions. Returns the role of each column that has one."""

    def of(role: str) -> list[Look]:
        return suggested.get(role, [])

    episode = of("episode")[:1]
    together = _Together(episode[0] if episode else None)
    when = [look for look in of("time") if _may_order(look, together)]
    when = sorted(when, key=lambda look: (not look.says(WHEN), look.is_date))
    reward = sorted(of("reward"), key=lambda look: look.says(COSTS))[:1]
    terminal = sorted(of("terminal"), key=lambda look: look.ending != look.name)[:1]
    found = {"episode": episode, "time": when[:1], "action": _of_one_kind(of("action")), "reward": reward}
    found |= {"terminal": terminal, "timeout": of("timeout")[:1]}
    given = {look.name: role for role, looks in found.items() for look in looks}
    for look in (look for looks in suggested.values() for look in looks if look.name not in given):
        reason = _why_not_observed(look, together)
        if reason:
            proposal.open.append(f"{look.name}: {reason}")
        elif look.different and not look.is_identifier:
            given[look.name] = "observations"
    for name in (name for name in names if name in given):
        proposal.roles[given[name]].append(name)
    _spell(proposal, reward, terminal)
    return given


def _spell(proposal: Proposal, reward: Sequence[Look], terminal: Sequence[Look]) -> None:
    """Write costs with a minus, and the value that means ended behind its column."""
    for look in (look for look in reward if look.says(COSTS)):
        proposal.roles["reward"] = [f"{MINUS}{look.name}"]
        proposal.open.append(
            f"reward: {look.name} is read as costs, so less is better. If not, leave the minus out."
        )
    for look in (look for look in terminal if look.ending != look.name):
        proposal.roles["terminal"] = [str(look.ending)]
        proposal.open.append(f"terminal: {look.ending} means that all other episodes were only cut off.")


def _may_order(look: Look, together: "_Together") -> bool:
    """Whether a column of times can order the rows of an episode. A date of birth cannot."""
    return not (look.is_time and look.says(BIRTH)) and not together.is_constant(look)


def _of_one_kind(actions: Sequence[Look]) -> list[Look]:
    """The columns of actions that training takes together: the first one if it is a choice, else all quantities."""
    if not actions or actions[0].is_choice:
        return list(actions[:1])
    return [look for look in actions if not look.is_choice]


def _why_not_observed(look: Look, together: "_Together") -> str:
    """Why a column without another role is no observation, as a question to a person; "" if it is one."""
    if look.is_time:
        return "a date or time is no observation, so it is left out. Store for instance an age or hours instead."
    if look.role == "action":
        return (
            "left out of the action, which is one choice or several quantities. Join several choices into one "
            "column. Whole numbers that are quantities also need numbers=."
        )
    if look.role in (RESULT, "reward", "terminal", "timeout"):
        return "is this known before the action? Its name says that it is a result, so it is left out."
    if together.only_at_ends(look):
        return (
            "is this known before the action? It has values in the last rows of episodes only, so it is left out."
        )
    return ""


class _Together:
    """The columns of a table by episode, as far as one tells episodes apart."""

    def __init__(self, episode: Look | None) -> None:
        self.codes = None if episode is None else _codes(episode)  # [rows] which episode
        self.ends = np.zeros(0 if self.codes is None else len(self.codes), bool)  # [rows] last row of an episode
        if self.codes is not None:
            _, from_the_end = np.unique(self.codes[::-1], return_index=True)
            self.ends[len(self.codes) - 1 - from_the_end] = True

    def is_constant(self, look: Look) -> bool:
        """Whether a column never changes within an episode, though some episodes have several rows."""
        if self.codes is None or look.nested or self.ends.all():
            return False
        values = _codes(look)
        pairs = np.unique(np.stack([self.codes, values]), axis=1)
        return bool(pairs.shape[1] == self.ends.sum())

    def only_at_ends(self, look: Look) -> bool:
        """Whether a column has values, and only in the last rows of episodes that have several rows."""
        if self.codes is None or not look.missing or not look.different or self.ends.all():
            return False
        known = ~look.column.is_null().to_numpy()
        return not (known & ~self.ends).any()


def _codes(look: Look) -> NDArray[np.int64]:
    """[rows] the values of a column as codes; -1 where one is missing."""
    from pyarrow import types

    encoded = look.column if types.is_dictionary(look.column.type) else look.column.dictionary_encode()
    codes = encoded.unify_dictionaries().combine_chunks().indices.cast("int64").fill_null(-1)
    return np.asarray(codes.to_numpy(zero_copy_only=False))


# --- Questions for a person --------------------------------------------------------------------------------


def _lacking(tables: Sequence[Columnar]) -> dict[str, str]:
    """The columns that some tables lack, and in words which. All clients need the same columns."""
    found = {}
    for name in dict.fromkeys(name for table in tables for name in table.names):
        have = [table.name for table in tables if name in table.names]
        lack = [table.name for table in tables if name not in table.names]
        if lack:
            where = f"only in {_listed(have)}" if len(have) <= len(lack) else f"not in {_listed(lack)}"
            found[name] = (
                f"{name}: {where}. All clients need the same columns, so it is left out for all of them. If other "
                "files have it under another name, rename it there first."
            )
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_SHOWN]) + (
        f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    )


def _ask_about_text(proposal: Proposal, tables: Sequence[Columnar]) -> None:
    """Ask about text in columns of numbers, and about columns that only some clients store as text."""
    for spelled in (name for role in ("observations", "action", "reward") for name in proposal.roles[role]):
        name = spelled.removeprefix(MINUS) if spelled in proposal.roles["reward"] else spelled
        having = [table for table in tables if name in table.names]
        times = [table.name for table in having if Look(table, name).is_time]
        if times:
            other = next(table.name for table in having if table.name not in times)
            proposal.open.append(
                f"{name}: times in {times[0]}, but not in {other}. Store it in the same way at all clients. "
                "Name it as the time, or leave it out."
            )
            continue
        words = [table.name for table in having if _is_words(table, name)]
        if words and len(words) < len(having):
            numeric = next(table.name for table in having if table.name not in words)
            proposal.open.append(
                f"{name}: numbers in {numeric}, but text in {words[0]}. Store it in the same way at all clients, "
                f"or add categories={name} if the numbers are codes."
            )
        for table in having:
            if is_text(table.kinds[name]) and table.name not in words:
                proposal.open += _refusal(numbers, table, name)


def _ask_about_endings(proposal: Proposal, name: str, tables: Sequence[Columnar]) -> None:
    """Ask about endings that clients write in different ways."""
    endings: dict[str, str] = {}
    for table in tables:
        ending = Look(table, name).ending
        if ending is not None:
            endings.setdefault(ending, table.name)
    if len(endings) > 1:
        listed = ", ".join(f"{ending} in {file}" for ending, file in endings.items())
        proposal.open.append(f"terminal: {listed}. Store the column in the same way at all clients.")


def _ask_about_times(proposal: Proposal, tables: Sequence[Columnar]) -> None:
    """Ask about text that cannot be read as times, in the column that orders the rows."""
    (name,) = proposal.roles["time"]
    for table in tables:
        if name in table.names and is_text(table.kinds[name]):
            proposal.open += _refusal(clock, table, name)


def _is_words(table: Columnar, name: str) -> bool:
    return is_text(table.kinds[name]) and not holds_numbers(table.column(name), ())


def _refusal(read: Callable[[Columnar, str], object], table: Columnar, name: str) -> list[str]:
    """What keeps a column of text from being read as numbers or times, in words."""
    try:
        read(table, name)
    except FovaError as error:
        return [str(error)]
    return []


def _add_open(proposal: Proposal) -> None:
    """Mark what could not be guessed, and ask about what is often wrong."""
    for role in REQUIRED:
        if not proposal.roles[role]:
            proposal.roles[role] = [OPEN]
            proposal.open.append(f"{role}: {REQUIRED[role]}")
    if proposal.roles["terminal"] == ["done"]:
        proposal.open.append("terminal: 'done' often marks time limits, too. Those are timeouts, not terminals.")


def _add_options(proposal: Proposal, looks: dict[str, Look], tables: Sequence[Columnar]) -> None:
    roles, missing = proposal.roles, []
    for name in (name for name in roles["observations"] if name in looks):
        look = looks[name]
        if any(name in table.names and table.column(name).null_count for table in tables):
            missing.append(f"{name}={'unknown' if look.text else 'carry-mean'}")
        for table in tables:
            mark = _mark_of_missing(Look(table, name))
            if mark and mark not in roles["na"]:
                roles["na"].append(mark)
    if missing:
        proposal.options += ["--missing", *map(shlex.quote, missing)]
    actions = [looks[name] for name in roles["action"] if name in looks]
    choices = [look for look in actions if look.is_choice]
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


def _may_be_codes(look: Look) -> bool:
    values: Any = look.numbers
    return (
        values is not None
        and len(values) > 0
        and look.different <= FEW
        and bool((values == np.round(values)).all())
    )


def _mark_of_missing(look: Look) -> str | None:
    """A number that seems to mark missing values, as text."""
    if look.numbers is None or not len(look.numbers):
        return None
    sentinel = sentinel_in(look.numbers.astype(np.float32))
    return None if sentinel is None else f"{sentinel[0]:g}"


def _different(tables: Sequence[Columnar], name: str) -> int:
    """The number of different values of a column at all clients."""
    return len({label(value) for table in tables for value in Look(table, name).values.to_pylist()})


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

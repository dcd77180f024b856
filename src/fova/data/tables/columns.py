"""What the columns of a table mean: the mapping that a user writes, the same for all clients.

    --columns episode=patient_id time=hour observations=hr,map,lab_* action=dose reward=score terminal=died

or a [columns] table in a configuration file. Nothing is guessed here, and no table is read.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from fova.data.fields import fault
from fova.errors import FovaError, unknown
from fova.recipe import MISSING
from fova.settings import shown

NONE, LAST = "none", "last"
OPEN = "?"  # in a proposal: a role that could not be guessed
MINUS = "-"  # before the reward: the column is a cost
REQUIRED = {
    "episode": "the column that tells episodes apart (a patient, a trip); or episode=none: one long record, cut "
    "where terminal or timeout says so",
    "time": "the column that orders the rows of an episode (a step, an hour, a time stamp); or time=none: the rows "
    "are already in order",
    "observations": "what was known before the action: names and patterns, as in hr,map,lab_*",
    "action": "what was done: a column, or several of numbers. Whole numbers and text are choices among named "
    "actions, unless numbers= names the column",
    "reward": "what the step was worth; more is better. For a column of costs write reward=-COLUMN",
    "terminal": "the column that is 1 where the task itself ended with this row; or terminal=none: every episode "
    "was only cut off (time limit, end of the record); terminal=last: every episode really ended with its last "
    "row; terminal=last:COLUMN: those episodes ended whose last row has COLUMN 1. If COLUMN holds other values "
    "than 0 and 1, write the one that means ended: terminal=last:COLUMN=died",
}
OPTIONAL = {
    "timeout": "the column that is 1 where an episode was cut off; needed without an episode column",
    "categories": "columns of whole numbers that stand for categories and not for quantities",
    "numbers": "columns of whole numbers that are quantities; asked for if an action holds whole numbers",
    "na": "values that mark a missing one, as in -999; na=none: none do",
}
ROLES = (*REQUIRED, *OPTIONAL, "missing")
# Values of a terminal column that mean that the task itself ended.
ENDED = "died dead deceased death expired failed failure crashed terminated ended 1 true yes"


@dataclass(frozen=True)
class Columns:
    """The mapping from roles to columns."""

    episode: str
    time: str
    observations: tuple[str, ...]  # names and patterns
    action: tuple[str, ...]
    reward: str
    terminal: str
    timeout: str = NONE
    # Column -> its vocabulary, or None if the clients agree on one.
    categories: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)  # name or pattern -> what to do
    na: tuple[str, ...] | None = None  # None: the user has not said

    # --- From and to what a user writes ---

    @staticmethod
    def of(given: Any, missing: Sequence[str] = ()) -> "Columns":
        """The mapping in texts such as `action=dose`, in a table of a configuration file, or in a Python dict."""
        if isinstance(given, Columns):
            return given
        if isinstance(given, Mapping):
            content = dict(given)
        elif isinstance(given, list | tuple):
            content = _pairs(given, "columns", "episode=patient_id")
        else:
            raise FovaError(
                f"columns is {shown(given)}, but must be a table of roles, as in {{'episode': 'patient_id', ...}}, "
                "or a list of texts such as 'episode=patient_id'."
            )
        if missing:
            content["missing"] = {**dict(content.get("missing", {})), **_pairs(missing, "missing", "hr=carry")}
        return _checked(content)

    def to_table(self) -> dict[str, Any]:
        """The mapping as a table of a configuration file, which `of` reads back."""
        table: dict[str, Any] = {name: getattr(self, name) for name in ("episode", "time", "reward", "terminal")}
        table |= {"observations": list(self.observations), "action": list(self.action)}
        if self.timeout != NONE:
            table["timeout"] = self.timeout
        if self.categories:
            table["categories"] = {
                name: AGREED if values is None else list(values) for name, values in self.categories.items()
            }
        if self.numbers:
            table["numbers"] = list(self.numbers)
        if self.missing:
            table["missing"] = dict(self.missing)
        if self.na is not None:
            table["na"] = list(self.na) or NONE
        return table

    def to_flags(self) -> list[str] | None:
        """The mapping as `--columns ... --missing ...`, or None where only a configuration file can say it."""
        roles = {
            "episode": self.episode,
            "time": self.time,
            "observations": quoted(self.observations),
            "action": quoted(self.action),
            "reward": self.reward,
            "terminal": self.terminal,
            "timeout": "" if self.timeout == NONE else self.timeout,
            "categories": quoted(tuple(self.categories)),
            "numbers": quoted(self.numbers),
            "na": "" if self.na is None else ",".join(self.na) or NONE,
        }
        columns = [f"{role}={value}" for role, value in roles.items() if value]
        missing = [f"{name}={way}" for name, way in self.missing.items()]
        if any(text.startswith(MINUS) for text in missing):  # it would be read as another flag
            return None
        try:
            said = Columns.of(columns, missing)
        except FovaError:
            return None
        if said != self or tuple(said.missing) != tuple(self.missing):  # the first pattern that fits counts
            return None
        return ["--columns", *columns, *(["--missing", *missing] if missing else [])]

    # --- Applied to the columns of a table ---

    def resolve(self, names: Sequence[str], file: str | Path) -> "Resolved":
        """The columns of a table in their roles, patterns expanded. A name that is not there is refused."""
        terminal, value, outcome = self._terminal(names)
        single = {"episode": self.episode, "time": self.time, "timeout": self.timeout, "terminal": terminal}
        found = {
            role: None if name == NONE else self._there(name, role, names, file) for role, name in single.items()
        }
        actions = tuple(self._there(name, "action", names, file) for name in self.action)
        is_cost = self.reward.startswith(MINUS) and self.reward not in names
        reward = self._there(self.reward.removeprefix(MINUS) if is_cost else self.reward, "reward", names, file)
        known_after = {
            *actions,
            *(name for role, name in found.items() if role in ("terminal", "timeout") and name),
        }
        taken = {*known_after, reward, *(name for name in found.values() if name)}
        if found["episode"] in self.observations:
            raise fault(
                file,
                str(found["episode"]),
                "tells episodes apart and is also an observation. A policy meets new episodes, whose names it has "
                "never seen. Leave it out of observations.",
            )
        observations = self._observations(names, taken, known_after, file)
        for name in (*self.categories, *self.numbers):
            if name not in (*observations, *actions):
                raise fault(file, name, "is named in categories or numbers, but is no observation or action.")
        return Resolved(
            found["episode"],
            found["time"],
            observations,
            actions,
            reward,
            is_cost,
            found["terminal"],
            value,
            outcome,
            self.terminal == LAST,
            found["timeout"],
        )

    def _terminal(self, names: Sequence[str]) -> tuple[str, str | None, bool]:
        """The terminal column, its value that means ended, and whether it tells the outcome of whole episodes."""
        is_outcome = self.terminal.startswith(f"{LAST}:")
        text = NONE if self.terminal == LAST else self.terminal.removeprefix(f"{LAST}:")
        column, value = _with_value(text, names)
        if value is not None and not value.strip():
            given = f"columns: terminal is {shown(self.terminal)}, without the value that means ended"
            raise FovaError(f"{given}. Write it after the =.")
        return column, value, is_outcome

    def _there(self, name: str, role: str, names: Sequence[str], file: str | Path) -> str:
        if name not in names:
            raise _no_column(name, role, names, file)
        return name

    def _observations(
        self, names: Sequence[str], taken: set[str], known_after: set[str], file: str | Path
    ) -> tuple[str, ...]:
        chosen: list[str] = []
        for pattern in self.observations:
            if pattern in names:
                if pattern in known_after:
                    raise fault(
                        file, pattern, "is an observation and also what was done or came of it. Leave it out."
                    )
                chosen.append(pattern)
                continue
            matching = [
                name
                for name in names
                if name not in taken and fnmatchcase(name, pattern) and not UNNAMED.fullmatch(name)
            ]
            if not matching:
                raise _no_column(pattern, "observations", names, file)
            chosen += [name for name in sorted(matching, key=_natural) if name not in chosen]
        return tuple(dict.fromkeys(chosen))

    def treatment(self, name: str) -> tuple[str, float | None]:
        """What to do with missing values of a column, and the mean that the user gave."""
        for pattern, way in self.missing.items():
            if pattern == name or fnmatchcase(name, pattern):
                kind, _, number = way.partition(":")
                return kind, float(number) if number else None
        return "refuse", None


class Resolved(NamedTuple):
    """The columns of one table in their roles."""

    episode: str | None
    time: str | None
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    reward: str
    reward_is_cost: bool  # the column counts negatively
    terminal: str | None
    terminal_value: str | None  # of the column: the task ended; None: the column holds 0 and 1
    terminal_is_outcome: bool  # the column tells the outcome of whole episodes, at their last row
    all_ended: bool
    timeout: str | None

    def used(self) -> set[str]:
        single = {self.episode, self.time, self.reward, self.terminal, self.timeout} - {None}
        return {*self.observations, *self.actions, *map(str, single)}


# Columns that pandas or a spreadsheet wrote without being asked. A pattern does not choose them.
UNNAMED = re.compile(r"Unnamed: \d+|__index_level_\d+__|")

AGREED = "agreed"  # in a configuration file: the clients agree on the vocabulary


def _with_value(text: str, names: Sequence[str]) -> tuple[str, str | None]:
    """COLUMN or COLUMN=VALUE as a column and a value. The name of a column may hold a "=" itself."""
    if text in names or "=" not in text:
        return text, None
    column = max((name for name in names if text.startswith(f"{name}=")), key=len, default=text.rpartition("=")[0])
    return column, text.removeprefix(f"{column}=")


def _no_column(name: str, role: str, names: Sequence[str], file: str | Path) -> FovaError:
    awkward = next((each for each in names if "," in each), None)
    hint = "" if awkward is None else f"A name with a comma is written in quotes: '{quoted([awkward])}'"
    return unknown(f"column in {file} for {role}", name, names, hint)


def quoted(names: Sequence[str]) -> str:
    """Names of columns in one text, as `--columns` takes them. A name with a comma is in quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


# --- Reading what a user wrote -----------------------------------------------------------------------------


def _pairs(texts: Iterable[str], option: str, example: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        # The name of a column may hold a "="; a role and a way to treat missing values do not.
        name, equals, value = str(text).rpartition("=") if option == "missing" else str(text).partition("=")
        if not equals or not name or not value:
            raise FovaError(f"{option}: {text!r} is not NAME=VALUE. Write for instance: --{option} {example}")
        if name in found:
            raise FovaError(f"{option}: {name} is given twice. Join its parts with commas.")
        found[name] = value
    return found


def _checked(content: Mapping[str, Any]) -> Columns:
    for name in content:
        if name not in ROLES:
            raise unknown("role of columns", str(name), ROLES)
    lacking = [role for role in REQUIRED if role not in content]
    if lacking:
        listed = "\n".join(f"  {role}=  {REQUIRED[role]}" for role in lacking)
        raise FovaError(f"The columns do not say everything that training must know. Add to --columns:\n{listed}")
    _refuse_open(content)
    texts = {role: _text(content[role], role) for role in ("episode", "time", "reward", "terminal")}
    texts["timeout"] = _text(content.get("timeout", NONE), "timeout")
    _insist_on_one_role_each({**texts, "reward": texts["reward"].removeprefix(MINUS)})
    categories = _categories(content.get("categories", ()))
    numbers = _names(content.get("numbers", ()), "numbers")
    both = next((name for name in numbers if name in categories), None)
    if both is not None:
        raise FovaError(
            f"columns: {shown(both)} is in categories and in numbers. Codes are categories, and quantities are "
            "numbers: name it in one of them."
        )
    return Columns(
        **texts,
        observations=_names(content["observations"], "observations"),
        action=_some_names(content["action"], "action"),
        categories=categories,
        numbers=numbers,
        missing=_missing(content.get("missing", {})),
        na=_na(content.get("na")),
    )


def _refuse_open(content: Mapping[str, Any]) -> None:
    """Refuse roles that a proposal has left open."""
    left = [role for role in REQUIRED if content[role] in (OPEN, [OPEN], (OPEN,))]
    if left:
        listed = "\n".join(f"  {role}=  {REQUIRED[role]}" for role in left)
        raise FovaError(f"Replace the {OPEN} of {', '.join(left)} in --columns:\n{listed}")


def _insist_on_one_role_each(texts: Mapping[str, str]) -> None:
    """No column is, for example, both the reward and the time."""
    roles: dict[str, str] = {}
    for role, name in texts.items():
        if name in roles and name not in (NONE, LAST):
            raise FovaError(f"columns: {roles[name]} and {role} are both {shown(name)}. Give each its own column.")
        roles[name] = role


def _text(value: Any, role: str) -> str:
    if not isinstance(value, str) or not value:
        raise FovaError(f"columns: {role} is {shown(value)}, but must be the name of one column.")
    return value


def _names(value: Any, role: str) -> tuple[str, ...]:
    names = tuple(next(csv.reader([value]), ())) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise FovaError(f"columns: {role} is {shown(value)}, but must be names of columns, as in hr,map.")
    return tuple(names)


def _some_names(value: Any, role: str) -> tuple[str, ...]:
    names = _names(value, role)
    if not names:
        raise FovaError(f"columns: {role} names no column. Name at least one, as in {role}=dose.")
    return names


def _categories(value: Any) -> dict[str, tuple[str, ...] | None]:
    if not isinstance(value, Mapping):
        return dict.fromkeys(_names(value, "categories"))
    found: dict[str, tuple[str, ...] | None] = {}
    for name, values in value.items():
        if values in (AGREED, None):
            found[str(name)] = None
            continue
        if not isinstance(values, list | tuple) or not values or not all(_is_value(each) for each in values):
            raise FovaError(f"columns: the categories of {name} are {shown(values)}, but must be a list of values.")
        found[str(name)] = tuple(dict.fromkeys(str(each) for each in values))
    return found


def _is_value(each: Any) -> bool:
    """Whether this can be the value of a cell: a text or a number."""
    return isinstance(each, str | int | float) and not isinstance(each, bool)


def _missing(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise FovaError(f"missing is {shown(value)}, but must say what to do with each column, as in hr=carry.")
    for name, way in value.items():
        kind, colon, number = str(way).partition(":")
        if kind not in MISSING:
            raise unknown(f"way to treat missing values of {name}", kind, MISSING)
        if colon and (("mean" not in kind) or not _is_number(number)):
            raise FovaError(f"missing: {name}={way} is not understood. A mean is given as {name}=mean:1.8")
    return {str(name): str(way) for name, way in value.items()}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _na(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if value == NONE:
        return ()
    values = value.split(",") if isinstance(value, str) else value
    listed = values if isinstance(values, list | tuple) else [values]
    if not all(_is_value(each) for each in listed):
        raise FovaError(f"columns: na is {shown(value)}, but must be values of the table, as in -999.")
    return tuple(str(each) for each in listed)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts lab_2 before lab_10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"([0-9]+)", name)]

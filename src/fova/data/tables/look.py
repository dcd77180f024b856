"""One column of a table as a person sees it: its name, its type, its first values, and the role that they suggest.

Nothing here is used by training.
"""

import re
from dataclasses import dataclass

import numpy as np

from fova.data.tables.arrow import Columnar, is_text
from fova.data.tables.columns import ENDED, LAST
from fova.data.tables.values import holds_numbers, is_whole
from fova.recipe import label

ENOUGH = 200_000  # rows that are looked at
MOST_SHOWN = 5

# Words in column names, by role. The first role that has a match takes the column.
WORDS = {
    "timeout": "timeout timeouts truncated truncation truncations censored",
    "terminal": "terminal terminals terminated died death dead deceased mortality failed failure done ended "
    "crashed outcome alive survived survival",
    "reward": "reward rewards score return payoff utility profit cost costs penalty penalties expense expenses",
    "episode": "episode episodes patient subject stay icustay hadm admission encounter visit trip session "
    "trajectory traj ride flight user customer vehicle",
    "time": "time timestamp step steps hour day minute date datetime charttime tick t seq sequence",
    "action": "action actions dose dosage treatment drug therapy insulin control command setpoint offer bid price "
    "decision arm lane",
}
COSTS = "cost costs penalty penalties expense expenses"  # less is better
ALIVE = "alive survived survival"  # the values 1 and yes mean that the task did not end
EITHER = "outcome"  # 1 may be a success as well as an end
NOT_ALIVE = "0 false no died dead deceased"
WHEN = f"{WORDS['time']} measured measurement recorded observed charted logged"
BIRTH = "birth birthday birthdate born dob"
RESULT = "result"  # no role that a person writes: the name says that the column is known only after the action
INDEX = re.compile(r"(unnamed:? ?\d+|index|row|row_?id|id|)", re.IGNORECASE)
DATE = re.compile(r"\s*\d{1,4}([./-])\d{1,2}\1\d{1,4}([T ].*)?")


@dataclass
class About:
    """One column as a person sees it."""

    name: str
    kind: str
    missing: int
    values: str
    role: str = ""


class Look:
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

    def says(self, words: str) -> bool:
        """Whether one of the words is in the column's name."""
        return bool(self.words & set(words.split()))

    @property
    def is_flag(self) -> bool:
        return self.boolean or (self.numbers is not None and bool(np.isin(self.numbers, (0, 1)).all()))

    @property
    def is_time(self) -> bool:
        """Whether it holds dates or time stamps, also as text."""
        return self.temporal or (self.text and self._is_text_of_dates())

    @property
    def is_date(self) -> bool:
        """Whether it holds days without a time of the day."""
        from pyarrow import types

        return bool(types.is_date(self.kind)) or (self.is_time and self.text and ":" not in str(self.values[0]))

    def _is_text_of_dates(self) -> bool:
        texts = [text for text in map(str, self.values.slice(0, 100).to_pylist()) if text]
        return bool(texts) and all(map(DATE.fullmatch, texts))

    @property
    def is_choice(self) -> bool:
        """Whether training reads it as a choice if it is an action."""
        return (self.text and not self.numeric_text) or self.whole or self.boolean

    @property
    def is_identifier(self) -> bool:
        """Whether the name says that it is one, or no value occurs twice."""
        if self.numeric_text:
            return False
        return bool(INDEX.fullmatch(self.name)) or ((self.text or self.whole) and self.different == self.rows > 1)

    @property
    def role(self) -> str:
        """The role that the name and the type suggest; "" for none."""
        if self.is_time:
            return "time"
        for role, words in WORDS.items():
            if self.says(words) and self._fits(role):
                return role
            if role == "reward" and self._is_result:
                return RESULT
        if self.name.lower().endswith("id") and (self.text or self.whole) and 1 < self.different < self.rows:
            return "episode"
        return "" if self.is_identifier or self.different < 1 else "observations"

    def _fits(self, role: str) -> bool:
        """Whether the values can be those of a role."""
        if role == "terminal":
            return self.ending is not None
        if role == "timeout":
            return self.is_flag
        if role == "reward":
            return self.numbers is not None or self.numeric_text
        return role != "episode" or self.text or self.whole

    @property
    def _is_result(self) -> bool:
        return self.different > 0 and self.says(" ".join(WORDS[role] for role in ("timeout", "terminal", "reward")))

    @property
    def ending(self) -> str | None:
        """The column as `terminal=` takes it, if its values can say that the task ended."""
        alive = self.says(ALIVE)
        if self.is_flag and self.says(EITHER):
            return None
        if self.is_flag and not (alive or self.missing):
            return self.name
        if not (self.is_flag or self.text):
            return None
        meant = (NOT_ALIVE if alive else ENDED).split()
        values = map(label, self.values.slice(0, 100).to_pylist())
        return next((f"{LAST}:{self.name}={value}" for value in values if value.lower() in meant), None)

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

"""A statement of the paper as a program, and the verdict that computation gives it.

Every statement is brought to the form left <= right on one `Case`. The verdict is derived from the margins alone:
nobody writes it down by hand.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fova.paper.theory.case import Case

TOLERANCE = 1e-8  # relative to the size of the two sides: linear solves leave about 1e-13


@dataclass(frozen=True)
class Sides:
    """left <= right on one case; `trivial` is what could stand on the right without any theorem."""

    left: float
    right: float
    trivial: float = math.inf

    @property
    def margin(self) -> float:
        return self.right - self.left

    @property
    def holds(self) -> bool:
        return bool(self.margin >= -TOLERANCE * (1.0 + abs(self.left) + abs(self.right)))

    @property
    def informative(self) -> bool:
        return bool(self.right < self.trivial)


def worst(left: ArrayLike, right: ArrayLike, trivial: float = math.inf) -> Sides:
    """The entry with the smallest margin of an inequality between arrays."""
    lefts, rights = np.broadcast_arrays(np.asarray(left, float), np.asarray(right, float))
    index = np.unravel_index(np.argmin(rights - lefts), lefts.shape)
    return Sides(float(lefts[index]), float(rights[index]), trivial)


class Verdict(StrEnum):
    HOLDS = "holds"
    SAYS_NOTHING = "holds, but the bound is never below the trivial one"
    PROOF_FAILS = "holds on all checked, though a step of the printed proof is false"
    FALSE = "false as printed"
    FAILS = "does not hold"
    SHOWN = "shown"
    NOT_SHOWN = "not seen"


# printed: the paper's own claim. proof step: one it uses on the way. reading: a loose sentence made a number.
# without its premise: a conclusion whose condition no parameters were found to meet. instead: what we offer.
Kind = Literal["printed", "proof step", "reading", "without its premise", "instead"]


@dataclass(frozen=True)
class Statement:
    """One claim, in one reading."""

    label: str  # the paper's LaTeX label, or a description where it has none
    claim: str
    check: Callable[[Case], Sides]
    kind: Kind = "printed"
    counter_example: Callable[[], Case] | None = None
    about: Literal["every world", "some world"] = "every world"
    rests_on: tuple[str, ...] = ()  # claims of the proof steps that the printed proof uses
    every: int = 1  # checked on each n-th case only, where a check is expensive


@dataclass(frozen=True)
class Row:
    """What was seen of one statement."""

    topic: str
    label: str
    claim: str
    kind: str
    checked: int
    violated: int
    smallest_margin: float
    informative: int
    counter_example_margin: float | None
    verdict: Verdict

    @property
    def finding(self) -> str:
        """The verdict, and on how many MDPs a claim of existence was seen or a true bound says anything."""
        if self.verdict is Verdict.SHOWN:
            return f"shown on {self.checked - self.violated} of {self.checked}"
        if self.verdict in (Verdict.HOLDS, Verdict.PROOF_FAILS) and self.informative < self.checked:
            return f"{self.verdict}; below the trivial bound on {self.informative} of {self.checked}"
        return str(self.verdict)


def judge(topic: str, statement: Statement, seen: list[Sides], false_claims: Mapping[str, bool]) -> Row:
    """The row of a statement from its sides on the random cases, and on its counter-example if it has one."""
    sides = list(seen)
    example = statement.check(statement.counter_example()) if statement.counter_example else None
    return Row(
        topic=topic,
        label=statement.label,
        claim=statement.claim,
        kind=statement.kind,
        checked=len(sides),
        violated=sum(not side.holds for side in sides),
        smallest_margin=min(side.margin for side in sides),
        informative=sum(side.informative for side in sides),
        counter_example_margin=example.margin if example else None,
        verdict=_verdict(statement, sides if example is None else [*sides, example], false_claims),
    )


def _verdict(statement: Statement, sides: list[Sides], false_claims: Mapping[str, bool]) -> Verdict:
    if statement.about == "some world":
        return Verdict.SHOWN if any(side.holds for side in sides) else Verdict.NOT_SHOWN
    if not all(side.holds for side in sides):
        return Verdict.FALSE if statement.kind in ("printed", "proof step") else Verdict.FAILS
    if any(false_claims[claim] for claim in statement.rests_on):
        return Verdict.PROOF_FAILS
    if not any(side.informative for side in sides):
        return Verdict.SAYS_NOTHING
    return Verdict.HOLDS

"""A statement of the paper as a program, and its computed verdict.

Every statement is written in the form left <= right on one `Case`. The verdict follows from the margins only; no
verdict is written by hand.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fova.paper.theory.case import Case

TOLERANCE = 1e-8  # relative to the size of the two sides; the error of linear solves is about 1e-13


@dataclass(frozen=True)
class Sides:
    """The inequality left <= right on one case. `trivial` is an upper bound that needs no theorem."""

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
    """The two sides of the entry with the smallest margin, for an inequality between arrays."""
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


# printed: a claim of the paper. proof step: a claim that a printed proof uses. reading: an informal sentence made
# precise. without its premise: a conclusion whose condition no tested parameters meet. instead: our correction.
Kind = Literal["printed", "proof step", "reading", "without its premise", "instead"]


@dataclass(frozen=True)
class Statement:
    """One claim in one interpretation."""

    label: str  # the paper's LaTeX label, or a description if there is none
    claim: str
    check: Callable[[Case], Sides]
    kind: Kind = "printed"
    counter_example: Callable[[], Case] | None = None
    about: Literal["every world", "some world"] = "every world"
    rests_on: tuple[str, ...] = ()  # claims of the proof steps that the printed proof uses
    every: int = 1  # checked on every n-th case only, if the check is expensive


@dataclass(frozen=True)
class Row:
    """The result of checking one statement."""

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
        """The verdict, and the number of MDPs that show an existence claim or where a bound is informative."""
        if self.verdict is Verdict.SHOWN:
            return f"shown on {self.checked - self.violated} of {self.checked}"
        if self.verdict in (Verdict.HOLDS, Verdict.PROOF_FAILS) and self.informative < self.checked:
            return f"{self.verdict}; below the trivial bound on {self.informative} of {self.checked}"
        return str(self.verdict)


def judge(topic: str, statement: Statement, seen: list[Sides], false_claims: Mapping[str, bool]) -> Row:
    """The row of a statement, from its sides on the random cases and on its counter-example, if any."""
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

"""Which runs of an experiment are trained: chosen cases, variants and seeds, and one machine's share of them."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fova.errors import FovaError, unknown
from fova.settings import shown

MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Part:
    """Chosen cases, variants and seeds; an empty choice means all of them."""

    cases: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        wrong = [seed for seed in self.seeds if not 0 <= seed < MOST_SEEDS]
        if wrong:
            raise FovaError(f"seeds has {shown(wrong[0])}, but each must be at least 0 and below {MOST_SEEDS:,}.")

    def check(self, name: str, cases: Sequence[str], variants: Sequence[str]) -> None:
        """Refuse labels that an experiment does not have."""
        for kind, chosen, known in (("case", self.cases, cases), ("variant", self.variants, variants)):
            for label in chosen:
                if label not in known:
                    raise unknown(f"{kind} of {name}", label, known)


EVERYTHING = Part()


@dataclass(frozen=True)
class Shard:
    """One of `count` equal shares of the runs. `number` counts from 1."""

    number: int
    count: int
    origin: str = ""  # who chose it, in words, if it was not the user

    @staticmethod
    def parse(text: str) -> "Shard":
        """The shard that a text such as 2/8 names."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        number, count = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= count:
            raise FovaError(
                f"shard is {shown(text)}, but must be i/n with i from 1 to n: 2/8 is the second of 8 shares."
            )
        return Shard(number, count)

    @staticmethod
    def of_slurm(environment: Mapping[str, str]) -> "Shard | None":
        """The task's share in a job array of Slurm; None outside an array, or if the array has gaps."""
        names = ("ID", "COUNT", "MIN", "MAX")
        values = [environment.get(f"SLURM_ARRAY_TASK_{name}", "") for name in names]
        if not all(value.isdecimal() for value in values):
            return None
        task, count, first, last = map(int, values)
        step = (last - first) // (count - 1) if count > 1 else 1
        number = (task - first) // max(step, 1) + 1
        if first + step * (count - 1) != last or first + step * (number - 1) != task:
            return None  # runs are claimed one by one anyway
        return Shard(number, count, "of Slurm's job array")

    def of(self, names: Sequence[str]) -> list[str]:
        """The runs of this share, in their order. Which share a run is in depends on the names alone.

        The order in which runs are dealt out is random but fixed: in their own order, every share could get the
        runs of one algorithm only.
        """
        dealt = sorted(names, key=lambda name: hashlib.blake2b(name.encode()).digest())
        mine = set(dealt[self.number - 1 :: self.count])
        return [name for name in names if name in mine]

    def words(self) -> str:
        return " ".join(filter(None, (f"share {self.number} of {self.count}", self.origin)))

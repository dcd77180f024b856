"""An experiment as data: which tasks and clients, which algorithms, at which scale; and the runs that follow.

An entry is a table of cases (rows: a task, its clients, what they hold) and variants (lines: an algorithm and what
it is set to); every case is run with every variant and every seed. Nothing is trained or read here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fova import algorithms
from fova.data.tables.columns import Columns
from fova.errors import FovaError, unknown
from fova.experiments.parts import EVERYTHING, Part
from fova.federation.client_specs import ClientSpec
from fova.run.config import Config, RunConfig
from fova.settings import fill

Mode = Literal["federated", "local", "centralised"]
Settings = Mapping[str, Any]
# What an entry's table shows; "return" is that of the server's policy.
Measured = Literal[
    "return",
    "server minus mean client",
    "every client",
    "PER and BWT",
    "memory and time",
    "distance to the global policy",
]


@dataclass(frozen=True)
class Variant:
    """One line: an algorithm and what it is set to."""

    label: str
    algorithm: str  # a name, or the path of a .py file
    preset: str | None = None
    settings: Settings = field(default_factory=dict)  # of the algorithm
    run: Settings = field(default_factory=dict)  # fields of RunConfig, for instance its aggregation
    mode: Mode = "federated"
    paper: str | None = None  # its column in the paper's tables (`fova.reports.paper_figures`)


@dataclass(frozen=True)
class Case:
    """One row: a task, its clients and what they hold."""

    label: str
    task: str | None  # None: the clients are data files
    clients: tuple[str | ClientSpec, ...]
    size: int | None = None  # transitions of each client that does not say so itself
    settings: Settings = field(default_factory=dict)  # of every algorithm that has them: a swept value
    run: Settings = field(default_factory=dict)  # fields of RunConfig
    variants: tuple[Variant, ...] = ()  # which run here; by default the entry's
    at: float | None = None  # where the case stands on the entry's axis
    paper: str | None = None  # its row there
    columns: Columns | None = None  # what the columns of the clients' tables mean, if they are tables
    group: str | None = None  # cases of one group are also summed up by themselves

    def specs(self, most_rows: int | None) -> tuple[ClientSpec, ...]:
        """The clients, each with its size, none larger than `most_rows`."""
        named = (ClientSpec(client) if isinstance(client, str) else client for client in self.clients)
        sized = (replace(spec, size=spec.size or self.size) for spec in named)
        if most_rows is None:
            return tuple(sized)
        return tuple(replace(spec, size=min(spec.size or most_rows, most_rows)) for spec in sized)


@dataclass(frozen=True)
class Scale:
    """How much is spent: the same for every algorithm of an entry."""

    name: str
    seeds: int
    run: Settings  # fields of RunConfig: rounds, local_steps, ...
    settings: Settings = field(default_factory=dict)  # of every algorithm that has them: hidden, batch_size, ...
    most_rows: int | None = None  # clients are cut to so many transitions
    most_cases: int | None = None  # so many cases are run, spread over the entry's

    def words(self) -> str:
        """What is printed on every table and picture."""
        steps = f"{self.run['rounds']:,} rounds of {self.run['local_steps']:,} local steps"
        nets = f", networks {'×'.join(map(str, self.settings['hidden']))}" if "hidden" in self.settings else ""
        return f"scale {self.name}: {steps}{nets}, {self.seeds} seed{'s' if self.seeds > 1 else ''}"


class PlannedRun(NamedTuple):
    """One training of an entry."""

    name: str  # of its directory
    config: Config
    case: str
    variant: str
    at: float | None
    paper: tuple[str, str] | None  # row and column in the paper's table


@dataclass(frozen=True)
class Entry:
    """One experiment."""

    name: str
    title: str
    cases: tuple[Case, ...]
    variants: tuple[Variant, ...]
    scales: Mapping[str, Scale]
    measured: Measured = "return"
    axis: str | None = None  # what the cases are a sweep of
    run: Settings = field(default_factory=dict)  # fields of RunConfig that belong to what is measured
    source: str = ""  # where the paper has it

    def scale(self, name: str) -> Scale:
        if name not in self.scales:
            raise unknown("scale", name, self.scales)
        return self.scales[name]

    def runs(self, scale: Scale, part: Part = EVERYTHING) -> list[PlannedRun]:
        """Every run, all of one seed before the next seed: a table can be had early.

        A part may have cases that the scale leaves out, and more seeds than it has.
        """
        part.check(self.name, [case.label for case in self.cases], self._variants())
        cases = [case for case in self.cases if case.label in part.cases] or _spread(self.cases, scale.most_cases)
        planned = [
            self._planned(case, variant, seed, scale)
            for seed in part.seeds or range(scale.seeds)
            for case in cases
            for variant in case.variants or self.variants
            if not part.variants or variant.label in part.variants
        ]
        if not planned:
            raise FovaError(f"None of the chosen cases of {self.name} has a chosen variant. See: --dry-run")
        names = [run.name for run in planned]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FovaError(f"Two runs of {self.name} would both be called {twice[0]!r}. Give them other labels.")
        return planned

    def _variants(self) -> list[str]:
        """The labels of all variants, of single cases, too."""
        everywhere = [variant for case in self.cases for variant in case.variants or self.variants]
        return list(dict.fromkeys(variant.label for variant in everywhere))

    def _planned(self, case: Case, variant: Variant, seed: int, scale: Scale) -> PlannedRun:
        known = algorithms.get(variant.algorithm).__dataclass_fields__  # type: ignore[attr-defined]
        shared = {name: value for name, value in {**scale.settings, **case.settings}.items() if name in known}
        run = {**scale.run, **self.run, **case.run, **variant.run, "mode": variant.mode, "seed": seed}
        config = Config(
            task=case.task,
            clients=case.specs(scale.most_rows),
            algorithm=algorithms.configure(
                variant.algorithm, preset=variant.preset, **{**shared, **variant.settings}
            ),
            algorithm_name=variant.algorithm,
            run=fill(RunConfig, run, f"of the run of {self.name}"),
            columns=case.columns,
        )
        words = ([case.label] if len(self.cases) > 1 else []) + [variant.label, "seed", str(seed)]
        paper = (case.paper or case.label, variant.paper) if variant.paper else None
        return PlannedRun("-".join(map(_plain, words)), config, case.label, variant.label, case.at, paper)


def line_of(algorithm: str, mode: Mode = "federated") -> Variant:
    """An algorithm as it comes, in one mode."""
    stem = Path(algorithm).stem
    return Variant(stem if mode == "federated" else f"{stem} ({mode})", algorithm, mode=mode)


def _plain(label: str) -> str:
    """A label as part of a directory's name."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-")


def _spread(cases: tuple[Case, ...], most: int | None) -> list[Case]:
    """At most so many cases, the first and the last among them."""
    if most is None or len(cases) <= most:
        return list(cases)
    last = len(cases) - 1
    return [cases[round(i * last / max(most - 1, 1))] for i in range(most)]

"""The runs of a report, grouped: runs that differ only in the seed belong together."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from fova.data.tables.columns import Columns
from fova.errors import FovaError
from fova.evaluation.judging.verdict import Verdict
from fova.federation.client_specs import complete
from fova.run.records import Record, read_record
from fova.settings import setting_name


@dataclass(frozen=True)
class Group:
    """Runs of one setting that differ only in the seed."""

    label: str
    records: tuple[Record, ...]

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def name(self) -> str:
        """The name of its run; of several runs, what their names begin with, or the algorithm."""
        return _common_name(self.records) or self.algorithm

    @property
    def task(self) -> str | None:
        return self.first.config.task

    @property
    def algorithm(self) -> str:
        return self.first.algorithm

    @property
    def mode(self) -> str:
        return self.first.run.mode

    @property
    def seeds(self) -> list[int]:
        return [record.seed for record in self.records]

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the first run that was judged; None if none was."""
        return next((record.verdict for record in self.records if record.verdict is not None), None)

    @property
    def client_names(self) -> list[str]:
        return list(self.first.clients)

    @property
    def finals(self) -> list[float]:
        """The server's mean return at the end of every finished run that was played."""
        return [record.final.server.mean_return for record in self.records if record.final is not None]

    def client_values(self, values: Callable[[Record], Mapping[str, float]]) -> dict[str, list[float]]:
        """By client, some value of every record that has it."""
        found: dict[str, list[float]] = {}
        for record in self.records:
            for client, value in values(record).items():
                found.setdefault(client, []).append(value)
        return found

    def client_means(self, values: Callable[[Record], Mapping[str, float]]) -> dict[str, float]:
        """By client, the mean over seeds of some values of the records."""
        return {client: float(np.mean(each)) for client, each in self.client_values(values).items()}


def read_groups(paths: Sequence[Path]) -> list[Group]:
    """The groups of the runs at these paths, in the order given. A path is a run directory or a folder of them."""
    records = [read_record(directory) for directory in _run_directories(paths)]
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(repr(_setting(record)), []).append(record)
    by_seed = [tuple(sorted(group, key=lambda record: record.seed)) for group in groups.values()]
    return [Group(label, group) for label, group in zip(_labels(by_seed), by_seed)]


def _run_directories(paths: Iterable[Path]) -> list[Path]:
    found: dict[Path, Path] = {}  # by their real paths: a run that is named twice counts once
    for path in paths:
        inside = runs_below(path)
        if not inside:
            raise FovaError(
                f"{path} is neither a run's directory nor a folder of runs: there is no config.toml in it. "
                "Runs are kept under runs/."
            )
        found |= {Path(os.path.realpath(run)): run for run in inside if Path(os.path.realpath(run)) not in found}
    if not found:
        raise FovaError("No run was named. Name one or more, for instance: runs/demo-1")
    return list(found.values())


def runs_below(path: Path, most: int | None = None) -> list[Path]:
    """The run directories at or below a path in order, the first `most` of them. A run has no other run inside."""
    found = (Path(folder) for folder, inside, files in _walk(path) if "config.toml" in files)
    return list(islice(found, most))


def _walk(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for folder, inside, files in os.walk(path):
        inside[:] = [] if "config.toml" in files else sorted(inside)
        yield folder, inside, files


# --- Which settings differ ---

MOST_DETAILS = 3  # settings that a label names
UNSET: tuple[Any, ...] = (None, (), [])
DATA = ("task", "clients", "size", "offset")  # runs are compared only if these are the same


def comparable(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups with the same task and data, by name: the task, and what differs in the data of that task."""
    found: dict[tuple[Any, ...], list[Group]] = {}
    for group in groups:
        setting = _setting(group.first)
        found.setdefault(tuple(setting[key] for key in DATA), []).append(group)
    named: dict[str, list[Group]] = {}
    for key, members in found.items():
        same_name = [other for other in found if other[0] == key[0]]
        differing = [i for i in range(1, len(DATA)) if len({other[i] for other in same_name}) > 1]
        details = [_value(key[i]) if DATA[i] == "clients" else _in_words(DATA[i], key[i]) for i in differing]
        named[", ".join([key[0] or "own data", *details])] = members
    return named


def _setting(record: Record) -> dict[str, Any]:
    """The settings that all runs of a group share."""
    config = record.config
    clients = complete(config.clients)
    setting = {
        "algorithm": config.algorithm or "fova",
        "mode": record.run.mode,
        "task": config.task,
        "clients": " + ".join(str(client.name) for client in clients),
        "size": _one_or_all([client.size for client in clients]),
        "offset": _one_or_all([client.offset for client in clients]),
        **(Columns.of(config.columns).to_table() if config.columns else {}),
        **{name: value for name, value in vars(record.run).items() if name not in ("seed", "mode")},
        "sampling": record.sampling,
    }
    return setting | {name: value for name, value in config.settings.items() if name not in setting}


def _labels(groups: Sequence[Sequence[Record]]) -> list[str]:
    """The algorithm; where several groups have the same one, also the name of the run and the settings that differ.

    A setting that is not set is left out. Of many settings, as two presets have them, the first ones are named, if
    that tells the groups apart.
    """
    settings = [_setting(group[0]) for group in groups]
    names = [_name(setting) for setting in settings]
    whole, short = [], []
    for records, setting, name in zip(groups, settings, names):
        same_name = [other for other, other_name in zip(settings, names) if other_name == name]
        differing = [key for key in setting if any(other.get(key) != setting[key] for other in same_name)]
        details = [_in_words(key, setting[key]) for key in differing if key == "task" or setting[key] not in UNSET]
        run = _common_name(records) if len(same_name) > 1 else ""
        first = f"{run}: {name}" if run not in ("", name) else name
        whole.append(", ".join([first, *details]))
        left_out = len(details) - MOST_DETAILS + 1
        short.append(", ".join([first, *details[:-left_out], f"{left_out} more"]) if left_out > 1 else whole[-1])
    return [label if short.count(label) == 1 else whole[i] for i, label in enumerate(short)]


def _name(setting: dict[str, Any]) -> str:
    name = Path(setting["algorithm"]).stem
    return name if setting["mode"] == "federated" else f"{name} ({setting['mode']})"


def _common_name(records: Sequence[Record]) -> str:
    """The words that the names of all runs begin with; of one run, its whole name."""
    words = zip(*(record.directory.resolve().name.split("-") for record in records))
    return "-".join(each[0] for each in takewhile(lambda each: len(set(each)) == 1, words))


def _in_words(name: str, value: Any) -> str:
    """A setting as a person would write it."""
    if name == "task":
        return value or "own data"
    if isinstance(value, bool):
        return f"{setting_name(name)} {'on' if value else 'off'}"
    return f"{setting_name(name)} {_value(value)}"


def _value(value: Any) -> str:
    if value in UNSET:
        return "default"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={each}" for key, each in value.items())
    return ",".join(map(_value, value)) if isinstance(value, list | tuple) else str(value)


def _one_or_all(values: Sequence[Any]) -> Any:
    """The value, where all clients have the same; else all of them."""
    return values[0] if len(set(values)) == 1 else tuple(values)

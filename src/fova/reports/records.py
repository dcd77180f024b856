"""What a report knows: runs as their directories tell, those that differ only in the seed taken together.

Only reads. A run under way or interrupted is a run, too; it has no final evaluation yet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fova.errors import FovaError
from fova.federation.clients import complete
from fova.run.config import ConfigFile, RunConfig, read_toml
from fova.run.directory import RunDirectory
from fova.settings import fill


@dataclass(frozen=True)
class Record:
    """One run."""

    directory: Path
    config: ConfigFile
    run: RunConfig
    metrics: list[dict[str, Any]]  # one entry per round
    clients: dict[str, dict[str, Any]]  # what is known of each client: over a network, nothing of its data
    result: dict[str, dict[str, Any]]  # the final evaluation by policy; empty until the run is complete
    complete: bool

    @property
    def seed(self) -> int:
        return self.run.seed

    @property
    def rounds_done(self) -> int:
        return self.metrics[-1]["round"] if self.metrics else 0

    @cached_property
    def evaluations(self) -> dict[int, float]:
        """Round -> the server's mean return there."""
        return {entry["round"]: entry["server"]["return"] for entry in self.metrics if "server" in entry}

    @property
    def final_return(self) -> float | None:
        return self.result["server"]["return"] if "server" in self.result else None

    @property
    def client_returns(self) -> dict[str, float]:
        """What each client's own policy earned at the end."""
        return {name: played["return"] for name, played in self.result.items() if name != "server"}

    @property
    def behaviour(self) -> dict[str, float]:
        """What the behaviour in each client's data earned."""
        known = {name: client.get("behaviour_return") for name, client in self.clients.items()}
        return {name: value for name, value in known.items() if value is not None}

    @property
    def rows(self) -> dict[str, int]:
        """How many transitions each client holds, as far as it was told."""
        known = {name: client.get("rows") for name, client in self.clients.items()}
        return {name: count for name, count in known.items() if count is not None}


@dataclass(frozen=True)
class Group:
    """Runs of one setting that differ only in the seed."""

    label: str
    records: tuple[Record, ...]

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def task(self) -> str | None:
        return self.first.config.task

    @property
    def algorithm(self) -> str:
        return Path(self.first.config.algorithm or "fova").stem

    @property
    def mode(self) -> str:
        return self.first.run.mode

    @property
    def seeds(self) -> list[int]:
        return [record.seed for record in self.records]

    @property
    def client_names(self) -> list[str]:
        return list(self.first.clients)

    @property
    def finals(self) -> list[float]:
        """The server's final mean return of every finished run that was played."""
        return [record.final_return for record in self.records if record.final_return is not None]


def read_groups(paths: Sequence[Path]) -> list[Group]:
    """The runs at these paths, each a run's directory or a folder of them, in the order they were named."""
    records = [read_record(directory) for directory in _run_directories(paths)]
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(repr(_setting(record)), []).append(record)
    alike = [tuple(sorted(group, key=lambda record: record.seed)) for group in groups.values()]
    return [Group(label, group) for label, group in zip(_labels(alike), alike)]


def read_record(directory: Path) -> Record:
    """One run's files."""
    run = RunDirectory.open(directory)
    config = read_toml(directory / "config.toml")
    complete = run.is_complete()
    return Record(
        directory=directory,
        config=config,
        run=fill(RunConfig, config.run, f"of [run] in {directory / 'config.toml'}"),
        metrics=run.metrics(),
        clients=run.read_json("clients.json") if (directory / "clients.json").exists() else {},
        result=run.read_json("result.json") if complete else {},
        complete=complete,
    )


def _run_directories(paths: Iterable[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for path in paths:
        if (path / "config.toml").is_file():
            inside = [path]
        else:
            inside = sorted(file.parent for file in path.rglob("config.toml"))
        if not inside:
            raise FovaError(
                f"{path} is neither a run's directory nor a folder of runs: there is no config.toml in it. "
                "Runs are kept under runs/."
            )
        found |= dict.fromkeys(inside)
    if not found:
        raise FovaError("No run was named. Name one or more, for instance: runs/demo-1")
    return list(found)


# --- What sets runs apart ---

DATA = ("task", "clients", "size", "offset")  # what must be the same where algorithms are compared


def comparable(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups on the same task with the same data, by a name: the task, and the data where a task has several."""
    found: dict[tuple[Any, ...], list[Group]] = {}
    for group in groups:
        setting = _setting(group.first)
        found.setdefault(tuple(setting[key] for key in DATA), []).append(group)
    named: dict[str, list[Group]] = {}
    for key, alike in found.items():
        namesakes = [other for other in found if other[0] == key[0]]
        tells_apart = [i for i in range(1, len(DATA)) if len({other[i] for other in namesakes}) > 1]
        details = [str(key[i]) if DATA[i] == "clients" else f"{DATA[i]} {key[i]}" for i in tells_apart]
        named[", ".join([key[0] or "own data", *details])] = alike
    return named


def _setting(record: Record) -> dict[str, Any]:
    """Everything that two runs of one group share."""
    config = record.config
    clients = complete(config.clients)
    return {
        "algorithm": config.algorithm or "fova",
        "mode": record.run.mode,
        "task": config.task,
        "clients": " + ".join(str(client.name) for client in clients),
        "size": _one_or_all([client.size for client in clients]),
        "offset": _one_or_all([client.offset for client in clients]),
        **{name: value for name, value in vars(record.run).items() if name not in ("seed", "mode")},
        **config.settings,
    }


def _labels(groups: Sequence[Sequence[Record]]) -> list[str]:
    """The algorithm and, where that does not tell the groups apart, the settings that differ."""
    settings = [_setting(group[0]) for group in groups]
    names = [_name(setting) for setting in settings]
    labels = []
    for setting, name in zip(settings, names):
        namesakes = [other for other, its_name in zip(settings, names) if its_name == name]
        tells_apart = [key for key in setting if any(other.get(key) != setting[key] for other in namesakes)]
        details = [str(setting[key]) if key == "task" else f"{key} {setting[key]}" for key in tells_apart]
        labels.append(", ".join([name, *details]))
    return labels


def _name(setting: dict[str, Any]) -> str:
    name = Path(setting["algorithm"]).stem
    return name if setting["mode"] == "federated" else f"{name} ({setting['mode']})"


def _one_or_all(values: Sequence[Any]) -> str:
    return str(values[0]) if len(set(values)) == 1 else ", ".join(map(str, values))

"""The results of an experiment: a summary of its run directories in one small JSON file.

Result files are committed; tables and charts are made from them. The run directories may be deleted once the file
is written. One line is one run, so that a change reads well as a diff. Figures keep six digits.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fova import algorithms
from fova.errors import FovaError
from fova.evaluation.metrics import (
    Evaluation,
    Played,
    best_of_training,
    policy_distances,
    vote_shares,
    with_final,
)
from fova.experiments.parts import Part
from fova.experiments.specifications import Entry, Measured, PlannedRun, Scale
from fova.federation.client_specs import complete
from fova.machine.files import insist_on_regular, write_atomically
from fova.run.config import Config
from fova.run.directory import RunDirectory
from fova.run.records import ClientFacts, Record, RoundRecord, read_record
from fova.settings import fill
from fova.version import __version__

FORMAT = 1
WINDOWS = 20  # without evaluations, vote shares and distances are means over so many pieces of the run


@dataclass(frozen=True)
class RunResult:
    """One run. Of the algorithm's settings only those that differ from its preset are kept."""

    name: str
    case: str
    variant: str
    at: float | None
    paper: list[str] | None  # row and column in the paper's table
    algorithm: str
    preset: str
    settings: dict[str, Any]
    run: dict[str, Any]  # mode, rounds, local_steps and whatever else is not RunConfig's default
    task: str | None
    seed: int
    clients: dict[str, dict[str, Any]]  # data, rows, episodes, behaviour_return
    evaluations: list[Evaluation]
    final: Evaluation | None  # None without a task
    votes: dict[str, dict[str, list[float]]]  # round -> client -> shares of local, behaviour, global
    distances: dict[str, dict[str, float]]  # round -> client -> total variation to the global policy
    bytes_each_way: int | None  # of parameters, for one client in one round; None if it was not logged
    gradient_steps: int
    seconds_training: float
    seconds_evaluating: float
    peak_memory_mb: float | None
    seconds_median_round: float | None = None  # of training; unlike the sum, it does not include compilation
    configuration: str | None = None  # digest of all settings, the preset's included; older files have none
    # a[i][j]: the return after stage i from states of the data of stage j; empty if the data is never replaced
    stages: list[list[float]] = field(default_factory=list)

    @property
    def mode(self) -> str:
        return str(self.run.get("mode", "federated"))

    @property
    def best_of_training(self) -> Evaluation:
        return best_of_training(self.evaluations)

    def behaviour_return(self) -> float:
        """The mean over clients of the return in their data: the line to beat."""
        return float(np.mean([client["behaviour_return"] for client in self.clients.values()]))


@dataclass(frozen=True)
class Results:
    """A result file."""

    name: str
    title: str
    scale: str  # in words
    runs: list[RunResult]
    axis: str | None
    measured: Measured
    made_with: str = field(default=f"fova {__version__}")

    def save(self, path: Path) -> None:
        head = {"format": FORMAT} | {name: value for name, value in vars(self).items() if name != "runs"}
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        runs = ",\n".join(json.dumps(_short(asdict(run))) for run in self.runs)
        write_atomically(path, ("{" + ",\n".join(lines) + ',\n"runs": [\n' + runs + "\n]}\n").encode())

    @staticmethod
    def load(path: Path) -> "Results":
        try:
            content = json.loads(insist_on_regular(path).read_text(encoding="utf-8"))
            if content.pop("format") != FORMAT:
                raise FovaError(f"{path} was written by another version of fova; collect its runs again.")
            runs = [_run_from_json(run) for run in content.pop("runs")]
            return Results(**content, runs=runs)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FovaError(f"{path} is not a result file of fova: {error!r}") from error

    def of(self, **wanted: Any) -> list[RunResult]:
        """The runs whose fields are as wanted, by seed: `of(case="hopper", variant="fova")`."""
        found = [run for run in self.runs if all(getattr(run, name) == value for name, value in wanted.items())]
        return sorted(found, key=lambda run: run.seed)

    def cases(self) -> list[str]:
        return list(dict.fromkeys(run.case for run in self.runs))

    def variants(self) -> list[str]:
        return list(dict.fromkeys(run.variant for run in self.runs))


def collect(entry: Entry, scale: Scale, directory: Path, kept: Sequence[RunResult] = ()) -> Results:
    """The results of all finished runs of an entry in a directory, and of `kept` ones that are not there."""
    planned = candidates(entry, scale, directory, [run.seed for run in kept])
    order = {run.name: place for place, run in enumerate(planned)}
    finished = [run for run in planned if RunDirectory(directory / run.name).is_complete()]
    runs = [summarise_run(run, read_record(directory / run.name)) for run in finished]
    here = {run.name for run in finished}
    runs += [run for run in kept if run.name not in here]
    if not runs:
        raise FovaError(f"{directory} holds no finished run of {entry.name}.")
    return Results(
        name=entry.name,
        title=entry.title,
        scale=replace(scale, seeds=len({run.seed for run in runs})).words(),
        runs=sorted(runs, key=lambda run: order[run.name]),
        axis=entry.axis,
        measured=entry.measured,
    )


def candidates(entry: Entry, scale: Scale, directory: Path, seeds: Iterable[int] = ()) -> list[PlannedRun]:
    """All runs of an entry that a directory may hold: every case, with the seeds of the scale and further ones."""
    found = (re.search(r"-seed-(\d{1,9})$", path.parent.name) for path in directory.glob("*/config.toml"))
    every = {*range(scale.seeds), *seeds, *(int(name[1]) for name in found if name)}
    return entry.runs(scale, Part(cases=tuple(case.label for case in entry.cases), seeds=tuple(sorted(every))))


def summarise_run(planned: PlannedRun, record: Record) -> RunResult:
    """The result of a finished run."""
    windows = _windows(record)
    seconds = [line.seconds for line in record.timing]
    memory = [line.peak_memory_mb for line in record.timing if line.peak_memory_mb is not None]
    return RunResult(
        **about(planned),
        clients=_clients(planned.config, record.clients),
        evaluations=record.evaluations,
        final=record.final,
        votes=_each_window(windows, vote_shares),
        distances=_each_window(windows, policy_distances),
        bytes_each_way=_bytes_each_way(record),
        seconds_training=sum(seconds),
        seconds_evaluating=sum(line.evaluation for line in record.timing),
        peak_memory_mb=max(memory, default=None),
        seconds_median_round=float(np.median(seconds)) if seconds else None,
        stages=[list(line.stages) for line in record.rounds if line.stages],
    )


def about(planned: PlannedRun) -> dict[str, Any]:
    """What a result says about the configuration of its run."""
    config = planned.config
    preset, settings = _nearest_preset(config)
    return {
        "name": planned.name,
        "case": planned.case,
        "variant": planned.variant,
        "at": planned.at,
        "paper": list(planned.paper) if planned.paper else None,
        "algorithm": Path(config.algorithm_name).stem,
        "preset": preset,
        "settings": settings,
        "run": _not_default(config),
        "task": config.task,
        "seed": config.run.seed,
        "gradient_steps": config.gradient_steps,
        "configuration": _configuration(config),
    }


# --- From a record ---------------------------------------------------------------------------------


def _nearest_preset(config: Config) -> tuple[str, dict[str, Any]]:
    """The preset that explains most of the settings, and those that differ from it."""
    presets = getattr(type(config.algorithm), "presets", {"default": {}})

    def differences(preset: str) -> dict[str, Any]:
        stock = asdict(algorithms.configure(config.algorithm_name, preset=preset))
        return {name: value for name, value in asdict(config.algorithm).items() if value != stock[name]}

    found = {preset: differences(preset) for preset in presets}
    nearest = min(found, key=lambda preset: len(found[preset]))
    return nearest, found[nearest]


# Settings that came after results were stored, with the value that stands for what was done before them.
CAME_LATER = {"shared_std": False, "sampling": "algorithm", "episode_weights": "plain"}


def _configuration(config: Config) -> str:
    """A digest of all settings. The data has digests of its own, so it does not matter where its files are."""
    clients = [asdict(client) | {"data": Path(client.data).name} for client in config.clients]
    run, algorithm = (
        {name: value for name, value in asdict(part).items() if name not in CAME_LATER or value != CAME_LATER[name]}
        for part in (config.run, config.algorithm)
    )
    text = json.dumps([run, algorithm, config.task, clients], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _not_default(config: Config) -> dict[str, Any]:
    stock = asdict(type(config.run)())
    always = ("mode", "rounds", "local_steps")
    given = asdict(config.run)
    return {n: given[n] for n in given if n != "seed" and (n in always or given[n] != stock[n])}


def _clients(config: Config, clients: Mapping[str, ClientFacts]) -> dict[str, dict[str, Any]]:
    sequence = ", ".join(config.run.data_sequence)
    data = {spec.name: sequence or spec.data for spec in complete(config.clients)}
    known = {
        name: {key: value for key, value in vars(facts).items() if value is not None}
        for name, facts in clients.items()
    }
    return {name: {"data": data.get(name, name), **facts} for name, facts in known.items()}


def _windows(record: Record) -> dict[int, list[RoundRecord]]:
    """The rounds between an evaluation and the one before it, by the last of them.

    Without evaluations the run is cut into some equal pieces.
    """
    rounds = record.run.rounds
    ends = [evaluation.round for evaluation in record.evaluations if evaluation.round > 0]
    ends = ends or sorted({max(1, round(rounds * i / WINDOWS)) for i in range(1, WINDOWS + 1)})
    return {
        end: [line for line in record.rounds if start < line.number <= end] for start, end in zip([0, *ends], ends)
    }


def _each_window(
    windows: Mapping[int, list[RoundRecord]], measure: Callable[[list[Mapping[str, Any]]], Mapping[str, Any]]
) -> dict[str, Any]:
    measured = {str(end): dict(measure([vars(line) for line in lines])) for end, lines in windows.items()}
    return {end: clients for end, clients in measured.items() if clients}


def _bytes_each_way(record: Record) -> int | None:
    """The size of the broadcast. A client's parameters have the same size. Other modes send nothing."""
    if record.run.mode != "federated":
        return 0
    return record.last_round.traffic.down if record.last_round and record.last_round.traffic else None


# --- JSON -------------------------------------------------------------------------------------------------


def in_json(value: Any) -> Any:
    """A value as it reads after it was written to a result file."""
    return json.loads(json.dumps(_short(value)))


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_short(item) for item in value]
    return value


def _run_from_json(run: dict[str, Any]) -> RunResult:
    along, final = [_evaluation_from_json(evaluation) for evaluation in run.pop("evaluations")], run.pop("final")
    final = _evaluation_from_json(final) if final else None
    return fill(RunResult, run | {"evaluations": with_final(along, final), "final": final}, "of a run")


def _evaluation_from_json(content: Mapping[str, Any]) -> Evaluation:
    clients = {name: Played(*figures) for name, figures in content["clients"].items()}
    return Evaluation(content["round"], content["steps"], Played(*content["server"]), clients)

"""What an experiment found, distilled from its run directories into one small JSON file.

A result file is what is committed, drawn and tabulated; the run directories may be deleted once it is written. One
line of it is one run, so that changes can be read as a difference. Figures keep six digits.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from fova import algorithms
from fova.errors import FovaError
from fova.evaluation.metrics import (
    Evaluation,
    Played,
    best_of_training,
    policy_distances,
    vote_shares,
)
from fova.experiments.specifications import Entry, Measured, PlannedRun, Scale
from fova.federation.clients import complete
from fova.machine.files import write_atomically
from fova.run.checkpoint import checkpoints
from fova.run.config import Config
from fova.run.directory import RunDirectory
from fova.version import __version__

FORMAT = 1
WINDOWS = 20  # without evaluations, vote shares and distances are means over so many pieces of the run


@dataclass(frozen=True)
class RunResult:
    """One run. Of the algorithm only what differs from its preset is named."""

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
    bytes_each_way: int | None  # of parameters, for one client in one round; None if no checkpoint was left
    gradient_steps: int
    seconds_training: float
    seconds_evaluating: float
    peak_memory_mb: float | None
    seconds_median_round: float | None = None  # of training; unlike the sum it leaves out compilation

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
    scale: str  # what it was spent, in words
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
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.pop("format") != FORMAT:
                raise FovaError(f"{path} was written by another version of fova; collect its runs again.")
            runs = [_run_from_json(run) for run in content.pop("runs")]
            return Results(**content, runs=runs)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FovaError(f"{path} is not a result file of fova: {error!r}") from error

    def of(self, **wanted: Any) -> list[RunResult]:
        """The runs whose fields are as wanted, by seed: `of(case="hopper", variant="fova")`."""
        found = [run for run in self.runs if all(getattr(run, name) == value for name, value in wanted.items())]
        return sorted(found, key=lambda run: run.seed)

    def cases(self) -> list[str]:
        return list(dict.fromkeys(run.case for run in self.runs))

    def variants(self) -> list[str]:
        return list(dict.fromkeys(run.variant for run in self.runs))


def collect(entry: Entry, scale: Scale, directory: Path) -> Results:
    """The finished runs of an entry; what is not finished is left out."""
    planned = [run for run in entry.runs(scale) if RunDirectory(directory / run.name).is_complete()]
    if not planned:
        raise FovaError(f"{directory} holds no finished run of {entry.name}.")
    return Results(
        name=entry.name,
        title=entry.title,
        scale=scale.words(),
        runs=[distil(run, directory / run.name) for run in planned],
        axis=entry.axis,
        measured=entry.measured,
    )


def distil(planned: PlannedRun, path: Path) -> RunResult:
    """What a finished run directory says, in brief."""
    run, config = RunDirectory.open(path), planned.config
    entries, timing = run.metrics(), run.timing()
    preset, settings = _nearest_preset(config)
    windows = _windows(entries, config.run.rounds)
    memory = [line["peak_memory_mb"] for line in timing if "peak_memory_mb" in line]
    return RunResult(
        name=planned.name,
        case=planned.case,
        variant=planned.variant,
        at=planned.at,
        paper=list(planned.paper) if planned.paper else None,
        algorithm=Path(config.algorithm_name).stem,
        preset=preset,
        settings=settings,
        run=_not_default(config),
        task=config.task,
        seed=config.run.seed,
        clients=_clients(config, run.read_json("clients.json")),
        evaluations=[_evaluation(entry, config) for entry in entries if "server" in entry],
        final=_final(run.read_json("result.json"), config),
        votes=_each_window(windows, vote_shares),
        distances=_each_window(windows, policy_distances),
        bytes_each_way=_bytes_each_way(run, config),
        gradient_steps=config.gradient_steps,
        seconds_training=sum(line["seconds"] for line in timing),
        seconds_evaluating=sum(line["evaluation"] for line in timing),
        peak_memory_mb=max(memory) if memory else None,
        seconds_median_round=float(np.median([line["seconds"] for line in timing])),
    )


# --- From a run directory ---------------------------------------------------------------------------------


def _nearest_preset(config: Config) -> tuple[str, dict[str, Any]]:
    """The preset that explains most of the settings, and those that differ from it."""
    presets = getattr(type(config.algorithm), "presets", {"default": {}})

    def differences(preset: str) -> dict[str, Any]:
        stock = asdict(algorithms.configure(config.algorithm_name, preset=preset))
        return {name: value for name, value in asdict(config.algorithm).items() if value != stock[name]}

    found = {preset: differences(preset) for preset in presets}
    nearest = min(found, key=lambda preset: len(found[preset]))
    return nearest, found[nearest]


def _not_default(config: Config) -> dict[str, Any]:
    stock = asdict(type(config.run)())
    always = ("mode", "rounds", "local_steps")
    given = asdict(config.run)
    return {n: given[n] for n in given if n != "seed" and (n in always or given[n] != stock[n])}


def _clients(config: Config, facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    in_turn = ", ".join(config.run.data_sequence)
    data = {spec.name: in_turn or spec.data for spec in complete(config.clients)}
    return {name: {"data": data.get(name, name), **about} for name, about in facts.items()}


def _played(figures: Mapping[str, Any]) -> Played:
    return Played(figures["return"], figures["return_std"], figures["score"])


def _evaluation(entry: Mapping[str, Any], config: Config) -> Evaluation:
    clients = {name: _played(figures) for name, figures in entry.get("client_play", {}).items()}
    return Evaluation(entry["round"], entry["round"] * config.run.local_steps, _played(entry["server"]), clients)


def _final(result: Mapping[str, Any], config: Config) -> Evaluation | None:
    if "server" not in result:
        return None
    clients = {name: figures for name, figures in result.items() if name != "server"}
    entry = {"round": config.run.rounds, "server": result["server"], "client_play": clients}
    return _evaluation(entry, config)


def _windows(entries: Sequence[Mapping[str, Any]], rounds: int) -> dict[int, list[Mapping[str, Any]]]:
    """The rounds up to each evaluation since the one before; without evaluations, some even pieces."""
    ends = [entry["round"] for entry in entries if "server" in entry and entry["round"] > 0]
    ends = ends or sorted({max(1, round(rounds * i / WINDOWS)) for i in range(1, WINDOWS + 1)})
    return {
        end: [entry for entry in entries if start < entry["round"] <= end] for start, end in zip([0, *ends], ends)
    }


def _each_window(
    windows: Mapping[int, list[Mapping[str, Any]]], measure: Callable[[list[Mapping[str, Any]]], Mapping[str, Any]]
) -> dict[str, Any]:
    measured = {str(end): dict(measure(entries)) for end, entries in windows.items()}
    return {end: clients for end, clients in measured.items() if clients}


def _bytes_each_way(run: RunDirectory, config: Config) -> int | None:
    """The size of the broadcast, which is also that of a client's parameters; nothing travels in other modes."""
    if config.run.mode != "federated":
        return 0
    found = checkpoints(run.checkpoints)
    if not found:
        return None
    with safe_open(found[-1], framework="numpy") as file:
        names = [name for name in file.keys() if name.startswith("['broadcast']")]  # noqa: SIM118
        return sum(file.get_tensor(name).nbytes for name in names)


# --- JSON -------------------------------------------------------------------------------------------------


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_short(item) for item in value]
    return value


def _run_from_json(run: dict[str, Any]) -> RunResult:
    evaluations = [_evaluation_from_json(evaluation) for evaluation in run.pop("evaluations")]
    final = run.pop("final")
    return RunResult(**run, evaluations=evaluations, final=_evaluation_from_json(final) if final else None)


def _evaluation_from_json(content: Mapping[str, Any]) -> Evaluation:
    clients = {name: Played(*figures) for name, figures in content["clients"].items()}
    return Evaluation(content["round"], content["steps"], Played(*content["server"]), clients)

"""Training a federation from start to end: data, rounds, evaluation, files.

`train` is the same whether the command line or a Python program calls it. It survives being stopped at any
moment: `resume` continues from the last checkpoint and ends with the same bytes.
"""

import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fova import algorithms
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.data.transitions import Transitions
from fova.errors import FovaError, unknown
from fova.evaluation.stages import Stages
from fova.federation.client_specs import ClientSpec, complete
from fova.federation.clients import Federation
from fova.machine.interrupts import explained, stop_signal
from fova.policy import Policy
from fova.progress import Progress, Quiet, by_default
from fova.run.callbacks import OnRound
from fova.run.checkpoint import checkpoints
from fova.run.config import Config, RunConfig, load_config
from fova.run.directory import RunDirectory, free_name
from fova.run.loop import Loop
from fova.run.records import read_clients
from fova.run.result import Result
from fova.run.selection import FOLDER, Selection
from fova.run.simulated import SimulatedEngine, described
from fova.run.tracking import insist_on_packages
from fova.settings import by_field, fill, shown
from fova.tasks import registry

SELECTION_ROUNDS = 15  # of the judge's fit while a run trains; `fova judge` takes more


def train(
    task: str | None = None,
    clients: list[str] | list[ClientSpec] | Mapping[str, Any] | Federation | None = None,
    size: int | None = None,
    algorithm: str = "fova",
    preset: str | None = None,
    directory: str | Path | None = None,
    progress: Progress | bool | None = None,
    on_round: OnRound | None = None,
    columns: Mapping[str, Any] | Columns | None = None,
    **settings: Any,
) -> Result:
    """Train one policy across the data of many clients.

        fova.train("maze2d-umaze", ["expert", "expert", "random", "random"], size=5000, rounds=20)
        fova.train(clients={"east": frame, "west": "west.csv"}, columns={"episode": "patient_id", ...})

    `clients` are qualities of the task's data, files, `ClientSpec`s, or a `Federation` of your own arrays; or a
    mapping from names to files, tables (pandas, polars, Arrow) or transitions. `columns` says what the columns of
    tables mean, as `--columns` does.
    Further settings are those of `RunConfig` (rounds, local_steps, seed, ...) and of the algorithm (alpha, lam,
    hidden, ...). Files go to `directory`, by default a new one under `runs/`.

    `progress` is a display of `fova.progress`, True or False; by default a terminal or notebook shows progress and
    everything else is quiet. `on_round` is called with a `RoundSummary` after every round. If it returns True or
    raises `fova.StopTraining`, the run ends with a final evaluation; `fova.resume` continues it.
    """
    _insist_on_callable(on_round)
    if isinstance(clients, str):
        raise FovaError(f"clients is the text {clients!r}, but must be a list, for instance [{clients!r}].")
    if isinstance(clients, Federation):
        if task is not None and clients.task is None:
            clients = replace(clients, task=registry.get(task))
        task = task or (clients.task.name if clients.task else None)
    run_fields = RunConfig.__dataclass_fields__
    settings = by_field(settings, "of fova.train")
    _insist_on_known(settings, algorithm)
    mapping = None if columns is None else Columns.of(columns)
    config = Config(
        task=task,
        clients=_specs(clients, size),
        algorithm=algorithms.configure(
            algorithm, preset, **{name: value for name, value in settings.items() if name not in run_fields}
        ),
        algorithm_name=algorithm,
        run=fill(RunConfig, {name: value for name, value in settings.items() if name in run_fields}, "of the run"),
        columns=mapping,
    )
    display = by_default(progress)
    federation = clients if isinstance(clients, Federation) else _in_memory(clients, config, display)
    return start(config, None if directory is None else _directory(directory), display, federation, on_round)


def start(
    config: Config,
    directory: Path | None,
    progress: Progress,
    federation: Federation | None = None,
    on_round: OnRound | None = None,
) -> Result:
    """Train a new run. Its directory is created after all checks, so an early error leaves no files behind."""
    insist_on_training(config)
    run = RunDirectory(new_directory(config, directory))
    insist_on_packages(config.run.track)
    try:
        with explained(lambda: "Stopped before training began; no run was started. Finished data is kept."):
            loop = loop_of(config, run, trained_on(config, federation, progress), progress)
        loop.on_round = on_round
        run.create(config)
        return _go(loop)
    finally:
        progress.finish()


def resume(
    directory: str | Path,
    progress: Progress | bool | None = None,
    federation: Federation | None = None,
    on_round: OnRound | None = None,
) -> Result:
    """Continue a run that was interrupted or stopped early, from its last checkpoint.

    A run on a `Federation` of your own arrays needs it again: raw data is never stored in a run directory.
    `progress` and `on_round` are those of `train`.
    """
    _insist_on_callable(on_round)
    directory = _directory(directory)
    if not (federation is None or isinstance(federation, Federation)):
        raise FovaError(f"federation is a {type(federation).__name__}, but must be a Federation.")
    progress = by_default(progress)
    try:
        with explained(lambda: f"Stopped; the run did not change.\nContinue with: fova train --resume {directory}"):
            loop = _reopened(directory, federation, progress)
        loop.on_round = on_round
        return _go(loop)
    finally:
        progress.finish()


def new_directory(config: Config, wanted: Path | None) -> Path:
    """The directory of a new run: the wanted one, or the next free one. Refuses one that is taken."""
    stem = f"{Path(config.algorithm_name).stem}-{config.task or 'data'}"
    directory = wanted or free_name(stem, Path("runs"))
    RunDirectory(directory).insist_on_new()
    return directory


def insist_on_training(config: Config) -> None:
    """Refuse an algorithm that evaluates a given policy and trains none."""
    if algorithms.evaluates(config.algorithm):
        raise FovaError(
            f"{config.algorithm_name} evaluates a policy and trains none. To judge a run: fova judge RUN"
        )


def insist_on_clients(config: Config) -> None:
    if not config.clients:
        raise FovaError(
            "No clients were given. Name them, for instance: --task maze2d-umaze --clients expert expert random "
            "random\nor give data files: --clients ward-1.npz ward-2.npz"
        )


def build_federation(
    config: Config, progress: Progress | None = None, only: Collection[str] | None = None
) -> Federation:
    """The clients that a configuration names, their data made or loaded. `only` names those that are kept."""
    progress = progress or Quiet()
    insist_on_clients(config)
    how: dict[str, Any] = {
        "task": registry.get(config.task) if config.task else None,
        "seed": config.run.seed,
        "bounds": (config.run.action_low, config.run.action_high) if config.run.action_low else None,
        "tell": progress.status,
        "note": progress.note,
        "reader": TableReader(config.columns, config.run.privacy != "off") if config.columns else None,
        "actions": config.run.actions,
        "action_names": config.run.action_names,
        "only": only,
    }
    if config.run.data_sequence:
        return Federation.in_sequence(config.clients, config.run.data_sequence, **how)
    return Federation.build(config.clients, **how)


def trained_on(
    config: Config,
    federation: Federation | None = None,
    progress: Progress | None = None,
    only: Collection[str] | None = None,
) -> Federation:
    """The clients' data as a run of this configuration uses it, with the episodes that it keeps aside.

    `federation` holds the data of a run on arrays in memory. Otherwise the data is made or loaded. `only` names the
    clients that this process holds, if there are others.
    """
    progress = progress or Quiet()
    federation = federation or build_federation(config, progress, only)
    return federation.holding_out(config.run.hold_out, config.run.seed, progress.note)


def first_policy(config: Config, federation: Federation) -> Policy:
    """The server's policy that a run of this configuration starts from, before any training."""
    loop = loop_of(config, RunDirectory(Path()), federation, Quiet())
    return loop.server_policy(loop.fresh_state())


def policies_of(directory: str | Path, federation: Federation | None = None) -> dict[str, Policy]:
    """The server's and every client's policy as of a run's last checkpoint."""
    loop = _reopened(directory, federation, Quiet())
    state = loop.last_state()
    if state is None:
        raise FovaError(f"{directory} has no checkpoint yet. Continue with: fova train --resume {directory}")
    server = {"server": loop.server_policy(state)} if loop.together else {}
    return server | loop.client_policies(state)


def loop_of(config: Config, run: RunDirectory, federation: Federation, progress: Progress) -> Loop:
    progress.status("setting up the networks")
    engine = SimulatedEngine(config, federation)
    loop = Loop(engine.config, run, engine, federation.task, progress, engine.privacy)
    loop.notes = federation.notes
    loop.stages = _stages(config, federation)
    if config.run.select == "judge":
        from fova.evaluation.judging.judge import JudgeSettings, judge  # with SciPy, which other runs do not need

        settings = JudgeSettings(rounds=SELECTION_ROUNDS, seed=config.run.seed)
        settings = settings.combining_like(config.run.aggregation)
        discount = config.algorithm.discount
        loop.selection = Selection(run.path / FOLDER, lambda policy: judge(policy, federation, discount, settings))
    return loop


def _stages(config: Config, federation: Federation) -> Stages | None:
    """The stages of a run whose data is replaced on the way; None where nothing is played from their states.

    The metrics of a private run must not depend on single rows.
    """
    run, task = config.run, federation.task
    if not federation.later or task is None or task.restartable is None:
        return None
    if not run.evaluate_every or run.privacy != "off":
        return None
    turns = federation.turns()
    sources = run.data_sequence or [f"stage {number}" for number in range(1, len(turns) + 1)]
    return Stages.drawn(task, sources, [turn.clients for turn in turns], run.final_episodes, run.seed)


def _reopened(directory: str | Path, federation: Federation | None, progress: Progress) -> Loop:
    run = RunDirectory.open(Path(directory))
    config = load_config(run.path / "config.toml")
    federation = trained_on(config, federation, progress)
    insist_on_same_data(run, described(federation))
    return loop_of(config, run, federation, progress)


def _go(loop: Loop) -> Result:
    with loop.run.lock(), explained(loop.what_is_kept):
        with stop_signal(loop.progress.note) as stop:
            state = loop.train(stop)
        finished = loop.finish(state)
    server = finished.played.pop("server", None)
    return Result(loop.run.path, finished.policy, server, finished.played, loop.notes)


def _insist_on_known(settings: Mapping[str, Any], algorithm: str) -> None:
    """Refuse a misspelt setting, with the most similar one of all that `train` takes."""
    own = set(RunConfig.__dataclass_fields__) | {field.name for field in fields(algorithms.get(algorithm))}
    for name in settings:
        if name not in own:
            known = own | set(inspect.signature(train).parameters) - {"settings"}
            raise unknown(f"setting of fova.train (algorithm {algorithm})", name, known)


def _insist_on_callable(on_round: Any) -> None:
    if not (on_round is None or callable(on_round)):
        raise FovaError(f"on_round is {shown(on_round)}, but must be a function that takes a RoundSummary.")


def _directory(given: str | Path) -> Path:
    if not isinstance(given, str | Path) or not str(given).strip() or "\0" in str(given):
        raise FovaError(
            f"directory is {shown(given)}, but must be the path of a folder. Leave it out for a new one."
        )
    return Path(given)


def _specs(clients: Any, size: int | None) -> tuple[ClientSpec, ...]:
    if clients is None or isinstance(clients, Federation):
        return ()
    if isinstance(clients, Mapping):
        if not _are_files(clients):
            if size is not None:
                raise FovaError("size is for files and qualities of a task. Cut the tables to the size you want.")
            return ()
        specs = tuple(ClientSpec(str(data), size, name=str(name)) for name, data in clients.items())
        complete(specs)  # refuses two clients of one name
        return specs
    if not isinstance(clients, list | tuple):
        raise FovaError(
            f"clients is a {type(clients).__name__}, but must be a list of files and qualities, a mapping from "
            "names to data, or a Federation."
        )
    for client in clients:
        if not isinstance(client, str | Path | ClientSpec):
            raise FovaError(
                f"A client is a {type(client).__name__}, but must be a file, a quality or a ClientSpec. Data in "
                "memory is given by name: clients={'east': frame}"
            )
    return tuple(c if isinstance(c, ClientSpec) else ClientSpec(str(c), size) for c in clients)


def _are_files(clients: Mapping[str, Any]) -> bool:
    return all(isinstance(data, str | Path) for data in clients.values())


def _in_memory(clients: Any, config: Config, progress: Progress) -> Federation | None:
    """The federation of a mapping from names to tables or transitions; None if the clients are files."""
    if not isinstance(clients, Mapping) or _are_files(clients):
        return None
    task = registry.get(config.task) if config.task else None
    bounds = (config.run.action_low, config.run.action_high) if config.run.action_low else None
    named = {str(name): data for name, data in clients.items()}
    if len(named) < len(clients):
        raise FovaError(f"Two clients have the same name as text: {', '.join(map(repr, clients))}.")
    if all(isinstance(data, Transitions) for data in named.values()):
        if config.columns is not None:
            raise FovaError("columns says what the columns of tables mean, but these clients hold transitions.")
        return Federation.of(named, task, bounds, actions=config.run.actions, action_names=config.run.action_names)
    if config.columns is None:
        raise FovaError(
            "Say what the columns of the tables mean, for instance "
            "columns={'episode': 'patient_id', 'time': 'hour', "
            "'observations': ['hr', 'map'], 'action': 'dose', 'reward': 'score', 'terminal': 'died'}."
        )
    private = config.run.privacy != "off"
    kind = config.run.actions, config.run.action_names
    return Federation.of_tables(named, config.columns, task, bounds, private, progress.note, *kind)


def _listed(names: Iterable[str]) -> str:
    """The names of clients, the first and the last of very many."""
    every = list(names)
    return ", ".join(every if len(every) <= 20 else [*every[:3], "...", every[-1], f"{len(every):,} in all"])


def insist_on_same_data(run: RunDirectory, held: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to continue a run on other data than it was trained on so far. `held` describes the data now."""
    if not (run.path / "clients.json").exists():
        if checkpoints(run.checkpoints):
            raise FovaError(
                f"{run.path / 'clients.json'} is missing. It says which data the run was trained on. Restore it "
                "from a copy, or start a new run."
            )
        return  # stopped before it was written, so nothing was trained
    before = read_clients(run)
    anew = f"start a new run on the present data: fova train --config {run.path / 'config.toml'} --name NEW"
    if list(before) != list(held):
        raise FovaError(
            f"{run.path} was trained on the clients {_listed(before)}, but now they are {_listed(held)}. Bring "
            f"them back, or {anew}"
        )
    pairs: list[tuple[str, Any, Any]] = [(name, before[name], now) for name, now in held.items()]
    aside = {name: now["held_out"] for name, now in held.items() if "held_out" in now}
    pairs += [(name, was, aside[name]) for name in aside if (was := before[name].held_out) is not None]
    for name, was, now in pairs:
        if was.digest not in (None, now["digest"]):  # older runs have none
            same = was.rows in (None, now["rows"])
            how = "other values" if same else f"{was.rows:,} rows then, {now['rows']:,} now"
            raise FovaError(
                f"The data of client {name!r} has changed since {run.path} was trained on it ({how}). Bring the "
                f"old data back, or {anew}"
            )

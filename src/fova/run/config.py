"""A run's configuration: what the command line, a TOML file and the Python API all fill in.

A configuration file may hold only who takes part (`task` and the `[[client]]` tables), or everything, as the
`config.toml` in a run directory does; the same file can be run again. Paths in a file are relative to its folder,
whatever the current directory is. In memory they are absolute.
"""

import hashlib
import json
import os
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w

from fova import algorithms
from fova.data.action_kind import ActionKind
from fova.data.memory import available
from fova.data.sampling import Sampling
from fova.data.tables.columns import Columns
from fova.errors import FovaError, unknown
from fova.federation import aggregation
from fova.federation.client_specs import ClientSpec, complete, located
from fova.federation.compression import Compression
from fova.federation.engine import participants
from fova.federation.privacy import Privacy
from fova.machine import cluster
from fova.machine.files import insist_on_regular
from fova.settings import HELD_OUT, SEEDS, Within, by_field, check_ranges, fill, setting_name, shown
from fova.version import __version__

TABLES = ("task", "run", "algorithm", "client", "server", "columns")
# Settings that may change between two starts of a run.
WITHOUT_EFFECT_ON_TRAINING = (
    "rounds",
    "evaluate_every",
    "episodes",
    "evaluate_clients",
    "evaluate_in_background",
    "final_episodes",
    "final_clients",
    "checkpoint_seconds",
    "average_rounds",  # what is averaged is never sent to clients
    "track",
    "privacy_epsilon",
    "privacy_accountant",
    "data_sequence",  # by paths; the data itself is compared
    "select",
)
# A client keeps at least one network with the two moments of Adam. Most algorithms keep more.
COPIES = 3
BYTES_OF_A_NUMBER = 4
MOST_ROUNDS = 999_999  # checkpoints are named by six digits
MOST_EPISODES = 1_000_000
MOST_AVERAGED = 5  # rounds of the running mean of policies, if it is automatic


@dataclass(frozen=True)
class RunConfig:
    """How a federation is trained, whatever the algorithm."""

    rounds: Annotated[int, Within(1, MOST_ROUNDS)] = 30
    """Rounds of local training and aggregation."""
    local_steps: Annotated[int, Within(1, 1_000_000)] = 100
    """Gradient steps of every client in a round."""
    seed: Annotated[int, SEEDS] = 0
    """Seed of the data, the networks and the training. Same seed, same result, bit for bit on the same
    machine; another number of processors may round differently."""
    mode: Literal["federated", "local", "centralised"] = "federated"
    """federated; or a reference: local (every client trains alone) or centralised (all data pooled in one place,
    with as many gradient steps as all clients together take)."""
    aggregation: str = "algorithm"
    """How the server combines clients: algorithm (as the algorithm says), uniform, size (rows), value (what the
    critics expect), returns (what the data earned), median, trimmed-mean or krum."""
    largest_share: Annotated[float | None, Within(0, 1, above=True)] = None
    """Largest share of the mean that one client may have, whatever it claims. By default 0.4 from five clients on,
    or the share of the second-heaviest client if that is larger; no limit with fewer clients. 1 accepts every
    claim; see docs/privacy.md#bad-clients."""
    average_rounds: Annotated[int | Literal["auto"], Within(1, MOST_ROUNDS)] = "auto"
    """Play, judge and save a running mean of the server's policies over about this many rounds. It varies less than
    the last policy. auto is a tenth of the rounds, at most 5. 1 is the last policy."""
    sampling: Sampling | Literal["algorithm"] = "algorithm"
    """Which rows a client trains on: uniform (all alike), returns (policies learn more often from episodes that
    earned more, critics from all rows alike), or as the algorithm says (fova's preset good-episodes: returns; all
    others: uniform). Works with any algorithm; see docs/statistics.md."""
    participation: Annotated[float, Within(0, 1, above=True)] = 1.0
    """Share of the clients that take part in each round, drawn again in every round."""
    cohort: Annotated[int, Within(1, 1_000_000)] = 64
    """Clients that are trained at once; bounds the memory of large federations."""
    normalise: bool = True
    """Normalise observations with the federation's statistics (only sums leave a client)."""
    reward_scale: Annotated[float, Within(0, above=True)] = 1.0
    """Factor on all rewards of the data."""
    reward_unit: Annotated[float | Literal["algorithm", "federation"], Within(0, above=True)] = "algorithm"
    """What rewards are divided by during training: a number, federation (what one step is worth to the clients with
    the best data), or what the algorithm asks for (fova's automatic strengths: federation; the others: 1)."""
    action_low: Annotated[tuple[float, ...], Within()] = ()
    """Lowest action, one number or one per column; by default the task's, or what the data declares, or -1."""
    action_high: Annotated[tuple[float, ...], Within()] = ()
    """Highest action, in the same form."""
    actions: ActionKind = "auto"
    """Kind of the actions: discrete (codes 0, 1, 2, ...), continuous (quantities), or auto. With auto, integers are
    codes and decimal numbers are quantities; unclear cases are refused."""
    action_names: tuple[str, ...] = ()
    """Names of the discrete actions, in the order of their codes; by default as the files declare, or the codes."""
    data_sequence: tuple[str, ...] = ()
    """Data that replaces that of all clients in turn, each for an equal share of the rounds: random expert medium.
    Observation statistics are those of the whole sequence. After each, a robot's policy is also played from states
    of the data of every source; see docs/experiments.md."""
    hold_out: Annotated[float, HELD_OUT] = 0.0
    """Share of every client's episodes that is kept aside and never trained on, for `fova judge`; 0.1 is usual."""
    select: Literal["last", "judge"] = "last"
    """Which round's policy is the result: the last, or the one that the judge estimates best on held-out episodes.
    The judge is asked every evaluate_every rounds; needs --hold-out."""
    evaluate_every: Annotated[int, Within(0, MOST_ROUNDS)] = 10
    """Rounds between evaluations of the server's policy; 0 means never. Needs a task."""
    episodes: Annotated[int, Within(1, MOST_EPISODES)] = 5
    """Episodes of each of these evaluations."""
    evaluate_clients: bool = False
    """Also play every client's own policy at these evaluations."""
    evaluate_in_background: bool = False
    """Continue training during these evaluations. The result is the same. This saves time if processors would be
    idle."""
    final_episodes: Annotated[int, Within(1, MOST_EPISODES)] = 20
    """Episodes of the evaluation after the last round, and from states of each source of a data_sequence."""
    final_clients: bool = True
    """Also play every client's own policy after the last round."""
    checkpoint_seconds: Annotated[float, Within(0, 1e9)] = 30.0
    """Seconds between checkpoints; 0 saves one after every round."""
    track: tuple[Literal["wandb", "mlflow"], ...] = ()
    """Also send settings and metrics to Weights & Biases or MLflow, which read their own environment variables.
    Needs the extra track; see docs/report.md."""
    compress: Compression = "none"
    """Send updates in fewer bits: float16 (half the bytes) or int8 (a quarter)."""
    privacy: Literal["off", "server", "client"] = "off"
    """Differential privacy for whole clients, and who adds the noise: a server that everybody trusts, or every
    client. Needs --aggregation uniform and --no-normalise; see docs/privacy.md."""
    privacy_clip: Annotated[float | None, Within(0)] = None
    """With privacy: the largest norm of a client's update in a round; longer ones are shortened."""
    privacy_noise: Annotated[float | None, Within(0, 1e6)] = None
    """With privacy: standard deviation of the noise, as a multiple of the norm."""
    privacy_delta: Annotated[float, Within(0, 1, above=True, below=True)] = 1e-5
    """With privacy: the delta that epsilon is stated for."""
    privacy_epsilon: Annotated[float | None, Within(0, above=True)] = None
    """With privacy: a budget. A run whose rounds would spend more does not start."""
    privacy_accountant: Literal["rdp", "pld"] = "rdp"
    """With privacy: how epsilon is computed: rdp (Renyi divergences) or pld (the distribution of the privacy loss;
    a smaller epsilon for the same noise, needs the extra accounting)."""

    @property
    def averaged_rounds(self) -> int:
        """Rounds over which the server's policy is averaged."""
        if self.average_rounds == "auto":
            return max(1, min(MOST_AVERAGED, self.rounds // 10))
        return self.average_rounds

    def __post_init__(self) -> None:
        check_ranges(self)
        aggregation.get(self.aggregation)
        if bool(self.action_low) != bool(self.action_high):
            raise FovaError("Give action_low and action_high together.")
        self._check_privacy()
        self._check_selection()
        if len(self.data_sequence) > self.rounds:
            raise FovaError(
                f"data_sequence names {len(self.data_sequence)} sources for {self.rounds} rounds; each needs at "
                "least one round."
            )

    def _check_selection(self) -> None:
        if self.select == "last":
            return
        if not self.hold_out:
            raise FovaError("select is judge, which needs episodes that never trained. Add --hold-out 0.1")
        if not self.evaluate_every:
            raise FovaError("select is judge, but evaluate_every is 0. Say how often to judge: --evaluate-every 10")
        if self.mode == "local" or self.privacy != "off":
            what = "mode is local, which has no server's policy" if self.mode == "local" else "the run is private"
            raise FovaError(f"select is judge, but {what}. Leave --select out.")

    def _check_privacy(self) -> None:
        given = [name for name in ("clip", "noise", "epsilon") if getattr(self, f"privacy_{name}") is not None]
        if self.privacy == "off":
            if given:
                raise FovaError(
                    f"privacy_{given[0]} is given, but privacy is off. Say who adds the noise: --privacy server "
                    "(which all clients trust) or --privacy client."
                )
            return
        if self.privacy_clip is None or self.privacy_noise is None:
            raise FovaError(
                "Privacy needs a largest norm and noise, for instance: --privacy-clip 1 --privacy-noise 2"
            )
        if self.mode != "federated":
            raise FovaError(
                f"mode is {self.mode}, which sends nothing that privacy could protect. Leave --privacy out."
            )
        if self.aggregation != "uniform":
            raise FovaError(
                f"aggregation is {self.aggregation}, but only the plain mean keeps the promise of privacy: weights "
                "and comparisons tell about a client's data. Add --aggregation uniform."
            )
        if self.normalise:
            raise FovaError(
                "normalise sends sums of every client's observations, which privacy does not cover. Add "
                "--no-normalise and, where columns differ in scale, divide them by publicly known ranges first."
            )

    def private(self, clients: int) -> Privacy | None:
        """The privacy of a federation of this many clients; None without privacy. Refuses to exceed the budget."""
        if self.privacy == "off" or self.privacy_clip is None or self.privacy_noise is None:
            return None
        privacy = Privacy(
            self.privacy,
            self.privacy_clip,
            self.privacy_noise,
            self.privacy_delta,
            clients,
            self.participation,
            self.privacy_accountant,
        )
        if self.privacy_epsilon is not None and (spent := privacy.epsilon(self.rounds)) > self.privacy_epsilon:
            raise FovaError(
                f"{self.rounds} rounds would spend epsilon {spent:.2f}, the budget is {self.privacy_epsilon:g}. "
                f"Take --privacy-noise {privacy.noise_for(self.privacy_epsilon, self.rounds):.4g} or fewer rounds."
            )
        return privacy


@dataclass(frozen=True)
class Config:
    """Everything that determines a run."""

    task: str | None
    clients: tuple[ClientSpec, ...]
    algorithm: Any  # the frozen config of one of fova.algorithms
    algorithm_name: str = "fova"
    run: RunConfig = field(default_factory=RunConfig)
    columns: Columns | None = None  # what the columns of the clients' tables mean; None where clients are no tables

    def __post_init__(self) -> None:
        if self.task == "":
            raise FovaError("task is empty. Name a task (see `fova tasks`), or leave it out.")
        here = Path()
        run = replace(self.run, data_sequence=tuple(located(data, here) for data in self.run.data_sequence))
        object.__setattr__(self, "clients", tuple(_located(client, here) for client in self.clients))
        object.__setattr__(self, "algorithm_name", _located_algorithm(self.algorithm_name, here))
        object.__setattr__(self, "run", run)
        insist_on_memory(self.algorithm, max(len(complete(self.clients)), 1), self.run.cohort)
        if self.run.privacy != "off" and unit_of_reward(self.run, self.algorithm) is None:
            raise FovaError(
                "The unit of reward is a statistic of the clients' data, which privacy does not cover. Say what "
                "one step of a good policy is worth, for instance: --reward-unit 1"
            )

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of all clients together, over the whole run."""
        taking_part = participants(self.run.participation, len(complete(self.clients)))
        return self.run.rounds * self.run.local_steps * taking_part

    def fingerprint(self) -> str:
        """A digest that is equal for two configurations whose checkpoints are interchangeable.

        More rounds or more evaluations do not change the training up to a checkpoint.
        """
        about = _changed(self.run) | {"algorithm": _changed(self.algorithm), "task": self.task}
        about.pop("sampling", None)  # what it comes to counts, not who asked for it
        if (sampling := sampling_of(self.run, self.algorithm)) != "uniform":
            about["sampling"] = sampling
        if self.columns is not None:
            about["columns"] = self.columns.to_table()
        for name in WITHOUT_EFFECT_ON_TRAINING:
            if name != "rounds" or not self.run.data_sequence:  # the data's turns depend on the rounds
                about.pop(name, None)
        text = json.dumps(about | {"algorithm_name": Path(self.algorithm_name).name}, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def to_toml(self, folder: Path | None = None) -> str:
        """The whole configuration as text that `load_config` reads back, paths as seen from a file in `folder`."""

        def seen(name: str) -> str:
            return os.path.relpath(name, folder.resolve()) if folder and os.path.isabs(name) else name

        algorithm = {setting_name(name): value for name, value in asdict(self.algorithm).items()}
        tables = {
            "task": self.task,
            "run": asdict(self.run) | {"data_sequence": [seen(data) for data in self.run.data_sequence]},
            "algorithm": {"name": seen(self.algorithm_name), **algorithm},
            "columns": None if self.columns is None else self.columns.to_table(),
            "client": [asdict(replace(client, data=seen(client.data))) for client in self.clients],
        }
        # Data in memory and data of clients on other machines are not in the file.
        again = (
            "To run it again: fova train --config THIS_FILE" if self.clients else "Its data is not described here."
        )
        heading = f"# A run of fova {__version__}. {again}\n\n"
        return heading + tomli_w.dumps(_without_none(tables))


def _changed(settings: Any) -> dict[str, Any]:
    """The settings that are not at their default. A setting that is newer than the run is at its default."""
    stock = {each.name: each.default for each in fields(settings)}
    return {name: value for name, value in asdict(settings).items() if value != stock[name]}


def insist_on_memory(algorithm: Any, clients: int, cohort: int) -> None:
    """Refuse networks and minibatches for which this machine has no room, before anything is built.

    The estimate is a lower bound from the widths of the hidden layers, so it costs nothing.
    """
    hidden, free = getattr(algorithm, "hidden", ()), available()
    if not hidden or free is None:
        return
    clients = -(-clients // cluster.processes())  # of each process
    widths = (1, *hidden, 1)
    weights = sum(inputs * outputs for inputs, outputs in pairwise(widths))
    activations = min(cohort, clients) * algorithm.batch_size * sum(hidden)
    needed = BYTES_OF_A_NUMBER * (clients * COPIES * weights + activations)
    if needed > free:
        raise FovaError(
            f"{clients:,} clients with hidden {shown(tuple(hidden))} and batch_size {algorithm.batch_size:,} "
            f"need at least {needed / 1e9:,.1f} GB of memory, but {free / 1e9:,.1f} GB are available. Use "
            "narrower layers, a smaller batch_size or cohort, or fewer clients."
        )


def unit_of_reward(run: RunConfig, algorithm: Any) -> float | None:
    """The unit of reward where it is known before any data is seen; None if it is a statistic of the federation."""
    if run.reward_unit == "algorithm":
        return None if algorithm.reward_unit == "federation" else 1.0
    return None if run.reward_unit == "federation" else float(run.reward_unit)


def sampling_of(run: RunConfig, algorithm: Any) -> Sampling:
    """Which rows the clients train on, as the run says or else the algorithm."""
    chosen: Sampling = algorithm.row_weights if run.sampling == "algorithm" else run.sampling
    return chosen


@dataclass(frozen=True)
class ConfigFile:
    """What a configuration file says; everything in it is optional."""

    task: str | None = None
    clients: tuple[ClientSpec, ...] = ()
    algorithm: str | None = None
    preset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # of the algorithm
    run: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)  # of a federation over a network
    columns: dict[str, Any] = field(default_factory=dict)  # what the columns of the clients' tables mean


def read_toml(path: Path) -> ConfigFile:
    """Read a configuration file. An unknown name in it is an error."""
    try:
        tables = tomllib.loads(insist_on_regular(path).read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise FovaError(f"The configuration {path} cannot be read: its brackets are nested too deep.") from error
    except (OSError, ValueError) as error:  # also a whole number of too many digits
        raise FovaError(f"The configuration {path} cannot be read: {error}") from error
    for key in tables:
        if key not in TABLES:
            raise unknown(f"entry in {path}", key, TABLES)
    task = tables.get("task")
    if not isinstance(task, str | None):
        raise FovaError(f"{path}: task is {shown(task)}, but must be a text: the name of a task.")
    run, settings = tables.get("run", {}), tables.get("algorithm", {})
    clients = tables.get("client", [])
    server = tables.get("server", {})
    if not (isinstance(settings, dict) and isinstance(server, dict) and isinstance(clients, list)):
        raise FovaError(f"{path}: [algorithm] and [server] must be tables, and each client a [[client]] table.")
    folder = path.parent
    sequence = fill(RunConfig, run, f"of [run] in {path}").data_sequence
    algorithm, preset = (_text(settings.pop(name, None), name, path) for name in ("name", "preset"))
    return ConfigFile(
        task=task,
        clients=tuple(
            _located(fill(ClientSpec, client, f"of a [[client]] in {path}"), folder) for client in clients
        ),
        algorithm=algorithm if algorithm is None else _located_algorithm(algorithm, folder),
        preset=preset,
        settings=by_field(settings, f"of [algorithm] in {path}"),
        run=run | ({"data_sequence": [located(data, folder) for data in sequence]} if sequence else {}),
        server=server,
        columns=_columns(tables.get("columns", {}), path),
    )


def _columns(table: Any, path: Path) -> dict[str, Any]:
    """The [columns] table; an error in it is found now."""
    if not isinstance(table, dict):
        raise FovaError(f"{path}: [columns] must be a table, but is {shown(table)}.")
    if table:
        Columns.of(table)
    return table


def _text(value: Any, name: str, path: Path) -> str | None:
    """A text of [algorithm]; None where it is left out."""
    if not isinstance(value, str | None):
        raise FovaError(f"{path}: {name} in [algorithm] is {shown(value)}, but must be a text.")
    if value == "":
        raise FovaError(f"{path}: {name} in [algorithm] is empty. Leave it out for the default.")
    if value is not None and not value.isprintable():
        raise FovaError(f"{path}: {name} in [algorithm] is {shown(value)}, which has control characters.")
    return value


def load_config(path: Path) -> Config:
    """The whole configuration of a run, as `Config.to_toml` wrote it."""
    file = read_toml(path)
    name = file.algorithm or "fova"
    return Config(
        task=file.task,
        clients=file.clients,
        algorithm=algorithms.configure(name, file.preset, **file.settings),
        algorithm_name=name,
        run=fill(RunConfig, file.run, f"of [run] in {path}"),
        columns=Columns.of(file.columns) if file.columns else None,
    )


def _located(client: ClientSpec, folder: Path) -> ClientSpec:
    return replace(client, data=located(client.data, folder))


def _located_algorithm(name: str, folder: Path) -> str:
    return str((folder / Path(name).expanduser()).resolve()) if name.endswith(".py") else name


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value

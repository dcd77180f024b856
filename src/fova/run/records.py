"""The reader of run directories: files in, checked values out.

Every module that needs the figures of a run calls `read_record`. Each file has a small schema. A file that does not
follow it raises a FovaError that names the file, the line and what is wrong. A run that is under way or was
interrupted is a run, too: it has no final evaluation yet. Nothing is written here.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from fova.data.sampling import Sampling
from fova.errors import FovaError
from fova.evaluation.judging.verdict import Verdict
from fova.evaluation.metrics import VOTES, Evaluation, Played, with_final
from fova.federation.rounds import Traffic
from fova.run.config import ConfigFile, RunConfig, read_toml
from fova.run.directory import VERDICT, RunDirectory
from fova.settings import Within, fill, shown

T = TypeVar("T")

# Metrics of a client that tables and charts show. The others may be any number, also NaN.
SHOWN_METRICS = (*VOTES, "weight", "policy_distance", "server_weight")
LARGEST = 2**63
POSITIVE = Within(0, above=True)
REMEDY = "fova did not write this. Restore the file from a copy, or leave this run out."


# --- What a run directory holds ---


class PrivacySpent(NamedTuple):
    """The privacy that a run has spent so far."""

    epsilon: float
    delta: float


class RoundTiming(NamedTuple):
    """One line of timing.jsonl."""

    round: int
    seconds: float  # of training
    evaluation: float  # seconds
    peak_memory_mb: float | None


@dataclass(frozen=True)
class ClientFacts:
    """What is known about a client and its data."""

    rows: int | None = None
    episodes: int | None = None
    behaviour_return: float | None = None
    digest: str | None = None
    held_out: "ClientFacts | None" = None  # the episodes that were kept aside
    # Over a network, clients may come late, fail or be gone.
    counted: int | None = None  # rounds
    rejected: int | None = None  # rounds
    missing: int | None = None  # rounds


@dataclass(frozen=True)
class RoundRecord:
    """One line of metrics.jsonl."""

    number: int
    clients: Mapping[str, Mapping[str, float]]  # metrics of the accepted clients
    server: Played | None = None  # None where the policy was not played
    client_play: Mapping[str, Played] | None = None
    stages: tuple[float, ...] = ()  # at the end of a stage of the data: the return from states of every stage
    rejected: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    traffic: Traffic | None = None
    privacy: PrivacySpent | None = None


@dataclass(frozen=True)
class Record:
    """One run."""

    directory: Path
    config: ConfigFile
    config_text: str
    run: RunConfig
    rounds: tuple[RoundRecord, ...]
    clients: Mapping[str, ClientFacts]
    timing: tuple[RoundTiming, ...]
    final: Evaluation | None  # None without a task and until the run is complete
    complete: bool
    over_network: bool
    verdict: Verdict | None = None  # None until `fova judge` has judged the run

    @property
    def seed(self) -> int:
        return self.run.seed

    @property
    def sampling(self) -> Sampling:
        """How rows were weighted. What an algorithm of the user's own asked for is not in the files: uniform."""
        if self.run.sampling != "algorithm":
            return self.run.sampling
        return "returns" if self.config.settings.get("episode_weights") == "returns" else "uniform"

    @property
    def algorithm(self) -> str:
        """The algorithm's name; for a file, the file's name without its ending."""
        return Path(self.config.algorithm or "fova").stem

    @property
    def last_round(self) -> RoundRecord | None:
        return self.rounds[-1] if self.rounds else None

    @property
    def rounds_done(self) -> int:
        return self.rounds[-1].number if self.rounds else 0

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations during training, in order. The one after the last round is the final evaluation."""
        along = [
            Evaluation(line.number, line.number * self.run.local_steps, line.server, line.client_play or {})
            for line in self.rounds
            if line.server is not None
        ]
        return with_final(along, self.final)

    @property
    def behaviour_returns(self) -> dict[str, float]:
        """The mean return in each client's data, where it is known."""
        known = {name: facts.behaviour_return for name, facts in self.clients.items()}
        return {name: value for name, value in known.items() if value is not None}

    @property
    def rows(self) -> dict[str, int]:
        """The number of transitions of each client, where it is known."""
        return {name: facts.rows for name, facts in self.clients.items() if facts.rows is not None}

    @property
    def server_weights(self) -> dict[str, float] | None:
        """Each client's share of the server's mean in the last round; None where none was logged."""
        clients = self.rounds[-1].clients if self.rounds else {}
        logged = {name: metrics["server_weight"] for name, metrics in clients.items() if "server_weight" in metrics}
        return logged if logged and len(logged) == len(clients) else None

    def times(self, what: Literal["rejected", "missing"]) -> Counter[str]:
        """In how many rounds each client was rejected or did not answer."""
        return Counter(name for line in self.rounds for name in getattr(line, what))


# --- Reading ---


def read_record(directory: Path) -> Record:
    """Read and check all files of one run."""
    files = RunDirectory.open(directory)
    config = read_toml(directory / "config.toml")
    if not config.run or config.algorithm is None:
        raise FovaError(f"{directory / 'config.toml'} lacks [run], or the name in [algorithm]. {REMEDY}")
    run = fill(RunConfig, config.run, f"of [run] in {directory / 'config.toml'}")
    rounds = tuple(_lines(files, "metrics.jsonl", files.metrics, run.rounds, _round))
    complete, over_network = files.is_complete(), (directory / "server.json").is_file()
    clients = read_clients(files)
    return Record(
        directory=directory,
        config=config,
        config_text=(directory / "config.toml").read_text(encoding="utf-8"),
        run=run,
        rounds=rounds,
        clients=_with_participation(clients, rounds),
        timing=tuple(_lines(files, "timing.jsonl", files.timing, run.rounds, _timing)),
        final=_final(files, run, rounds) if complete else None,
        complete=complete,
        over_network=over_network,
        verdict=read_verdict(files),
    )


def _lines(
    files: RunDirectory,
    name: str,
    read: Callable[[], list[Any]],
    last: int,
    parse: Callable[["Table", int], T],
) -> list[T]:
    """The parsed lines of a log. Rounds count upwards and never beyond the `last` one of the run."""
    path = files.path / name
    parsed, before = [], -1
    for number, content in enumerate(_read(path, read), 1):
        line = Table(content, f"{path}, line {number}")
        current = line.whole("round")
        if not before < current <= last:
            expected = f"must be above {before} and at most {last}" if before >= 0 else f"must be at most {last}"
            raise line.wrong("round", current, expected)
        parsed.append(parse(line, current))
        before = current
    return parsed


def _read(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except UnicodeDecodeError as error:
        raise FovaError(f"{path} is not UTF-8 text: {error}. {REMEDY}") from error
    except (OSError, RecursionError) as error:
        raise FovaError(f"{path} cannot be read: {error}") from error


def _round(line: "Table", number: int) -> RoundRecord:
    traffic, privacy = line.optional_table("bytes_per_client"), line.optional_table("privacy")
    server = line.optional_table("server")
    client_play = line.optional_table("client_play")
    return RoundRecord(
        number=number,
        clients={name: _metrics(client) for name, client in line.tables("clients")},
        server=_played(server) if server else None,
        client_play={name: _played(client) for name, client in client_play.items()} if client_play else None,
        stages=tuple(line.numbers("stages")) if "stages" in line.content else (),
        rejected=line.names("rejected"),
        missing=line.names("missing"),
        traffic=Traffic(traffic.whole("down"), traffic.whole("up")) if traffic else None,
        privacy=PrivacySpent(privacy.number("epsilon", finite=False), privacy.number("delta")) if privacy else None,
    )


def _metrics(client: "Table") -> dict[str, float]:
    metrics = {name: client.number(name, finite=name in SHOWN_METRICS) for name in client.content}
    if "vote_local" in metrics and not all(name in metrics for name in VOTES):
        raise client.error(f"has {VOTES[0]}, but not all of {', '.join(VOTES)}")
    return metrics


def _timing(line: "Table", number: int) -> RoundTiming:
    memory = line.number("peak_memory_mb") if "peak_memory_mb" in line.content else None
    return RoundTiming(number, line.number("seconds"), line.number("evaluation"), memory)


def _played(table: "Table") -> Played:
    score = None if table.content.get("score") is None else table.number("score")
    return Played(table.number("return"), table.number("return_std"), score)


def read_table(files: RunDirectory, name: str) -> "Table":
    """The JSON file of a run directory, which holds a table."""
    path = files.path / name
    return Table(_read(path, lambda: files.read_json(name)), str(path))


def read_clients(files: RunDirectory) -> dict[str, ClientFacts]:
    """What clients.json says about each client; nothing before it was written."""
    if not (files.path / "clients.json").exists():
        return {}
    return {name: _facts(client) for name, client in read_table(files, "clients.json").items()}


def read_statistics(files: RunDirectory, columns: int) -> Mapping[str, Any] | None:
    """The checked content of statistics.json for observations of `columns` columns; None before it was written."""
    if not (files.path / "statistics.json").exists():
        return None
    table = read_table(files, "statistics.json")
    normaliser, weights = table.table("normaliser"), table.table("log_weights")
    for name, within in (("mean", Within()), ("std", POSITIVE)):
        values = normaliser.numbers(name)
        if len(values) != columns or not all(map(within.holds, values)):
            above = " above 0" if within is POSITIVE else ""
            raise normaliser.wrong(name, values, f"must be a list of {columns} numbers{above}")
    if not POSITIVE.holds(unit := table.number("reward_unit")):
        raise table.wrong("reward_unit", unit, "must be a number above 0")
    if "reward_zero" in table.content and not Within(most=0).holds(zero := table.number("reward_zero")):
        raise table.wrong("reward_zero", zero, "must be 0 or a number below it")
    for name in weights.content:
        weights.number(name)
    return table.content


def read_verdict(files: RunDirectory) -> Verdict | None:
    """The checked content of judge.json; None if the run has not been judged."""
    path = files.path / VERDICT
    return Verdict.from_json(files.read_json(VERDICT), str(path)) if path.exists() else None


def _facts(client: "Table") -> ClientFacts:
    def known(name: str, read: Callable[[str], T]) -> T | None:
        return None if client.content.get(name) is None else read(name)

    return ClientFacts(
        rows=known("rows", client.whole),
        episodes=known("episodes", client.whole),
        behaviour_return=known("behaviour_return", client.number),
        digest=known("digest", client.text),
        held_out=_facts(client.table("held_out")) if "held_out" in client.content else None,
    )


def _with_participation(
    clients: Mapping[str, ClientFacts], rounds: tuple[RoundRecord, ...]
) -> dict[str, ClientFacts]:
    """The clients, also those that reported nothing, with the number of rounds that each took part in.

    Where every client counted in every round, or the log names none (privacy), there is nothing to add.
    """
    named = [line for line in rounds if line.clients or line.rejected or line.missing]
    if all(set(line.clients) == set(clients) for line in named):
        return dict(clients)
    tallies: dict[str, Counter[str]] = {name: Counter() for name in clients}
    for line in rounds:
        for kind, names in (("counted", line.clients), ("rejected", line.rejected), ("missing", line.missing)):
            for name in names:
                tallies.setdefault(name, Counter())[kind] += 1
    facts = {}
    for name, tally in tallies.items():
        counted, rejected, missing = (tally.get(kind) for kind in ("counted", "rejected", "missing"))
        known = clients.get(name, ClientFacts())
        facts[name] = replace(known, counted=counted, rejected=rejected, missing=missing)
    return facts


def _final(files: RunDirectory, run: RunConfig, rounds: Sequence[RoundRecord]) -> Evaluation | None:
    result = read_table(files, "result.json")
    if not result.content:
        return None
    played = {name: _played(table) for name, table in result.items()}
    if "server" not in played:
        raise result.error("server is missing")
    server = played.pop("server")
    last = rounds[-1].number if files.stopped_early() and rounds else run.rounds
    return Evaluation(last, last * run.local_steps, server, played)


class Table:
    """A JSON table and where it stands, so that every error says so."""

    def __init__(self, content: Any, where: str) -> None:
        self.where = where
        if not isinstance(content, dict):
            raise self.error(f"{shown(content)} is here, but there must be a table")
        self.content: dict[str, Any] = content

    def error(self, what: str) -> FovaError:
        return FovaError(f"{self.where}: {what}. {REMEDY}")

    def wrong(self, name: str, value: Any, expected: str) -> FovaError:
        return self.error(f"{name} is {shown(value)}, but {expected}")

    def number(self, name: str, finite: bool = True) -> float:
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "must be a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if finite and not math.isfinite(number):
            raise self.wrong(name, value, "must be a finite number")
        return number

    def whole(self, name: str) -> int:
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST:
            raise self.wrong(name, value, "must be a whole number of at least 0")
        return value

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise self.wrong(name, value, "must be a text")
        return value

    def numbers(self, name: str) -> list[float]:
        """A list of numbers."""
        value = self._get(name)
        if not isinstance(value, list):
            raise self.wrong(name, value, "must be a list of numbers")
        row = Table(dict(zip(map(str, range(len(value))), value)), f"{self.where}, {name}")
        return [row.number(column) for column in row.content]

    def names(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty where there is none."""
        value = self.content.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, value, "must be a list of names")
        return tuple(value)

    def table(self, name: str) -> "Table":
        return Table(self._get(name), f"{self.where}, {name}")

    def optional_table(self, name: str) -> "Table | None":
        return Table(self.content[name], f"{self.where}, {name}") if name in self.content else None

    def tables(self, name: str) -> "list[tuple[str, Table]]":
        """The tables in a table; none where it is missing."""
        table = self.optional_table(name)
        return table.items() if table else []

    def items(self) -> "list[tuple[str, Table]]":
        return [(name, Table(value, f"{self.where}, {name}")) for name, value in self.content.items()]

    def _get(self, name: str) -> Any:
        if name not in self.content:
            raise self.error(f"{name} is missing")
        return self.content[name]

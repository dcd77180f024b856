"""Several algorithms on the same data, with the same seeds and the same budget of gradient steps, in one table.

A comparison is a folder of ordinary runs. What is finished is kept, what was interrupted is resumed, so the same
command can be given again and again until it is done.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fova import algorithms, training
from fova.clients import ClientSpec, complete
from fova.config import Config, RunConfig, load_config
from fova.errors import FovaError
from fova.evaluation.statistics import Interval, bootstrap_mean
from fova.reports.progress import Progress
from fova.runs import RunDirectory


@dataclass(frozen=True)
class Line:
    """One line of the table: an algorithm in one mode, over all seeds."""

    algorithm: str
    mode: str
    returns: list[float]  # the server's final mean return, one per seed
    scores: list[float] | None
    client_returns: list[float]  # the mean over clients of their own policies' returns, one per seed
    gradient_steps: int  # of all clients together, in one run

    @property
    def name(self) -> str:
        return self.algorithm if self.mode == "federated" else f"{self.algorithm} ({self.mode})"

    def interval(self) -> Interval:
        return bootstrap_mean(self.scores or self.returns)

    def to_json(self) -> dict[str, Any]:
        interval = self.interval()
        bounds = {} if math.isnan(interval.low) else {"low": interval.low, "high": interval.high}
        return vars(self) | {"mean": interval.mean} | bounds


@dataclass(frozen=True)
class Plan:
    """What is compared."""

    task: str
    clients: tuple[ClientSpec, ...]
    algorithms: tuple[str, ...]
    modes: tuple[str, ...]
    seeds: int
    run: dict[str, Any]  # fields of RunConfig that all runs share
    settings: dict[str, Any]  # settings of the algorithms that all share, where they have them

    def configurations(self) -> list[tuple[str, Config]]:
        """Every run by name, all lines of one seed before the next seed: a table can be had early."""
        return [
            (f"{Path(algorithm).stem}-{mode}-seed-{seed}", self._configuration(algorithm, mode, seed))
            for seed in range(self.seeds)
            for algorithm in self.algorithms
            for mode in self.modes
        ]

    def _configuration(self, algorithm: str, mode: str, seed: int) -> Config:
        known = algorithms.get(algorithm).__dataclass_fields__  # type: ignore[attr-defined]
        shared = {name: value for name, value in self.settings.items() if name in known}
        return Config(
            task=self.task,
            clients=self.clients,
            algorithm=algorithms.configure(algorithm, **shared),
            algorithm_name=algorithm,
            run=RunConfig(**self.run, mode=mode, seed=seed),  # type: ignore[arg-type]
        )


def compare(
    plan: Plan, directory: Path, progress: Callable[[], Progress], tell: Callable[[str], None]
) -> list[Line]:
    """Run what is not finished yet, then collect the table."""
    configurations = plan.configurations()
    for number, (name, config) in enumerate(configurations, 1):
        path = directory / name
        if not path.exists():
            tell(f"[{number}/{len(configurations)}] {name}")
            training.start(config, path, progress())
            continue
        stored = load_config(path / "config.toml")
        if stored != config:
            raise FovaError(
                f"{path} holds a run of another configuration. Give this comparison another --name, or repeat it "
                "with the settings it was started with."
            )
        if not RunDirectory.open(path).is_complete():
            tell(f"[{number}/{len(configurations)}] {name}: going on where it stopped")
            training.resume(path, progress())
    return collect(plan, directory)


def collect(plan: Plan, directory: Path) -> list[Line]:
    """The table of finished runs, best mean first."""
    lines = []
    for algorithm in plan.algorithms:
        for mode in plan.modes:
            names = [f"{Path(algorithm).stem}-{mode}-seed-{seed}" for seed in range(plan.seeds)]
            results = [RunDirectory.open(directory / name).read_json("result.json") for name in names]
            lines.append(_line(algorithm, mode, results, plan))
    return sorted(lines, key=lambda line: -line.interval().mean)


def behaviour_return(plan: Plan, directory: Path) -> float:
    """The mean return of the behaviour in the clients' data, over clients and seeds: the line to beat."""
    first = (Path(plan.algorithms[0]).stem, plan.modes[0])
    runs = [RunDirectory.open(directory / f"{first[0]}-{first[1]}-seed-{seed}") for seed in range(plan.seeds)]
    values = [client["behaviour_return"] for run in runs for client in run.read_json("clients.json").values()]
    return sum(values) / len(values)


def _line(algorithm: str, mode: str, results: Sequence[dict[str, Any]], plan: Plan) -> Line:
    own = [[r["return"] for name, r in result.items() if name != "server"] for result in results]
    scores = [result["server"]["score"] for result in results]
    rounds, local_steps = plan.run["rounds"], plan.run["local_steps"]
    return Line(
        algorithm=Path(algorithm).stem,
        mode=mode,
        returns=[result["server"]["return"] for result in results],
        scores=None if None in scores else scores,
        client_returns=[sum(returns) / len(returns) for returns in own],
        gradient_steps=rounds * local_steps * len(complete(plan.clients)),
    )

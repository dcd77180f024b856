"""The metrics of a run in a tracking service: Weights & Biases or MLflow, where the user asks for one.

`metrics.jsonl` always has everything. A service that fails during the run is left out from then on, with a note;
training goes on. Settings and metrics are sent, but no data and no paths.
"""

import importlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Protocol

from fova.errors import FovaError
from fova.run.config import Config
from fova.run.directory import RunDirectory
from fova.run.events import Scalars
from fova.settings import setting_name

Service = Literal["wandb", "mlflow"]
TRACKING = "tracking.json"
PROJECT = "fova"
MOST_AT_ONCE = 1000  # metrics in one request to MLflow


class Tracker(Protocol):
    """A run in a service."""

    identity: str  # by which a resumed run is found again

    def log(self, step: int, figures: Mapping[str, float]) -> None: ...

    def close(self, finished: bool) -> None: ...


class Trackers:
    """All services that a run reports to."""

    def __init__(self, config: Config, run: RunDirectory, note: Callable[[str], None]) -> None:
        self._config, self._run, self._note = config, run, note
        self._scalars = Scalars()
        self._open: dict[str, Tracker] = {}

    def open(self) -> None:
        """Start or continue the run at each service."""
        names = self._config.run.track
        known = self._run.read_json(TRACKING) if names and (self._run.path / TRACKING).exists() else {}
        for name in names:
            self._open[name] = _opened(name, self._run.path, _settings(self._config), known.get(name))
        if names:
            self._run.write_json(TRACKING, known | {name: each.identity for name, each in self._open.items()})

    def write(self, entry: Mapping[str, Any]) -> None:
        """Send an entry of metrics.jsonl, or one of the same form."""
        if self._open:
            figures = {f"{group}/{tag}": float(value) for group, tag, value in self._scalars.of(entry)}
            self._each(lambda tracker: tracker.log(entry["round"], figures))

    def close(self, finished: bool) -> None:
        self._each(lambda tracker: tracker.close(finished))
        self._open = {}

    def _each(self, work: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._open.items()):
            try:
                work(tracker)
            except Exception as error:  # noqa: BLE001 (whatever a service raises must not end a training)
                del self._open[name]
                self._note(f"{name} accepts no more metrics ({error}). All metrics are in metrics.jsonl.")


def insist_on_packages(names: Iterable[str]) -> None:
    """Refuse to begin a run whose service is not installed."""
    for name in names:
        _package(name)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise FovaError(
            f"track names {name}, which is not installed ({error}). Install it with: pip install 'fova[track]'"
        ) from error


def _opened(name: str, directory: Path, settings: dict[str, Any], identity: str | None) -> Tracker:
    package = _package(name)
    kind: type[Any] = {"wandb": WandbRun, "mlflow": MlflowRun}[name]
    try:
        return kind(package, directory, settings, identity)
    except Exception as error:  # the services have errors of many kinds
        raise FovaError(f"{name} cannot be used: {error}\nLeave --track out, or correct its settings.") from error


def _settings(config: Config) -> dict[str, Any]:
    """The settings by name. Paths of data are left out."""
    run = {
        f"run.{name}": value for name, value in asdict(config.run).items() if name not in ("track", "data_sequence")
    }
    algorithm = {f"algorithm.{setting_name(name)}": value for name, value in asdict(config.algorithm).items()}
    about = {"task": config.task, "algorithm": Path(config.algorithm_name).stem, "clients": len(config.clients)}
    return about | run | algorithm


class WandbRun:
    """A run at Weights & Biases. WANDB_MODE=offline keeps it in the run's directory, for `wandb sync`."""

    def __init__(self, wandb: Any, directory: Path, settings: dict[str, Any], identity: str | None) -> None:
        project = None if "WANDB_PROJECT" in os.environ else PROJECT
        self._run = wandb.init(
            project=project, name=directory.name, id=identity, resume="allow", dir=str(directory), config=settings
        )
        self.identity: str = self._run.id

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=step)

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


class MlflowRun:
    """A run at the MLflow server, or in the database, that MLFLOW_TRACKING_URI names."""

    def __init__(self, mlflow: Any, directory: Path, settings: dict[str, Any], identity: str | None) -> None:
        entities = importlib.import_module("mlflow.entities")
        self._metric, self._client = entities.Metric, mlflow.MlflowClient()
        if identity is not None:
            self._client.update_run(identity, "RUNNING")
            self.identity = identity
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        self.identity = self._client.create_run(experiment, run_name=directory.name).info.run_id
        parameters = [entities.Param(key, str(value)) for key, value in settings.items()]
        self._client.log_batch(self.identity, params=parameters)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(_mlflow_key(name), value, now, step) for name, value in figures.items()]
        for start in range(0, len(metrics), MOST_AT_ONCE):
            self._client.log_batch(self.identity, metrics=metrics[start : start + MOST_AT_ONCE])

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self.identity, "FINISHED" if finished else "KILLED")


def _mlflow_key(name: str) -> str:
    """A name with the characters that MLflow takes."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-. /") else "_" for c in name)

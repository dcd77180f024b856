"""Run directories for tests, made by `fova.train` itself.

Runs are tiny. Each is trained once per process, so that workers of pytest-xdist never share a folder, and copied to
where a test wants it. Networks, minibatches and local steps are those of other tests: the compilation cache serves
all of them. What a test expects is computed from the files of its run: `entries` and `result` read these without
the code under test.
"""

import functools
import itertools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import fova
from fova import algorithms
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.run.config import Config, RunConfig
from fova.run.directory import RunDirectory
from fova.tasks import registry
from tiny import make_transitions, save_npz

TASK, SIZE = "maze2d-umaze", 400
CLIENTS = (ClientSpec("expert", SIZE), ClientSpec("random", SIZE))  # called expert-1 and random-1
NETWORKS = {"hidden": (8,), "batch_size": 8}
RUN = {"rounds": 4, "local_steps": 2, "evaluate_every": 2, "episodes": 1, "final_episodes": 1}

_FOLDER = tempfile.TemporaryDirectory(prefix="fova-made-runs-")  # removed when the process ends


def make_run(
    directory: Path,
    seed: int = 0,
    algorithm: str = "fova",
    task: str | None = TASK,
    clients: tuple[ClientSpec, ...] = CLIENTS,
    finished: bool = True,
    **settings: Any,
) -> Path:
    """A copy of a run with two clients and four rounds, played after rounds 0 and 2 and at the end.

    Without a task, the clients are files with the same data. `finished=False` is a run that was stopped before its
    final evaluation.
    """
    shutil.copytree(_trained(seed, algorithm, task, clients, json.dumps(settings)), directory)
    if not finished:
        (directory / "result.json").unlink()
    return directory


def start_run(directory: Path, algorithm: str = "fova", task: str | None = TASK, **changes: Any) -> Path:
    """A run as it is before its first round; enough where only the configuration matters."""
    clients, columns = changes.pop("clients", CLIENTS), changes.pop("columns", None)
    run = {name: changes.pop(name) for name in list(changes) if name in RunConfig.__dataclass_fields__}
    configured = algorithms.configure(algorithm, **NETWORKS | changes)
    config = Config(task, clients, configured, algorithm, RunConfig(**RUN | run), columns)
    RunDirectory(directory).create(config)
    return directory


def interrupt(directory: Path, after: int) -> Path:
    """Make a run what it was when it had finished so many rounds."""
    for name in ("metrics.jsonl", "timing.jsonl"):
        lines = (directory / name).read_text().splitlines(keepends=True)
        (directory / name).write_text("".join(line for line in lines if json.loads(line)["round"] <= after))
    (directory / "result.json").unlink(missing_ok=True)
    return directory


@functools.cache
def _trained(seed: int, algorithm: str, task: str | None, clients: tuple[ClientSpec, ...], settings: str) -> Path:
    directory = Path(tempfile.mkdtemp(dir=_FOLDER.name)) / "run"
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in json.loads(settings).items()}
    if task is None:
        clients = _as_files(clients)
    fova.train(task, list(clients), None, algorithm, None, directory, seed=seed, **NETWORKS | RUN | given)
    return directory


@functools.cache
def _as_files(clients: tuple[ClientSpec, ...]) -> tuple[ClientSpec, ...]:
    """The clients with their data in files."""
    folder = Path(tempfile.mkdtemp(dir=_FOLDER.name))
    federation = Federation.build(clients, registry.get(TASK))
    for name, data in federation.clients.items():
        save_npz(folder / f"{name}.npz", data)
    return tuple(ClientSpec(str(folder / f"{name}.npz"), name=name) for name in federation.clients)


# --- Over a network ---

WARDS = ("east", "north", "south")


def make_network_run(directory: Path) -> Path:
    """A copy of a run over Flower's messages: north is rejected in round 2, south does not answer in round 3."""
    shutil.copytree(_federated(), directory)
    return directory


@functools.cache
def _federated() -> Path:
    from flwr.app import RecordDict

    from fova.network.server import train
    from fova.network.server_config import ServerConfig, create_run
    from fova.progress import Quiet
    from network.in_process import InProcessGrid

    folder = Path(tempfile.mkdtemp(dir=_FOLDER.name))
    for i, name in enumerate(WARDS):
        save_npz(folder / f"{name}.npz", make_transitions(i))
    nodes = {
        100 + i: {"name": name, "data": str(folder / f"{name}.npz"), "state": str(folder / "clients" / name)}
        for i, name in enumerate(WARDS)
    }
    grid = InProcessGrid(nodes)

    def in_round(number: int, change: Any) -> Any:
        rounds = itertools.count(1)

        def tamper(reply: Any) -> Any:
            answers = "parameters" in reply.content and next(rounds) == number
            return change(reply) if answers else reply

        return tamper

    def emptied(reply: Any) -> Any:
        reply.content = RecordDict()
        return reply

    grid.tamper = {101: in_round(2, emptied), 102: in_round(3, lambda reply: [])}
    algorithm = algorithms.configure("fed-bc", **NETWORKS)
    config = Config(None, (), algorithm, "fed-bc", RunConfig(rounds=3, local_steps=2))
    run = create_run(folder / "run", config, ServerConfig(min_clients=2, observation=3, action=2))
    train(grid, run, Quiet(), lambda seconds: None)
    return run.path


def write_verdict(run: Path, value: float = 7.0, data_value: float = 5.0) -> None:
    """A verdict on a run's own clients, as judge.json holds it."""
    figures = {
        "episodes": 20, "rows": 400, "data_value": data_value, "data_return": 9.0, "value": value, "low": value - 1,
        "high": value + 1, "difference": value - 5, "difference_low": value - 6, "difference_high": value - 4,
        "bellman_error": 0.1, "bias": 0.2, "episode_error": 0.3, "fit_error": 0.1, "difference_error": 0.3,
        "inside": 0.9, "effective_episodes": None, "importance_sampling": None, "importance_low": None,
        "importance_high": None, "doubly_robust": None, "doubly_robust_low": None, "doubly_robust_high": None,
    }  # fmt: skip
    clients = json.loads((run / "clients.json").read_text())
    content = {"format": 1, "policy": "fova", "discount": 0.99, "held_out": True, "sentence": "",
               "clients": dict.fromkeys(clients, figures), "federation": figures, "settings": {}}  # fmt: skip
    (run / "judge.json").write_text(json.dumps(content))


# --- What the files say ---


def entries(directory: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def result(directory: Path) -> dict[str, float]:
    """The final returns by policy; empty while a run is not finished."""
    path = directory / "result.json"
    played = json.loads(path.read_text()) if path.exists() else {}
    return {name: figures["return"] for name, figures in played.items()}


def described(directory: Path) -> dict[str, dict[str, Any]]:
    """What clients.json says about each client's data."""
    return dict(json.loads((directory / "clients.json").read_text()))

"""What the benchmarks of bad clients, privacy and compression share: a small federation, its score, a table.

Everything is on maze2d-umaze with expert data at every client, so that what is measured is the treatment and not
the mix of data. Networks are small and rounds few: the lines of a table can be compared with one another, and with
nothing else.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from fova import algorithms
from fova.data.normalise import Normaliser
from fova.errors import FovaError
from fova.evaluation.rollouts import play
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.federation.engine import RoundReport, RoundSettings, State
from fova.federation.simulation import Simulation
from fova.machine import runtime
from fova.policy import from_actor
from fova.tasks import registry

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "privacy.md"
TASK = registry.get("maze2d-umaze")
EPISODES = 10
SEEDS = 3  # of networks and training; the data is the same for all

# The default preset with small minibatches and large steps, so that few rounds suffice.
SETTINGS: dict[str, Any] = {"batch_size": 64, "actor_lr": 1e-3, "critic_lr": 1e-3}


def fova(**settings: Any) -> Any:
    return algorithms.configure("fova", **SETTINGS | settings)


def federation(clients: int, size: int) -> Federation:
    return Federation.build([ClientSpec("expert", size)] * clients, TASK)


def final_score(
    algorithm: Any,
    members: Federation,
    rounds: int,
    before: Callable[[State], State] = lambda state: state,
    **options: Any,
) -> tuple[float | None, list[RoundReport]]:
    """The normalised score of the server's policy after the last round; None if training broke down before it.

    `before` may change the first state.
    """
    runtime.prepare()
    frame = Normaliser.identity(members.space.observation)  # a private run has no other
    simulation = Simulation(algorithm, members.prepared(frame), members.space, RoundSettings(**options))
    state, reports = before(simulation.start()), []
    for _ in range(rounds):
        try:
            state, report = simulation.round(state)
        except FovaError as error:  # not one client is left with finite parameters
            print(error)
            return None, reports
        reports.append(report)
    policy = from_actor(
        jax.tree.map(jax.device_get, algorithm.policy(state.broadcast)),
        frame,
        members.space,
    )
    return play({"server": policy}, TASK, EPISODES)["server"].score, reports


# --- Results and tables ---


class Results:
    """Measured lines in a JSON file, written after each, so that an interrupted measurement goes on."""

    def __init__(self, name: str, setting: Mapping[str, Any]) -> None:
        self.path = ROOT / "results" / f"{name}.json"
        self.content: dict[str, Any] = {
            "setting": dict(setting) | {"task": TASK.name, "episodes": EPISODES, "fova": asdict(fova())},
            "versions": {package: version(package) for package in ("fova", "jax", "mujoco", "numpy")},
            "lines": {},
        }
        if self.path.exists():
            self.content["lines"] = json.loads(self.path.read_text())["lines"]

    @property
    def lines(self) -> dict[str, dict[str, Any]]:
        return self.content["lines"]

    def measure(
        self,
        name: str,
        about: Mapping[str, Any],
        seed: int,
        run: Callable[[int], tuple[float | None, dict[str, Any]]],
    ) -> None:
        """One run of a line: `run` gives score and further figures for a seed. What is there already stays."""
        line = self.lines.setdefault(name, dict(about) | {"scores": []})
        if seed < len(line["scores"]):
            return
        score, figures = run(seed)
        line["scores"].append(None if score is None else round(score, 1))
        for figure, value in figures.items():
            line.setdefault(figure, []).append(value)
        print(name, seed, line["scores"][-1], figures, flush=True)
        self.path.write_text(json.dumps(self.content, indent=2) + "\n")


def interval(scores: Sequence[float | None]) -> str:
    """The mean with its runs, or in how many runs there is nothing to take a mean of."""
    reached = [score for score in scores if score is not None]
    broken = f"broke down in {len(scores) - len(reached)} of {len(scores)} runs"
    if len(reached) == len(scores):
        return shown(reached)
    return f"{broken}; otherwise {shown(reached)}" if reached else broken


def shown(scores: Sequence[float]) -> str:
    """The mean and, in brackets, every run: three runs are too few for an interval."""
    return f"{sum(scores) / len(scores):.1f} ({', '.join(f'{score:.0f}' for score in scores)})"


def write_table(marker: str, rows: Iterable[Iterable[str]], columns: Iterable[str], path: Path = PAGE) -> None:
    """Put a table between its two markers on the page."""
    path.write_text(with_table(path.read_text(encoding="utf-8"), marker, rows, columns), encoding="utf-8")


def with_table(page: str, marker: str, rows: Iterable[Iterable[str]], columns: Iterable[str]) -> str:
    """The page with a table between its two markers."""
    lines = ["| " + " | ".join(columns) + " |"]
    lines += ["|" + "---|" * (lines[0].count("|") - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    start, end = f"<!-- table: {marker} -->", f"<!-- end of table: {marker} -->"
    head, tail = page.split(start)[0], page.split(end)[1]
    return f"{head}{start}\n" + "\n".join(lines) + f"\n{end}{tail}"

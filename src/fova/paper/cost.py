"""Estimates of the time that experiments take. They come from a file of measured speeds; nothing is measured here.

`speeds.json` is made from results/bench.json by `make bench`: one federation of four clients on all cores of one
machine. In an experiment each core trains a separate run, at its share of that speed. The time to make new data is
not included.
"""

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fova.machine.files import write_atomically

if TYPE_CHECKING:
    from fova.experiments.specifications import Entry, PlannedRun, Scale
    from fova.run.config import Config

SPEEDS = Path(__file__).with_name("speeds.json")
SECTIONS = ("algorithms", "playing", "start_up")  # of results/bench.json, from which the speeds come
SMALL, LARGE = "2x128, batch 128", "3x256, batch 256"  # the measured networks and minibatches
SMALL_WIDTH, SMALL_BATCH, LARGE_BATCH = 128, 128, 256
MEASURED_SAMPLES = 10  # actions of each source that cql-fl and drpo scored in these measurements
MOST_STEPS_PLAYED = 1000


class Speeds(NamedTuple):
    """What was measured, and where."""

    processor: str
    cores: int
    client_steps: dict[str, list[float]]  # per second on all cores, with the small networks and with the large ones
    environment_steps: float  # per second on one core
    maze_steps: float
    compiling: float  # seconds from the start of a process to the end of its first round
    compiled: float  # the same if the compiled programs are kept from an earlier run

    @property
    def machine(self) -> str:
        return f"{self.cores} cores of {self.processor}"

    @staticmethod
    def of(measured: dict[str, Any]) -> "Speeds":
        """The speeds of the content of results/bench.json."""
        steps, playing, start_up = (measured[name]["figures"] for name in SECTIONS)
        machine = measured["algorithms"]["machine"]
        return Speeds(
            machine["processor"],
            machine["cores"],
            {name: [steps[size][name]["median"] for size in (SMALL, LARGE)] for name in sorted(steps[SMALL])},
            playing["halfcheetah"]["together"]["median"],
            playing["maze2d-umaze"]["together"]["median"],
            start_up["first run, compiling"]["median"],
            start_up["same setting again"]["median"],
        )


def write_speeds(measured: dict[str, Any]) -> None:
    """Write the speeds of the content of results/bench.json."""
    write_atomically(SPEEDS, (json.dumps(Speeds.of(measured)._asdict(), indent=1) + "\n").encode())
    speeds.cache_clear()


@cache
def speeds() -> Speeds:
    """The speeds that estimates use."""
    return Speeds(**json.loads(SPEEDS.read_text(encoding="utf-8")))


class Cost(NamedTuple):
    """The number of runs of an entry at one scale, and their total time."""

    runs: int
    core_seconds: float


def of_entry(entry: "Entry", scale: "Scale") -> Cost:
    """The cost of all runs of an entry."""
    runs = entry.runs(scale)
    return Cost(len(runs), sum(map(core_seconds, runs)))


def core_seconds(run: "PlannedRun") -> float:
    """Seconds that one core needs for one run. Only the first seed of a case and variant pays for compilation."""
    start = speeds().compiling if run.config.run.seed == 0 else speeds().compiled
    training = run.config.gradient_steps / client_steps(run.config.algorithm_name, run.config.algorithm)
    return start + training + _environment_steps(run.config) / _playing_speed(str(run.config.task))


def seconds(config: "Config") -> float | None:
    """Seconds that one run takes on all cores; None for an algorithm without a measured speed."""
    if config.algorithm_name not in speeds().client_steps:
        return None
    training = config.gradient_steps / (speeds().cores * client_steps(config.algorithm_name, config.algorithm))
    playing = _environment_steps(config) / _playing_speed(config.task) if config.task else 0.0
    return speeds().compiling + training + playing


def client_steps(name: str, algorithm: Any) -> float:
    """Client-steps per second on one core. The speed is inversely proportional to the minibatch and the samples."""
    small, large = speeds().client_steps[name]
    is_small = max(algorithm.hidden) <= SMALL_WIDTH
    speed, batch = (small, SMALL_BATCH) if is_small else (large, LARGE_BATCH)
    samples = getattr(algorithm, "samples", MEASURED_SAMPLES)
    return speed / speeds().cores * (batch / algorithm.batch_size) * (MEASURED_SAMPLES / samples)


def _environment_steps(planned: "Config") -> float:
    """Environment steps of all evaluations, if every episode reaches its time limit."""
    from fova.evaluation.stages import STEPS
    from fova.federation.client_specs import complete
    from fova.tasks import registry

    config, clients = planned.run, len(complete(planned.clients))
    evaluations = config.rounds // config.evaluate_every if config.evaluate_every else 0
    episodes = evaluations * config.episodes * (1 + (clients if config.evaluate_clients else 0))
    episodes += config.final_episodes * (1 + (clients if config.final_clients else 0))
    task = registry.get(str(planned.task))
    steps = episodes * min(task.time_limit, MOST_STEPS_PLAYED)
    if config.evaluate_every and task.restartable is not None:
        stages, sources = len(config.data_sequence), len(set(config.data_sequence))
        steps += stages * sources * config.final_episodes * STEPS
    return steps


def _playing_speed(task: str) -> float:
    return speeds().maze_steps if task.startswith("maze2d") else speeds().environment_steps

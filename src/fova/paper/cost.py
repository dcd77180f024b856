"""Estimates of the time that experiments take. They come from a table of measured speeds; nothing is measured here.

The table is from docs/performance.md (`make bench`, results/bench.json): one federation of four clients on both
cores of an AMD EPYC. In an experiment each core trains a separate run, at half the speed of two cores. The time to
make new data is not included.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fova.experiments.specifications import Entry, PlannedRun, Scale
    from fova.run.config import Config

MACHINE = "2 cores of an AMD EPYC"
CORES = 2
# Client-steps per second on both cores: 2x128 networks with minibatches of 128, and 3x256 networks with 256.
CLIENT_STEPS = {
    "cql-fl": (75.1, 8.11),
    "drpo": (72.9, 8.02),
    "fed-bc": (1530.0, 369.0),
    "fed-iql": (513.0, 86.1),
    "fed-td3bc": (643.0, 114.0),
    "fedora": (334.0, 59.9),
    "fova": (312.0, 43.8),
}
SMALL_WIDTH, SMALL_BATCH, LARGE_BATCH = 128, 128, 256
MEASURED_SAMPLES = 10  # actions of each source that cql-fl and drpo scored in these measurements
# Environment steps per second on one core.
ENVIRONMENT_STEPS, MAZE_STEPS = 9_240.0, 16_600.0
MOST_STEPS_PLAYED = 1000
# Seconds from the start of a process to the end of its first round, with and without compilation.
COMPILING, COMPILED = 24.4, 7.5


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
    start = COMPILING if run.config.run.seed == 0 else COMPILED
    training = run.config.gradient_steps / client_steps(run.config.algorithm_name, run.config.algorithm)
    return start + training + _environment_steps(run.config) / _playing_speed(str(run.config.task))


def seconds(config: "Config") -> float | None:
    """Seconds that one run takes on both cores; None for an algorithm without a measured speed."""
    if config.algorithm_name not in CLIENT_STEPS:
        return None
    training = config.gradient_steps / (CORES * client_steps(config.algorithm_name, config.algorithm))
    playing = _environment_steps(config) / _playing_speed(config.task) if config.task else 0.0
    return COMPILING + training + playing


def client_steps(name: str, algorithm: Any) -> float:
    """Client-steps per second on one core. The speed is inversely proportional to the minibatch and the samples."""
    small, large = CLIENT_STEPS[name]
    is_small = max(algorithm.hidden) <= SMALL_WIDTH
    speed, batch = (small, SMALL_BATCH) if is_small else (large, LARGE_BATCH)
    samples = getattr(algorithm, "samples", MEASURED_SAMPLES)
    return speed / CORES * (batch / algorithm.batch_size) * (MEASURED_SAMPLES / samples)


def _environment_steps(planned: "Config") -> float:
    """Environment steps of all evaluations, if every episode reaches its time limit."""
    from fova.federation.clients import complete
    from fova.tasks import registry

    config, clients = planned.run, len(complete(planned.clients))
    evaluations = config.rounds // config.evaluate_every if config.evaluate_every else 0
    episodes = evaluations * config.episodes * (1 + (clients if config.evaluate_clients else 0))
    episodes += config.final_episodes * (1 + (clients if config.final_clients else 0))
    return episodes * min(registry.get(str(planned.task)).time_limit, MOST_STEPS_PLAYED)


def _playing_speed(task: str) -> float:
    return MAZE_STEPS if task.startswith("maze2d") else ENVIRONMENT_STEPS

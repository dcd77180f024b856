"""The time that an experiment takes on this machine: an estimate from a short measured run, which is kept.

One run of FOVA is measured for each size of network, in a process with one thread like the runner's workers. Other
algorithms are assumed to take the same time. The estimate counts processor time and not the making of new data.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fova.errors import FovaError
from fova.experiments.runner import one_thread
from fova.experiments.specifications import Entry, PlannedRun, Scale
from fova.federation.clients import complete
from fova.machine import runtime
from fova.machine.files import write_atomically
from fova.tasks import registry

TASK, CLIENTS, STEPS, EPISODES = "hopper", 2, 50, 4
MOST_STEPS_PLAYED = 1000
START_SECONDS = 10.0  # assumed for starting a process, loading compiled programs and writing files


@dataclass(frozen=True)
class Speed:
    """One core of this machine."""

    gradient_step: float  # seconds, of one client
    environment_step: float  # seconds


def seconds(run: PlannedRun, speed: Speed) -> float:
    """Core-seconds of one run."""
    config = run.config.run
    players = 1 + (len(complete(run.config.clients)) if config.evaluate_clients else 0)
    evaluations = config.rounds // config.evaluate_every + 1 if config.evaluate_every else 0
    episodes = evaluations * config.episodes * players
    episodes += config.final_episodes * (1 + len(complete(run.config.clients)))
    limit = min(registry.get(str(run.config.task)).time_limit, MOST_STEPS_PLAYED)
    # A soft maximum over ten sampled actions of each source costs four to five steps of FOVA (docs/performance.md).
    steps_of_fova = max(1.0, getattr(run.config.algorithm, "samples", 1) / 2)
    training = run.config.gradient_steps * speed.gradient_step * steps_of_fova
    return START_SECONDS + training + episodes * limit * speed.environment_step


def estimate(entry: Entry, scale: Scale, speed: Speed) -> float:
    """Core-seconds of all runs of an entry."""
    return sum(seconds(run, speed) for run in entry.runs(scale))


def speed_of(scale: Scale) -> Speed | None:
    """The speed for networks of this scale; None if it was not measured yet."""
    kept = _kept().get(_key(scale))
    return Speed(**kept) if kept else None


def measure(scale: Scale) -> Speed:
    """Measure the speed for networks of this scale in a process of its own, and keep it."""
    order = json.dumps(dict(scale.settings))
    done = subprocess.run(
        [sys.executable, "-m", "fova.paper.cost", order],
        env=one_thread(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FovaError(f"The speed of this machine could not be measured:\n{done.stderr[-1000:]}")
    speed = Speed(**json.loads(done.stdout.splitlines()[-1]))
    kept = _kept() | {_key(scale): vars(speed)}
    write_atomically(_file(), (json.dumps(kept, indent=2) + "\n").encode())
    return speed


def _file() -> Path:
    return runtime.cache_directory() / "speed.json"


def _kept() -> dict[str, Any]:
    return dict(json.loads(_file().read_text())) if _file().exists() else {}


def _key(scale: Scale) -> str:
    shape = {name: scale.settings[name] for name in ("hidden", "batch_size") if name in scale.settings}
    return json.dumps(shape, sort_keys=True)


def _main(settings: dict[str, Any]) -> None:
    """The measured run: one round to compile, one to measure; then a few episodes."""
    from fova import algorithms
    from fova.evaluation.rollouts import play
    from fova.federation.clients import ClientSpec
    from fova.policy import from_actor
    from fova.run.config import Config, RunConfig
    from fova.run.simulated import SimulatedEngine
    from fova.run.training import build_federation

    task = registry.get(TASK)
    clients = (ClientSpec("random", 1000),) * CLIENTS
    algorithm = algorithms.configure("fova", **settings)
    config = Config(TASK, clients, algorithm, run=RunConfig(rounds=2, local_steps=STEPS))
    engine = SimulatedEngine(config, build_federation(config))
    statistics = engine.prepare(None)
    state, _ = engine.round(engine.start())
    began = time.process_time()
    state, _ = engine.round(state)
    trained = time.process_time()
    policy = from_actor(algorithm.policy(state.broadcast), statistics.normaliser, engine.space)
    began_playing = time.process_time()
    played = play({"server": policy}, task, EPISODES)["server"]
    ended = time.process_time()
    measured = Speed((trained - began) / STEPS / CLIENTS, (ended - began_playing) / float(played.lengths.sum()))
    print(json.dumps(vars(measured)))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))

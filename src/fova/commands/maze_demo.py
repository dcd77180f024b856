"""The run of `fova demo`: two clients with good data, two with random data, one policy; a picture and a report.

It trains in the same way as `fova train`. It is small, so that it ends within minutes on two cores.
"""

from pathlib import Path
from typing import Any

from fova import algorithms
from fova.evaluation.rollouts import first_seed, play
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.machine.files import write_atomically
from fova.policy import load_policy
from fova.progress import Progress
from fova.reports.maze import panels_figure
from fova.reports.page import write_report
from fova.reports.scenes import EPISODES_DRAWN, Scene, episodes_of, png
from fova.run.config import Config, RunConfig
from fova.run.directory import free_name
from fova.run.result import Result
from fova.run.training import first_policy, start
from fova.tasks import registry

TASK = "maze2d-umaze"
CLIENTS = ("expert", "expert", "random", "random")
# Networks and minibatches are smaller than the defaults, so that training takes a minute or two.
SETTINGS: dict[str, Any] = {"hidden": (128, 128), "batch_size": 128}
CAPTION = (
    "The data of two of the clients, and the policy before and after training, from the same starts. "
    "The star is the goal."
)


def run(progress: Progress, root: Path, rounds: int = 30, size: int = 5000) -> tuple[Result, Path, Path]:
    """Train, then draw the data and the server's policy before and after training.

    Returns the result and the paths of the picture and the report.
    """
    config = Config(
        task=TASK,
        clients=tuple(ClientSpec(quality, size) for quality in CLIENTS),
        algorithm=algorithms.configure("fova", **SETTINGS),
        run=RunConfig(rounds=rounds, evaluate_every=5, episodes=10),
    )
    result = start(config, free_name("demo", root), progress)
    picture = draw(result.directory, config)
    shown = {config.algorithm_name: Scene(picture.read_bytes(), CAPTION)}
    report = write_report([result.directory], result.directory / "report.html", shown)
    return result, picture, report


def draw(directory: Path, config: Config) -> Path:
    """Draw the data, and the server's policy before and after training from the same initial states."""
    task = registry.get(TASK)
    federation = Federation.build(config.clients, task, config.run.seed)
    policies = {"before": first_policy(config, federation), "after": load_policy(directory)}
    played = play(policies, task, EPISODES_DRAWN, first_seed(config.run.seed), keep_trajectories=EPISODES_DRAWN)
    panels = [
        ("Data of an expert client", episodes_of(federation.clients["expert-1"])),
        ("Data of a random client", episodes_of(federation.clients["random-1"])),
        ("One policy, before training", played["before"].trajectories),
        ("One policy, after training", played["after"].trajectories),
    ]
    path = directory / "picture.png"
    write_atomically(path, png(panels_figure(TASK, panels), dpi=160))
    return path

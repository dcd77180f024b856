"""What a policy does, as a picture for the report: trajectories in a maze, a strip of film of a robot.

Policies are played here, so this is the slow part of a report; everything else only reads files. Where no picture
can be had, a sentence says why.
"""

import base64
import io
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.evaluation.rollouts import first_seed, play
from fova.federation.clients import Federation
from fova.policy import load_policy
from fova.reports.film import NoRenderer, film, strip_figure
from fova.reports.groups import Group
from fova.reports.maze import Panel, panels_figure
from fova.run.records import Record
from fova.tasks import registry
from fova.tasks.locomotion import LOCOMOTION_TASKS
from fova.tasks.maze2d import MAZE_TASKS
from fova.tasks.registry import Task

EPISODES_DRAWN = 6


@dataclass(frozen=True)
class Scene:
    """A picture and what it shows."""

    png: bytes
    caption: str

    def data_uri(self) -> str:
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


def scene(group: Group) -> Scene | str | None:
    """The picture of a group's first run, or a sentence on why there is none, or None where its task has none."""
    run = group.first
    task = run.config.task
    if task not in MAZE_TASKS and task not in LOCOMOTION_TASKS:
        return None
    if not (run.directory / "policy.safetensors").exists():
        return f"No picture of {group.label}: there is no server's policy in {run.directory.name}."
    return _in_the_maze(group, run, task) if task in MAZE_TASKS else _on_film(group, run, task)


def png(figure: Figure, dpi: int = 110) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, facecolor="white", format="png")
    return buffer.getvalue()


def episodes_of(data: Transitions) -> list[NDArray[np.float32]]:
    """The observations of a client's first episodes."""
    ends = np.flatnonzero(data.episode_ends)[:EPISODES_DRAWN] + 1
    return [data.observations[a:b] for a, b in zip([0, *ends], ends)]


def _in_the_maze(group: Group, run: Record, task_name: str) -> Scene:
    """The best and the worst client's data beside what the server's policy does."""
    task = registry.get(task_name)
    policies, seed = {"server": load_policy(run.directory)}, first_seed(run.seed)
    played = play(policies, task, EPISODES_DRAWN, seed, keep_trajectories=EPISODES_DRAWN)
    caption = f"Seen from above, up to {EPISODES_DRAWN} episodes in each picture."
    try:
        panels = _data_panels(run, task)
    except FovaError as error:  # a client's file may have moved since; the policy is still worth a picture
        panels = []
        caption += f" The clients' data cannot be drawn: {error}"
    panels.append((f"The server's policy, {group.label}", played["server"].trajectories))
    return Scene(png(panels_figure(task_name, panels)), caption)


def _data_panels(run: Record, task: Task) -> list[Panel]:
    if not run.config.clients:
        raise FovaError("it was handed over in memory or stayed with the clients.")
    if run.run.data_sequence:
        raise FovaError("it was replaced along the way.")
    federation = Federation.build(run.config.clients, task, run.seed)
    returns = run.behaviour_returns
    if not returns:
        raise FovaError("its returns are not known.")
    best_first = sorted(returns, key=lambda name: -returns[name])
    ends = dict.fromkeys((best_first[0], best_first[-1]))
    return [(f"Data of {client}", episodes_of(federation.clients[client])) for client in ends]


def _on_film(group: Group, run: Record, task_name: str) -> Scene | str:
    try:
        shown = film(run.directory, task_name)
    except NoRenderer as reason:
        return f"No film of {group.label}: {reason}."
    caption = (
        f"One episode of the server's policy of {group.label} (seed {run.seed}): return "
        f"{shown.episode_return:,.1f} in {shown.length:,} steps."
    )
    return Scene(png(strip_figure(shown, f"{group.label} on {task_name}")), caption)

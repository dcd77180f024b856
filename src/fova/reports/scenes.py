"""What a policy does, as a picture for the report: trajectories in a maze, a film strip, a patient's glucose.

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
from fova.reports.glucose import Section, outcomes_figure
from fova.reports.groups import Group
from fova.reports.maze import Panel, panels_figure
from fova.run.config import load_config
from fova.run.records import Record
from fova.run.training import build_federation
from fova.tasks import registry
from fova.tasks.glucose import GLUCOSE_TASKS
from fova.tasks.glucose.table import clinical_figures
from fova.tasks.locomotion import LOCOMOTION_TASKS
from fova.tasks.maze2d import MAZE_TASKS

EPISODES_DRAWN = 6
DAYS_PLAYED = 30


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
    if task not in MAZE_TASKS and task not in LOCOMOTION_TASKS and task not in GLUCOSE_TASKS:
        return None
    if not (run.directory / "policy.safetensors").exists():
        return f"No picture of {group.label}: there is no server's policy in {run.directory.name}."
    if task in GLUCOSE_TASKS:
        return _of_patients(group, run, task)
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
        panels = _data_panels(run)
    except FovaError as error:  # a client's file may have moved since; the policy is still worth a picture
        panels = []
        caption += f" The clients' data cannot be drawn: {error}"
    panels.append((f"The server's policy, {group.label}", played["server"].trajectories))
    return Scene(png(panels_figure(task_name, panels)), caption)


def _of_patients(group: Group, run: Record, task_name: str) -> Scene:
    """Time in range of the clinics' data and of the server's policy, and a day of the first patients."""
    task = registry.get(task_name)
    played = play(
        {"server": load_policy(run.directory)}, task, DAYS_PLAYED, first_seed(run.seed), keep_trajectories=1
    )["server"]
    caption = (
        f"Shares of the sensor readings: the clients' data on their own patients, and the server's policy in "
        f"{DAYS_PLAYED} days of {task_name} patients. Simulated patients; not medical advice."
    )
    try:
        clients = _federation(run).clients
        data = {name: clinical_figures([day.observations for day in of.episodes()]) for name, of in clients.items()}
    except FovaError as error:  # a client's file may have moved since; the policy is still worth a picture
        data = {}
        caption += f" The clients' data cannot be drawn: {error}"
    day = played.trajectories[0]
    server = Section(
        title="The server's policy",
        outcomes={group.label: played.measures},
        day={group.label: day[:, 0]},
        meals=day[:, 4],
        day_title="A day of one patient",
    )
    sections = [Section("The clients' data", data)] if data else []
    return Scene(png(outcomes_figure([*sections, server])), caption)


def _federation(run: Record) -> Federation:
    if not run.config.clients:
        raise FovaError("it was handed over in memory or stayed with the clients.")
    if run.run.data_sequence:
        raise FovaError("it was replaced along the way.")
    return build_federation(load_config(run.directory / "config.toml"))


def _data_panels(run: Record) -> list[Panel]:
    federation = _federation(run)
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

"""A strip of film: what a policy does in a robot's task, a few pictures from one episode side by side.

MuJoCo draws through OpenGL. Where there is no usable driver the drawing may fail in any manner, down to ending
the process, and the driver has to be chosen before MuJoCo is loaded. So the frames are rendered in a process of
their own (`python -m fova.reports.film`), and a machine without a renderer gets a `NoRenderer` that says why.
"""

import io
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.evaluation.rollouts import first_seed
from fova.policy import Policy, load_policy
from fova.tasks import registry
from fova.tasks.registry import Task

FRAMES = 8
WIDTH, HEIGHT = 240, 240
CAMERA = "track"  # Gymnasium's robots carry a camera of this name
SECONDS = 180.0  # to render in; software drivers take about a third of a second a frame


class NoRenderer(FovaError):
    """Nothing can be rendered here; the message says why."""


@dataclass(frozen=True)
class Film:
    """Frames of one episode, evenly spread from its start to its end."""

    frames: NDArray[np.uint8]  # [frames, height, width, 3]
    times: NDArray[np.int64]  # the time step of each frame
    episode_return: float
    length: int


def film(run: Path, task_name: str) -> Film:
    """Render the server's policy of a run; raises NoRenderer where that is not possible."""
    command = [sys.executable, "-m", "fova.reports.film", str(run), task_name]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, env=_environment(), check=False)
    except subprocess.TimeoutExpired as error:
        raise NoRenderer(f"rendering took longer than {SECONDS:.0f} seconds") from error
    if done.returncode != 0:
        last_words = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise NoRenderer(f"MuJoCo cannot render here: {''.join(last_words) or f'exit code {done.returncode}'}")
    with np.load(io.BytesIO(done.stdout), allow_pickle=False) as arrays:
        return Film(arrays["frames"], arrays["times"], float(arrays["episode_return"]), int(arrays["length"]))


def strip_figure(shown: Film, title: str) -> Figure:
    """The frames in rows of four, large enough for a phone, each with its time step."""
    columns = min(len(shown.frames), 4)
    rows = math.ceil(len(shown.frames) / columns)
    figure = Figure(figsize=(2.0 * columns, 2.3 * rows + 0.4), layout="constrained")
    all_axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in all_axes:
        axes.set_axis_off()
    for axes, frame, time in zip(all_axes, shown.frames, shown.times):
        axes.imshow(frame)
        axes.set_title(f"step {time}", fontsize=12)
    figure.suptitle(title, fontsize=14)
    return figure


def _environment() -> dict[str, str]:
    """The environment of a process that draws without a screen, where MuJoCo has to be asked for that."""
    headless = sys.platform.startswith("linux") and not os.environ.get("DISPLAY")
    return {"MUJOCO_GL": "egl"} | os.environ if headless else dict(os.environ)


# --- In the process that renders ---


def render(policy: Policy, task: Task, frames: int = FRAMES) -> Film:
    """Play one episode, remember where the robot was, then draw it at a few moments."""
    import mujoco

    env = task.make()
    observation, _ = env.reset(seed=first_seed(policy.facts.get("seed", 0)))
    simulation: Any = env.unwrapped
    states, episode_return, running = [_state(simulation.data)], 0.0, True
    while running:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        states.append(_state(simulation.data))
        episode_return += float(reward)
        running = not (terminated or truncated)
    times = np.unique(np.linspace(0, len(states) - 1, frames).astype(np.int64))
    pictures = []
    with mujoco.Renderer(simulation.model, HEIGHT, WIDTH) as renderer:
        for time in times:
            simulation.set_state(*states[time])
            renderer.update_scene(simulation.data, camera=CAMERA)
            pictures.append(renderer.render())
    env.close()
    return Film(np.stack(pictures), times, episode_return, len(states) - 1)


def _state(data: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return data.qpos.copy(), data.qvel.copy()


def main() -> None:
    """Render and write the arrays to standard output."""
    run, task_name = sys.argv[1:]
    shown = render(load_policy(Path(run)), registry.get(task_name))
    np.savez_compressed(sys.stdout.buffer, **vars(shown))


if __name__ == "__main__":
    main()

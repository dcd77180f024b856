"""Pictures of Maze2D: the maze seen from above, and where the ball went.

Arrays in, figures out: nothing is trained or simulated here, and no global plotting state is touched, so it works
without a display. Rows of the layout run down the page and columns across it, as the layout is printed.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import ArrayLike, NDArray

from fova.errors import FovaError
from fova.reports import palette
from fova.tasks.maze2d import BALL_OFFSET, GOAL_RADIUS, Maze, maze_task

Panel = tuple[str, Sequence[ArrayLike]]  # (title, trajectories)

FLOOR, WALL, INK, GOAL = "#f6f5f0", "#555d6b", "#22262e", palette.GREEN
# Perceptually even and safe for colour-blind readers; cut before the yellow that a light floor swallows.
TIME_COLOURS = ListedColormap(matplotlib.colormaps["plasma"](np.linspace(0.0, 0.82, 256)))
# Without the goal's green. More clients than colours repeat them.
CLIENT_COLOURS = (
    palette.BLUE, palette.VERMILION, palette.PURPLE, palette.SKY, palette.ORANGE, palette.BLACK,
)  # fmt: skip
START: dict[str, Any] = {"marker": "o", "markersize": 7.5, "markerfacecolor": "white", "markeredgecolor": INK}
END: dict[str, Any] = {"marker": "o", "markersize": 6.5, "markeredgecolor": "white"}
TARGET: dict[str, Any] = {"marker": "*", "markersize": 19, "markerfacecolor": GOAL, "markeredgecolor": "white"}
PANEL_HEIGHT = 2.9  # inches; small, so that the letters are legible at the width of a page
RIM = 0.2  # how much of the outer wall is shown, in cells


def draw_trajectories(
    axes: Axes,
    task_name: str,
    trajectories: Sequence[ArrayLike],  # each [steps, 2 or more], as observed: x and y come first
    title: str,
    clients: Sequence[str] | None = None,
) -> None:
    """Draw the maze, its goal, and each trajectory with a white dot at its start and a coloured one at its end.

    Colour tells the time, from the start to the task's time limit. With `clients`, one name for each trajectory,
    it tells whose trajectory it is instead, and a legend below gives the names.
    """
    if clients is not None and len(clients) != len(trajectories):
        raise FovaError(f"There are {len(trajectories)} trajectories, but {len(clients)} names of clients.")
    maze = maze_task(task_name).maze
    _draw_maze(axes, maze)
    for number, trajectory in enumerate(trajectories):
        points = _on_the_page(trajectory)
        if clients is None:
            colours = TIME_COLOURS(np.arange(len(points)) / maze.time_limit)
        else:
            colours = np.array([_client_colours(clients)[clients[number]]] * len(points))
        steps = list(np.stack([points[:-1], points[1:]], axis=1))
        axes.add_collection(LineCollection(steps, colors=colours[:-1], linewidths=1.6, capstyle="round", zorder=3))
        axes.plot(*points[0], linestyle="none", zorder=4, **START)
        axes.plot(*points[-1], linestyle="none", zorder=4, markerfacecolor=colours[-1], **END)
    axes.set_title(title, fontsize=14, color=INK, pad=9)
    if clients:
        names = [Line2D([], [], color=c, linewidth=3, label=name) for name, c in _client_colours(clients).items()]
        axes.legend(handles=names, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=3, frameon=False, fontsize=11)


def panels_figure(task_name: str, panels: Sequence[Panel]) -> Figure:
    """One maze per panel side by side, coloured by time on one scale."""
    if not panels:
        raise FovaError("There is nothing to draw: give at least one (title, trajectories) panel.")
    maze = maze_task(task_name).maze
    left, right, bottom, top = _view(maze)
    panel_width = PANEL_HEIGHT * (right - left) / (bottom - top)
    margins = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(len(panels) * (panel_width + 0.2) + 0.9, PANEL_HEIGHT + 1.1), layout=margins)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, trajectories) in zip(all_axes, panels):
        draw_trajectories(axes, task_name, trajectories, title)
    _add_key(figure, all_axes[-1], maze.time_limit)
    return figure


def _add_key(figure: Figure, last_panel: Axes, time_limit: int) -> None:
    """The scale of time at the right of the last panel, as high as the maze, and the markers below."""
    scale = ScalarMappable(Normalize(0, time_limit), TIME_COLOURS)
    bar = figure.colorbar(scale, cax=last_panel.inset_axes((1.03, 0.0, 0.035, 1.0)))
    bar.set_label("time step", fontsize=12, color=INK)
    bar.ax.tick_params(labelsize=11, color=INK, labelcolor=INK)
    bar.outline.set_visible(False)
    markers = {"start": START, "end": END | {"markerfacecolor": TIME_COLOURS(1.0)}, "goal": TARGET}
    handles = [Line2D([], [], linestyle="none", label=name, **style) for name, style in markers.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=12, labelcolor=INK)


def _client_colours(clients: Sequence[str]) -> dict[str, str]:
    return dict(zip(dict.fromkeys(clients), itertools.cycle(CLIENT_COLOURS)))


def _draw_maze(axes: Axes, maze: Maze) -> None:
    is_wall = np.array([[mark == "#" for mark in line] for line in maze.layout])
    ((across, down),) = _on_the_page([maze.goal])
    axes.set_facecolor(FLOOR)
    axes.add_patch(Circle((across, down), GOAL_RADIUS, facecolor=GOAL, alpha=0.18, zorder=1))
    # Above the rewarded disc: what of it lies inside a wall cannot be reached.
    axes.imshow(np.ma.masked_equal(is_wall, False), cmap=ListedColormap([WALL]), interpolation="nearest", zorder=2)
    axes.plot(across, down, linestyle="none", zorder=5, **TARGET)
    left, right, bottom, top = _view(maze)
    axes.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)


def _view(maze: Maze) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of what is shown: all free cells and the rim of the outer wall."""
    rows, columns = len(maze.layout), len(maze.layout[0])
    return 0.5 - RIM, columns - 1.5 + RIM, rows - 1.5 + RIM, 0.5 - RIM


def _on_the_page(trajectory: ArrayLike) -> NDArray[np.float64]:
    """Observed x, y -> (across, down), where cells are unit squares around whole numbers.

    The ball's coordinates run `BALL_OFFSET` behind the walls'; unshifted it would seem to pass through them.
    """
    observed = np.asarray(trajectory, np.float64)
    if observed.ndim != 2 or len(observed) < 1 or observed.shape[1] < 2:
        raise FovaError(
            f"A trajectory has shape {observed.shape}, but (steps, 2 or more) is needed: x and y first."
        )
    return observed[:, 1::-1] + BALL_OFFSET

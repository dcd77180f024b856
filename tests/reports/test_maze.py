"""Pictures of mazes, checked by what is drawn where: walls by pixel, trajectories by coordinates."""

from itertools import islice

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fova.errors import FovaError
from fova.reports.maze import FLOOR, WALL, draw_trajectories, panels_figure
from fova.tasks import registry
from fova.tasks.maze2d import LARGE, maze_task

CORNER_TO_GOAL = np.array([[3.0, 1.0, 9.0, 9.0], [3.0, 3.0, 9.0, 9.0], [1.0, 3.0, 9.0, 9.0], [1.0, 1.0, 9.0, 9.0]])


@pytest.fixture
def axes():
    return Figure(figsize=(6, 6)).subplots()


def drawn_points(axes) -> np.ndarray:
    return np.concatenate([segment for lines in axes.collections for segment in lines.get_segments()])


def test_rows_run_down_columns_across_and_the_ball_is_shifted(axes):
    draw_trajectories(axes, "maze2d-umaze", [CORNER_TO_GOAL], "one")
    (lines,) = axes.collections
    assert np.allclose(lines.get_segments()[0], [[1.2, 3.2], [3.2, 3.2]])  # (across, down)
    assert np.allclose(lines.get_segments()[-1], [[3.2, 1.2], [1.2, 1.2]])
    assert axes.yaxis_inverted()
    assert axes.get_title() == "one"


def test_walls_and_floor_are_where_the_layout_has_them(axes):
    draw_trajectories(axes, "maze2d-large", [], "empty")
    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())

    def colour_at(row: int, column: int) -> str:
        across, up = axes.transData.transform((column, row)).astype(int)
        return to_hex(picture[len(picture) - 1 - up, across, :3] / 255)

    inside = [(row, column) for row in range(1, 8) for column in range(1, 11) if (row, column) != LARGE.goal]
    for row, column in inside:
        assert colour_at(row, column) == (WALL if LARGE.layout[row][column] == "#" else FLOOR)


@pytest.mark.parametrize("quality", ["noisy", "undirected", "random"])
def test_no_trajectory_seems_to_enter_a_wall(axes, quality):
    task = registry.get("maze2d-medium")
    trajectories = [episode.observations for episode in islice(task.generate(quality, 0, 0), 4)]
    draw_trajectories(axes, "maze2d-medium", trajectories, quality)
    free = set(maze_task("maze2d-medium").maze.cells)
    assert {(round(down), round(across)) for across, down in drawn_points(axes)} <= free


def test_colour_follows_time_to_the_time_limit(axes):
    still = np.ones((301, 4))
    draw_trajectories(axes, "maze2d-umaze", [still, still[:151]], "time")
    whole, half = (lines.get_colors() for lines in axes.collections)
    assert np.array_equal(whole[:150], half)
    assert not np.array_equal(whole[0], whole[-1])


def test_clients_share_one_colour_each_and_are_named(axes):
    draw_trajectories(axes, "maze2d-umaze", [CORNER_TO_GOAL] * 3, "who", clients=["north", "south", "north"])
    first, second, third = (to_hex(lines.get_colors()[0]) for lines in axes.collections)
    assert first == third != second
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["north", "south"]


def test_panels_stand_side_by_side():
    one = panels_figure("maze2d-umaze", [("before", [CORNER_TO_GOAL])])
    two = panels_figure("maze2d-umaze", [("before", [CORNER_TO_GOAL]), ("after", [])])
    assert [axes.get_title() for axes in two.axes] == ["before", "after"]
    (one_width, one_height), (two_width, two_height) = one.get_size_inches(), two.get_size_inches()
    assert one_height == two_height
    assert 1.6 * one_width < two_width < 2 * one_width


def test_what_cannot_be_drawn_is_refused(axes):
    with pytest.raises(FovaError, match="maze2d-umaze"):
        draw_trajectories(axes, "hopper", [], "no maze")
    with pytest.raises(FovaError, match=r"\(4,\)"):
        draw_trajectories(axes, "maze2d-umaze", [np.zeros(4)], "one row only")
    with pytest.raises(FovaError, match="2 names"):
        draw_trajectories(axes, "maze2d-umaze", [CORNER_TO_GOAL], "who", clients=["a", "b"])
    with pytest.raises(FovaError, match="nothing to draw"):
        panels_figure("maze2d-umaze", [])

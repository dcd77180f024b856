"""Plans by hand, the controller's arithmetic, and the data: its returns, its rows, its repeatability."""

import zlib
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fova.errors import FovaError
from fova.tasks import registry
from fova.tasks.maze2d import LARGE, MEDIUM, UMAZE, Maze, maze_task
from fova.tasks.maze_environment import MazeEnvironment
from fova.tasks.maze_planner import WaypointController, nearer_half, shortest_path, undirected_trajectory

QUALITIES = ("expert", "noisy", "undirected", "random")


def make(task: str, quality: str, count: int, first: int = 0, seed: int = 0) -> list:
    return list(islice(registry.get(task).generate(quality, first, seed), count))


# --- Planner and controller -------------------------------------------------------------------------------


def test_the_way_round_the_umaze():
    assert shortest_path(UMAZE, (3, 1), (1, 1)) == [(3, 2), (3, 3), (2, 3), (1, 3), (1, 2), (1, 1)]
    assert shortest_path(UMAZE, (1, 1), (1, 1)) == []


@pytest.mark.parametrize("maze", [UMAZE, MEDIUM, LARGE])
def test_paths_are_walkable_and_as_short_as_repeated_relaxation_says(maze: Maze):
    steps = {start: {target: 0.0 if start == target else np.inf for target in maze.cells} for start in maze.cells}
    for _ in maze.cells:
        for row, column in maze.cells:
            for near in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                for target in maze.cells:
                    if near in steps:
                        shorter = min(steps[row, column][target], 1 + steps[near][target])
                        steps[row, column][target] = shorter
    for start in maze.cells:
        for target in maze.cells:
            path = [start, *shortest_path(maze, start, target)]
            assert len(path) - 1 == steps[start][target]
            assert path[-1] == target
            assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in pairwise(path))
            assert set(path) <= set(maze.cells)


def test_the_push_is_ten_times_the_way_less_the_velocity_within_bounds():
    controller = WaypointController(UMAZE, np.array([1.0, 1.0, 0, 0]), (1, 1), np.random.default_rng(0))
    push, arrived = controller.act(np.array([0.95, 1.01, 0.3, -0.2]))
    assert push == pytest.approx([10 * 0.05 - 0.3, -10 * 0.01 + 0.2])
    assert arrived
    push, arrived = controller.act(np.array([0.5, 1.3, 0.3, -0.2]))
    assert push.tolist() == [1.0, -1.0]
    assert push.dtype == np.float32
    assert not arrived


def test_waypoints_are_taken_one_by_one_and_only_the_target_is_exact():
    start = np.array([3.0, 1.0, 0.0, 0.0])
    controller = WaypointController(UMAZE, start, (1, 1), np.random.default_rng(0))
    left = 6
    for cell in shortest_path(UMAZE, (3, 1), (1, 1)):
        assert len(controller._waypoints) == left
        waypoint = np.array(controller._waypoints[0])
        shift = np.array(cell) - waypoint
        assert np.all((shift >= 0) & (shift <= 0.2))
        assert np.array_equal(shift, [0, 0]) == (cell == (1, 1))
        x, y = waypoint
        _, arrived = controller.act(np.array([x, y + 0.11, 0.0, 0.0]))
        assert not arrived
        assert len(controller._waypoints) == left  # 0.11 is not near enough
        _, arrived = controller.act(np.array([x, y + 0.09, 0.0, 0.0]))
        left -= 1
    assert arrived


# --- The stream of episodes -------------------------------------------------------------------------------


@pytest.mark.parametrize("quality", QUALITIES)
def test_episodes_are_whole_truncated_and_within_bounds(quality):
    (episode,) = make("maze2d-umaze-dense", quality, 1)
    assert episode.observations.shape == (301, 4)
    assert episode.actions.shape == (300, 2)
    assert {array.dtype for array in (episode.observations, episode.actions, episode.rewards)} == {np.dtype("f4")}
    assert not episode.terminated
    assert np.abs(episode.actions).max() <= 1.0
    reached = episode.observations[1:, :2]
    assert episode.rewards == pytest.approx(np.exp(-np.linalg.norm(reached - [1, 1], axis=1)), rel=1e-5)


@pytest.mark.parametrize("quality", QUALITIES)
def test_stored_actions_are_those_executed(quality):
    """Played back from the same start, they give the very same observations."""
    (episode,) = make("maze2d-umaze", quality, 1, first=4, seed=9)
    environment = maze_task("maze2d-umaze").make()
    stream = zlib.crc32(f"maze2d-umaze/{quality}".encode())
    environment.np_random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([9, stream, 4])))
    rows = [environment.reset()[0], *(environment.step(action)[0] for action in episode.actions)]
    assert np.array_equal(np.array(rows, np.float32), episode.observations)


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(QUALITIES), st.integers(0, 5), st.integers(0, 2**40))
def test_episode_i_is_the_same_wherever_the_stream_starts(quality, first, seed):
    later = make("maze2d-umaze", quality, 1, first, seed)[0]
    earlier = make("maze2d-umaze", quality, first + 1, 0, seed)[first]
    for name in ("observations", "actions", "rewards"):
        assert getattr(later, name).tobytes() == getattr(earlier, name).tobytes()


def test_seed_episode_quality_and_task_each_change_the_data():
    streams = {
        episode.observations[0].tobytes()
        for task in ("maze2d-umaze", "maze2d-umaze-dense")
        for quality in QUALITIES
        for seed in (0, 1)
        for episode in make(task, quality, 2, seed=seed)
    }
    assert len(streams) == 2 * 4 * 2 * 2


def test_an_unknown_quality_or_seed_is_refused_at_once():
    with pytest.raises(FovaError, match="'expert'"):
        registry.get("maze2d-umaze").generate("experts", 0, 0)
    with pytest.raises(FovaError, match="seed is -1"):
        registry.get("maze2d-umaze").generate("expert", 0, -1)


def test_the_expert_replans_every_episode_and_ends_on_the_goal():
    for episode in make("maze2d-medium", "expert", 5):
        assert np.linalg.norm(episode.observations[-1, :2] - [6, 6]) < 0.01


def test_noise_is_on_the_actions():
    def roughness(quality: str) -> float:
        return np.mean([np.abs(np.diff(e.actions, axis=0)).mean() for e in make("maze2d-umaze", quality, 3)])

    assert roughness("noisy") > 0.4
    assert roughness("expert") < 0.1


# --- Returns ----------------------------------------------------------------------------------------------
# Reference figures from another implementation of the recipe: the planner over the 100 episodes that follow
# reset(seed=0), random actions over 400 others. A random episode's return spreads by about 50.

PLANNER_RETURNS = {
    "maze2d-umaze": 217.2,
    "maze2d-umaze-dense": 230.0,
    "maze2d-medium": 441.0,
    "maze2d-medium-dense": 455.1,
    "maze2d-large": 567.9,
    "maze2d-large-dense": 587.5,
}
RANDOM_RETURNS = {"maze2d-umaze": 24.1, "maze2d-medium": 16.1, "maze2d-large": 11.9}


def mean_return(task: str, quality: str, count: int) -> float:
    return float(np.mean([episode.rewards.sum() for episode in make(task, quality, count)]))


def planner_return_after_seed_0(name: str) -> float:
    task = maze_task(name)
    environment, rng, total = task.make(), np.random.default_rng(0), 0.0
    for number in range(100):
        observation, _ = environment.reset(seed=0 if number == 0 else None)
        controller = WaypointController(task.maze, observation, task.maze.goal, rng)
        for _ in range(task.maze.time_limit):
            observation, reward, *_ = environment.step(controller.act(observation)[0])
            total += reward
    return total / 100


def test_the_planner_scores_what_another_implementation_scored():
    assert planner_return_after_seed_0("maze2d-umaze") == pytest.approx(PLANNER_RETURNS["maze2d-umaze"], abs=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANNER_RETURNS)
def test_the_planner_scores_what_another_implementation_scored_on_every_maze(name):
    assert planner_return_after_seed_0(name) == pytest.approx(PLANNER_RETURNS[name], abs=2)


@pytest.mark.parametrize("task", RANDOM_RETURNS)
def test_mean_returns_of_a_few_episodes(task):
    assert mean_return(task, "expert", 25) == pytest.approx(PLANNER_RETURNS[task], abs=75)
    assert mean_return(task, "random", 15) == pytest.approx(RANDOM_RETURNS[task], abs=40)


@pytest.mark.slow
@pytest.mark.parametrize("task", RANDOM_RETURNS)
def test_mean_returns_of_many_episodes(task):
    expert, noisy, undirected, chance = (mean_return(task, quality, 150) for quality in QUALITIES)
    assert expert == pytest.approx(PLANNER_RETURNS[task], abs=35)
    assert noisy == pytest.approx(expert, abs=20)
    assert chance == pytest.approx(RANDOM_RETURNS[task], abs=10)
    assert 2 < undirected < 0.15 * expert  # the goal is only passed by on the way to other targets


# --- Undirected data and D4RL's way of logging it ---------------------------------------------------------


def repeats(episode) -> list[int]:
    return np.flatnonzero((episode.observations[1:] == episode.observations[:-1]).all(axis=1)).tolist()


def rewards_of(observations: np.ndarray) -> np.ndarray:
    return np.exp(-np.linalg.norm(observations[:, :2] - [1, 1], axis=1))


def test_undirected_data_visits_the_whole_maze():
    (episode,) = make("maze2d-umaze", "undirected", 1)
    trajectory = undirected_trajectory(MazeEnvironment(UMAZE, dense=True), 3000, np.random.default_rng(0))
    visited = {UMAZE.cell_at(x, y) for x, y in trajectory.observations[:, :2].tolist()}
    assert visited == set(UMAZE.cells)
    assert repeats(episode) == repeats(trajectory) == []
    assert trajectory.rewards == pytest.approx(rewards_of(trajectory.observations[1:]), rel=1e-5)


def test_the_nearer_half_of_the_maze_by_hand():
    assert nearer_half(UMAZE) == {(1, 1), (1, 2), (1, 3), (2, 3)}  # of seven cells in a row, the middle one counts


@pytest.mark.parametrize("quality", ["near", "far"])
def test_near_and_far_data_stay_in_their_half_until_the_last_step(quality):
    near = nearer_half(UMAZE)
    part = near if quality == "near" else set(UMAZE.cells) - near
    episodes = make("maze2d-umaze", quality, 6)
    assert any(len(episode) > 20 for episode in episodes)
    for episode in episodes:
        cells = [UMAZE.cell_at(x, y) for x, y in episode.observations[:, :2].tolist()]
        assert set(cells[:-1]) <= part
    paid = [episode.rewards.max() > 0 for episode in episodes]
    last_cells = {UMAZE.cell_at(*e.observations[-1, :2].tolist()) for e in episodes}
    if quality == "near":  # it drives to the goal and stays
        assert all(paid)
        assert last_cells == {UMAZE.goal}
    else:  # it drives out of its part and is never paid
        assert not any(paid)
        assert last_cells <= near


def test_d4rl_compatible_rows_repeat_at_a_change_of_target_and_pay_for_the_observation_acted_in():
    environment = MazeEnvironment(UMAZE, dense=True)
    trajectory = undirected_trajectory(environment, 3000, np.random.default_rng(0), d4rl_compatible=True)
    changes = repeats(trajectory)
    assert len(changes) > 10
    for t in changes:  # a target is given up on when reached: the ball is near a cell's own coordinates
        position = trajectory.observations[t, :2]
        assert np.linalg.norm(position - np.rint(position)) < 0.1
    assert trajectory.rewards == pytest.approx(rewards_of(trajectory.observations[:-1]), rel=1e-5)


def test_a_target_out_of_reach_is_given_up_after_the_time_limit():
    hurried = Maze("hurried", UMAZE.layout, time_limit=5)  # D4RL counts so that the change comes at the sixth step
    environment = MazeEnvironment(hurried, dense=True)
    trajectory = undirected_trajectory(environment, 600, np.random.default_rng(0), d4rl_compatible=True)
    gaps = np.diff([-1, *repeats(trajectory)])
    assert gaps.max() == 6
    assert (gaps == 6).mean() > 0.5

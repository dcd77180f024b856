"""The simulator against numbers worked out by hand.

The ball weighs 4/3 pi 0.1^3 1000 = 4.18879; a full push is 100; the step is 0.01; damping is 1 and implicit. So a
free step takes velocity v under push a to (4.18879 v + a) / 4.19879, and the position on by 0.01 times that.
"""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fova.errors import FovaError
from fova.tasks.maze2d import MEDIUM, UMAZE
from fova.tasks.maze_environment import MazeEnvironment

MASS = 4 / 3 * math.pi
STILL = np.zeros(2, np.float32)


@pytest.fixture
def umaze() -> MazeEnvironment:
    return MazeEnvironment(UMAZE, dense=False)


def at(environment: MazeEnvironment, *state: float) -> np.ndarray:
    return environment.reset(options={"state": state})[0]


@pytest.mark.filterwarnings("ignore:.*A Box observation space")  # true of every MuJoCo task: no bound is declared
def test_gymnasium_accepts_it():
    for dense in (False, True):
        check_env(MazeEnvironment(MEDIUM, dense), skip_render_check=True)


def test_first_step_from_rest_under_a_full_push(umaze):
    at(umaze, 1.0, 1.0, 0.0, 0.0)
    observation, *_ = umaze.step(np.array([0.0, 1.0]))
    velocity = 1 / 4.1987902
    assert observation == pytest.approx([1.0, 1.0 + 0.01 * velocity, 0.0, velocity], abs=1e-7)


def test_free_motion_follows_the_hand_worked_recursion(umaze):
    pushes = 0.5 * np.sin(np.arange(60).reshape(30, 2) / 4)
    observation = at(umaze, 0.9, 2.0, 0.3, -0.2)
    position, velocity = observation[:2], observation[2:]
    for push in pushes:
        velocity = (MASS * velocity + push) / (MASS + 0.01)
        position = position + 0.01 * velocity
        observation, *_ = umaze.step(push)
        assert observation == pytest.approx(np.concatenate([position, velocity]), abs=1e-9)
    assert np.ptp(pushes) > 0.9


def test_speed_is_limited_before_the_step_each_axis_by_itself(umaze):
    at(umaze, 1.0, 1.0, 0.0, 9.0)
    observation, *_ = umaze.step(STILL)
    assert observation[3] == pytest.approx(5 * MASS / (MASS + 0.01))  # 4.98809
    at(umaze, 1.0, 1.0, 0.0, 9.0)
    observation, *_ = umaze.step(np.array([0.0, 1.0]))
    assert observation[3] == pytest.approx((5 * MASS + 1) / (MASS + 0.01))  # 5.226: over the limit until next step
    assert observation[3] > 5.2


def test_actions_are_clipped_to_the_bounds(umaze):
    at(umaze, 1.0, 1.0, 0.0, 0.0)
    clipped, *_ = umaze.step(np.array([-1.0, 1.0]))
    at(umaze, 1.0, 1.0, 0.0, 0.0)
    wild, *_ = umaze.step(np.array([-np.inf, 1e12]))
    assert wild.tolist() == clipped.tolist()


@pytest.mark.parametrize(
    ("push", "axis", "stop"),
    # The cell's inside is a box of half width 0.5 around (0.8, 0.8); the ball's radius is 0.1.
    [((-1, 0), 0, 0.4), ((1, 0), 0, 1.2), ((0, -1), 1, 0.4)],
)
def test_walls_stop_the_ball_at_its_rim(umaze, push, axis, stop):
    at(umaze, 0.8, 0.8, 0.0, 0.0)
    for _ in range(200):
        observation, *_ = umaze.step(np.array(push))
    assert observation[axis] == pytest.approx(stop, abs=0.02)  # MuJoCo's walls give a little
    assert observation[1 - axis] == pytest.approx(0.8, abs=1e-6)
    assert abs(observation[2 + axis]) < 1e-3


def test_an_open_side_lets_the_ball_through(umaze):
    at(umaze, 0.8, 0.8, 0.0, 0.0)
    for _ in range(200):
        observation, *_ = umaze.step(np.array([0.0, 1.0]))
    assert observation[1] == pytest.approx(3.2, abs=0.02)


def test_sparse_reward_counts_the_rim_of_the_goal(umaze):
    assert umaze.reward(1.0, 1.5) == 1.0
    assert umaze.reward(1.3, 1.4) == 1.0  # 3-4-5
    assert umaze.reward(1.0, 1.5 + 1e-9) == 0.0


def test_dense_reward_is_exp_of_minus_the_distance():
    dense = MazeEnvironment(UMAZE, dense=True)
    assert dense.reward(1.0, 1.0) == 1.0
    assert dense.reward(4.0, 5.0) == pytest.approx(math.exp(-5))


def test_a_step_pays_for_the_place_reached():
    at(umaze := MazeEnvironment(UMAZE, dense=False), 1.0, 1.51, 0.0, -3.0)
    observation, reward, *_ = umaze.step(STILL)
    assert observation[1] < 1.5
    assert reward == 1.0
    at(dense := MazeEnvironment(UMAZE, dense=True), 1.0, 2.0, 0.0, 3.0)
    observation, reward, *_ = dense.step(STILL)
    assert reward == pytest.approx(math.exp(-(observation[1] - 1.0)))


def test_reset_draws_free_cells_small_offsets_and_small_velocities():
    environment = MazeEnvironment(MEDIUM, dense=False)
    starts = np.array([environment.reset(seed=seed)[0] for seed in range(600)])
    cells = np.rint(starts[:, :2])
    assert {tuple(map(int, cell)) for cell in cells} == set(MEDIUM.cells)
    offsets = starts[:, :2] - cells
    assert np.abs(offsets).max() <= 0.1
    assert np.abs(offsets).max() > 0.09
    assert starts[:, 2:].std() == pytest.approx(0.1, rel=0.1)


def test_the_same_seed_gives_the_same_bytes_whatever_came_before(umaze):
    def run() -> bytes:
        rng = np.random.default_rng(5)
        rows = [umaze.reset(seed=3)[0]]
        rows += [umaze.step(rng.uniform(-1, 1, 2))[0] for _ in range(200)]
        return np.array(rows).tobytes()

    first = run()
    at(umaze, 0.45, 1.0, -5.0, 0.0)
    umaze.step(np.array([-1.0, 0.0]))  # leaves a contact in the solver's memory
    assert run() == first
    assert umaze.reset(seed=4)[0].tobytes() != umaze.reset(seed=3)[0].tobytes()


def test_reset_sets_the_clock_back(umaze):
    umaze.reset(seed=0)
    for _ in range(300):
        *_, truncated, _ = umaze.step(STILL)
    assert truncated
    umaze.reset(seed=0)
    assert not umaze.step(STILL)[3]


def test_it_runs_in_a_vector_environment():
    vector = gymnasium.vector.SyncVectorEnv([lambda: MazeEnvironment(UMAZE, dense=True)] * 3)
    observations, _ = vector.reset(seed=0)
    observations, rewards, *_ = vector.step(np.zeros((3, 2), np.float32))
    assert observations.shape == (3, 4)
    assert len(set(rewards)) == 3


@pytest.mark.parametrize("state", [(0.0, 0.0, 0.0, 0.0), (1.0, 1.0), (1.0, np.nan, 0.0, 0.0)])
def test_a_start_that_cannot_be_is_refused(umaze, state):
    with pytest.raises(FovaError, match="start"):
        at(umaze, *state)


def test_a_nan_action_is_refused(umaze):
    umaze.reset(seed=0)
    with pytest.raises(FovaError, match="diverged"):
        umaze.step(np.array([0.0, np.nan]))

import gymnasium
import numpy as np
import pytest

from fova.tasks.locomotion import LOCOMOTION_TASKS
from fova.tasks.simulators import GymnasiumSimulators, LocomotionSimulators

STEPS, TIME_LIMIT = 90, 60


@pytest.mark.parametrize("name", LOCOMOTION_TASKS)
def test_the_quick_simulators_are_gymnasium_to_the_last_bit(name):
    """Three places side by side against three Gymnasium environments, through falls, time limits, fresh starts and
    pauses."""
    task = LOCOMOTION_TASKS[name]

    def make():
        return gymnasium.make(task.environment, max_episode_steps=TIME_LIMIT, **task.options)

    quick, plain = LocomotionSimulators(make, name, places=3), GymnasiumSimulators(make, places=3)
    rng = np.random.default_rng(0)
    for place in range(3):
        np.testing.assert_array_equal(quick.start(place, 7 + place), plain.start(place, 7 + place))
    falls = timeouts = 0
    for step in range(STEPS):
        actions = rng.uniform(-1, 1, (3, task.space.action.size)).astype(np.float32)
        playing = [0, 1, 2] if step % 5 else [0, 2]
        given, expected = quick.step(actions, playing), plain.step(actions, playing)
        for field in given._fields:
            np.testing.assert_array_equal(
                getattr(given, field)[playing], getattr(expected, field)[playing], err_msg=field
            )
        for place in playing:
            if given.terminated[place] or given.truncated[place]:
                falls += given.terminated[place]
                timeouts += given.truncated[place]
                np.testing.assert_array_equal(quick.start(place, step), plain.start(place, step))
    assert falls or name in ("halfcheetah", "ant")  # a cheetah cannot fall, and an ant seldom does so soon
    assert timeouts or name in ("hopper", "walker2d")
    quick.close()


def moved(task, steps, strength):
    """An environment after some random steps, and its observations."""
    environment = task.make()
    seen = [environment.reset(seed=3)[0]]
    rng = np.random.default_rng(1)
    for _ in range(steps):
        action = rng.uniform(-strength, strength, task.space.action.size).astype(np.float32)
        seen.append(environment.step(action)[0])
    return environment, seen


@pytest.mark.parametrize("name", LOCOMOTION_TASKS)
def test_an_episode_that_starts_at_an_observation_goes_on_as_gymnasium_does_from_that_state(name):
    task = LOCOMOTION_TASKS[name]
    environment, (*_, observation) = moved(task, steps=6, strength=0.1)
    robot = environment.unwrapped
    assert np.abs(robot.data.qvel).max() < 10.0, "no observed velocity is clipped"
    hidden = robot.model.nq + robot.model.nv - len(observation)
    positions, velocities = robot.data.qpos.copy(), robot.data.qvel.copy()
    positions[:hidden] = 0.0
    environment.reset(seed=0)
    robot.set_state(positions, velocities)
    simulators = task.simulators(2)
    simulators.start(0, 7)
    np.testing.assert_array_equal(simulators.start_at(1, observation), observation)
    rng = np.random.default_rng(2)
    for _ in range(5):
        actions = rng.uniform(-1, 1, (2, task.space.action.size)).astype(np.float32)
        given, expected = simulators.step(actions, [0, 1]), environment.step(actions[1])
        np.testing.assert_array_equal(given.observations[1], expected[0])
        assert (given.rewards[1], given.terminated[1]) == (expected[1], expected[2])
    simulators.close()


@pytest.mark.parametrize("name", LOCOMOTION_TASKS)
def test_it_does_not_matter_how_far_the_robot_had_come(name):
    """Data does not say it. The steps that follow show and pay what they would have there."""
    task = LOCOMOTION_TASKS[name]
    environment, (*_, observation) = moved(task, steps=6, strength=0.1)
    environment.unwrapped.data.qacc_warmstart[:] = 0.0  # what the solver begins with is no part of the state
    simulators = task.simulators(1)
    simulators.start_at(0, observation)
    actions = np.full((1, task.space.action.size), 0.3, np.float32)
    for _ in range(2):  # Gymnasium measures the first speed of an Ant from a torso that lags behind by one frame
        given, expected = simulators.step(actions, [0]), environment.step(actions[0])
        np.testing.assert_allclose(given.observations[0], expected[0], atol=1e-6)
    assert given.rewards[0] == pytest.approx(expected[1], abs=1e-6)
    simulators.close()


@pytest.mark.parametrize("name", LOCOMOTION_TASKS)
def test_rows_of_data_are_given_back(name):
    task = LOCOMOTION_TASKS[name]
    _, seen = moved(task, steps=20, strength=1.0)
    simulators = task.simulators(1)
    for row in np.float32(seen):  # the precision of data
        np.testing.assert_array_equal(simulators.start_at(0, row), row.astype(np.float64))
    fast = np.float32(seen[0])
    fast[-1] = -12.5
    bound = 10.0 if name in ("hopper", "walker2d") else 12.5  # these two observe velocities of at most 10
    assert simulators.start_at(0, fast)[-1] == -bound
    simulators.close()


def test_making_a_robot_prints_nothing(capfd):
    LOCOMOTION_TASKS["halfcheetah"].make()
    assert capfd.readouterr() == ("", "")

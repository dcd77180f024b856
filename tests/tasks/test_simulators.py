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


def test_making_a_robot_prints_nothing(capfd):
    LOCOMOTION_TASKS["halfcheetah"].make()
    assert capfd.readouterr() == ("", "")

import numpy as np
import pytest

from fova.tasks.locomotion import LOCOMOTION_TASKS
from fova.tasks.simulators import GymnasiumSimulators, LocomotionSimulators

STEPS = 90


@pytest.mark.parametrize("name", LOCOMOTION_TASKS)
def test_the_quick_simulators_are_gymnasium_to_the_last_bit(name):
    """Two places side by side against two Gymnasium environments, through falls and fresh starts."""
    task = LOCOMOTION_TASKS[name]
    quick = LocomotionSimulators(task.make, name, places=2)
    plain = GymnasiumSimulators(task.make, places=2)
    rng = np.random.default_rng(0)
    for place in (0, 1):
        np.testing.assert_array_equal(quick.start(place, 7 + place), plain.start(place, 7 + place))
    falls = 0
    for step in range(STEPS):
        actions = rng.uniform(-1, 1, (2, task.shapes.action)).astype(np.float32)
        given, expected = quick.step(actions), plain.step(actions)
        for field in given._fields:
            np.testing.assert_array_equal(getattr(given, field), getattr(expected, field), err_msg=field)
        for place in np.flatnonzero(given.terminated).tolist():
            falls += 1
            np.testing.assert_array_equal(quick.start(place, step), plain.start(place, step))
    assert falls or name in ("halfcheetah", "ant")  # a cheetah cannot fall, and an ant seldom does so soon


def test_making_a_robot_prints_nothing(capfd):
    LOCOMOTION_TASKS["halfcheetah"].make()
    assert capfd.readouterr() == ("", "")

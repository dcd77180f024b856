import numpy as np
import pytest

from evaluation.test_rollouts import RESTARTABLE, constant
from fova.data.transitions import Episode, from_episodes
from fova.evaluation.stages import STEPS, Stages


def counting(*numbers):
    """One episode that goes through these observations. The last one ends it and is in no row."""
    seen = np.float32(numbers)[:, None]
    steps = len(numbers) - 1
    return from_episodes([Episode(seen, np.zeros((steps, 1), np.float32), np.zeros(steps, np.float32), True)])


def drawn(*sources, seed=0, episodes=50):
    """Stages of two clients. Source `low` holds 1 to 4, `high` 11 to 14; the episodes end at 99."""
    data = {"low": [counting(1, 2, 99), counting(3, 4, 99)], "high": [counting(11, 12, 99), counting(13, 14, 99)]}
    return Stages.drawn(RESTARTABLE, sources, [dict(zip("ab", data[s])) for s in sources], episodes, seed)


def test_start_states_are_rows_of_all_clients_with_the_source_and_never_an_end():
    starts = drawn("low", "high").starts
    assert set(starts["low"][:, 0].tolist()) == {1, 2, 3, 4}
    assert set(starts["high"][:, 0].tolist()) == {11, 12, 13, 14}
    assert starts["low"].shape == starts["high"].shape == (50, 1)


def test_a_source_that_comes_again_counts_once_with_the_rows_of_all_its_stages():
    later = [{"a": counting(1, 2, 99)}, {"a": counting(11, 99)}, {"a": counting(3, 4, 99)}]
    stages = Stages.drawn(RESTARTABLE, ("low", "high", "low"), later, 50, 0)
    assert list(stages.starts) == ["low", "high"]
    assert set(stages.starts["low"][:, 0].tolist()) == {1, 2, 3, 4}


def test_the_seed_decides():
    one, same, other = drawn("low", "high"), drawn("low", "high"), drawn("low", "high", seed=1)
    for source in ("low", "high"):
        np.testing.assert_array_equal(one.starts[source], same.starts[source])
        assert one.starts[source].tolist() != other.starts[source].tolist()
    assert (one.starts["high"] - 10).tolist() != one.starts["low"].tolist()  # sources are drawn apart


def test_one_row_of_the_matrix_by_hand():
    starts = {"low": np.float32([[2], [4]]), "high": np.float32([[10], [300]])}
    stages = Stages(RESTARTABLE, starts, ("low", "low", "high", "low"))
    low, high = 3.0, (10 + STEPS) / 2  # the mean number of steps; each pays the action
    expected = [2.0 * low, 2.0 * low, 2.0 * high, 2.0 * low]
    assert stages.returns({"server": constant(2.0)}) == pytest.approx(expected, rel=1e-4)
    both = stages.returns({"a": constant(1.0), "b": constant(3.0)})  # where every client trains alone: their mean
    assert both == pytest.approx(expected, rel=1e-4)

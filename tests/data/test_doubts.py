"""Mistakes that training would not notice: each is named in words."""

import numpy as np
import pytest
from hand_made import write_npz, write_parquet

from fova.data.doubts import doubts, neighbour_ratios
from fova.data.heterogeneity import Standing
from fova.data.inspect import meaning
from fova.data.sources import load
from fova.errors import FovaError


def walk(seed=0, episodes=8, steps=30):
    """Slow random walks, without next observations."""
    rng = np.random.default_rng(seed)
    rows = episodes * steps
    last = np.arange(rows) % steps == steps - 1
    return {
        "observations": np.cumsum(rng.normal(size=(rows, 2)), axis=0),
        "actions": rng.uniform(-1, 1, (rows, 1)),
        "rewards": rng.normal(size=rows),
        "terminals": np.zeros(rows),
        "timeouts": last,
    }


def said(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    source = load(tmp_path / "a.npz")
    return "\n".join((*source.notes, *doubts(source)))


def test_sound_data_raises_no_doubts(tmp_path):
    assert "no more similar" not in said(tmp_path, walk())
    assert "marked as" not in said(tmp_path, walk())


def test_rows_shuffled_inside_episodes_without_step_numbers(tmp_path):
    arrays = walk()
    order = np.concatenate([30 * e + np.random.default_rng(e).permutation(30) for e in range(8)])
    shuffled = arrays | {name: arrays[name][order] for name in ("observations", "actions", "rewards")}
    assert "consecutive rows are no more similar than rows of the episode" in said(tmp_path, shuffled)


def test_the_ratio_of_neighbours_is_the_one_worked_out_by_hand():
    observations = np.tile([[0.0], [1.0], [2.0], [3.0]], (20, 1)).astype(np.float32)
    ends = np.arange(80) % 4 == 3
    # Steps of 1; the variance within an episode is 5 / 3: 1 / (2 * 5 / 3).
    np.testing.assert_allclose(neighbour_ratios(observations, ends), [0.3])


def test_numbers_that_mark_missing_values(tmp_path):
    arrays = walk()
    arrays["observations"][[5, 9], 1] = -999
    assert "observations, column 1: holds -999 in 2 rows, far from its other values" in said(tmp_path, arrays)


def test_time_outs_that_are_all_marked_as_terminals(tmp_path):
    arrays = walk()
    ended = said(tmp_path, arrays | {"terminals": arrays["timeouts"], "timeouts": np.zeros(240)})
    assert "all 8 episodes have 30 steps, and all are marked as ended by the task" in ended


def test_records_that_are_merged_because_none_is_marked_as_cut_off(tmp_path):
    assert "No row is marked as cut off" in said(tmp_path, walk() | {"timeouts": np.zeros(240)})
    assert "No row is marked as cut off" not in said(tmp_path, walk())


def test_numbers_with_leading_zeros_are_refused_by_name(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", observation_00=np.zeros(7))
    with pytest.raises(FovaError, match="observation_00: is not numbered as columns must be"):
        load(file)


def test_actions_beyond_bounds_that_nobody_declared(tmp_path):
    from fova.federation.client_specs import ClientSpec
    from fova.federation.clients import Federation

    write_npz(tmp_path / "a.npz", actions=np.full((7, 2), 3.25) * [1, -2])
    with pytest.raises(FovaError, match="The bounds of the actions are not declared") as refused:
        Federation.build([ClientSpec(str(tmp_path / "a.npz"))])
    assert "--action-low 3.25 -6.5 --action-high 3.25 -6.5" in str(refused.value)


def standing(mean, actions=0.0, states=0.0, spread=20.0, episodes=50):
    return Standing(1000, episodes, mean, spread, 1.0, 0.0, states, actions)


def test_clients_with_other_returns_are_not_called_alike():
    told = meaning({"a": standing(-47), "b": standing(-92), "c": standing(-69)})
    assert "actions are similar, but their returns differ (a earns -47, b -92)" in told
    # 12 is less than the spread within clients, but three standard errors are 3 * sqrt(2 * 400 / 50) = 12.
    assert "their returns differ" in meaning({"a": standing(0), "b": standing(12.5)})
    assert "are alike" in meaning({"a": standing(0), "b": standing(11.5)})

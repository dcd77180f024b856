"""Mistakes that training would not notice: each is named in words."""

import numpy as np
import pytest
from hand_made import write_npz, write_parquet

from fova.data.doubts import doubts, neighbour_ratios, remarks
from fova.data.heterogeneity import Standing
from fova.data.inspect import meaning
from fova.data.sources import MADE, Source, load
from fova.data.transitions import Episode, from_episodes
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


def test_the_ratio_does_not_depend_on_the_unit_and_constant_columns_have_none():
    steps = np.tile([[0.0], [1.0], [2.0], [3.0]], (20, 1))
    columns = np.hstack([1e-8 * steps, np.full((80, 1), 1e6), 1e8 * steps, np.zeros((80, 1))])
    np.testing.assert_allclose(neighbour_ratios(columns.astype(np.float32), np.arange(80) % 4 == 3), [0.3, 0.3])


def test_episodes_of_unequal_length_have_a_mean_each():
    observations = np.concatenate([np.tile([0.0, 1.0, 2.0], 20), np.tile([5.0, 9.0], 20)]).astype(np.float32)[
        :, None
    ]
    ends = np.concatenate([np.arange(60) % 3 == 2, np.arange(40) % 2 == 1])
    # 40 steps of 1 and 20 of 4; squares about the means: 20 * 2 and 20 * 8, with 100 - 40 degrees of freedom.
    expected = (40 * 1 + 20 * 16) / 60 / (2 * (40 + 160) / 60)
    np.testing.assert_allclose(neighbour_ratios(observations, ends), [expected])


@pytest.mark.parametrize(("rows", "known"), [(52, 1), (51, 1), (50, 0)])  # 51, 50 and 49 pairs of neighbours
def test_fifty_pairs_of_neighbours_are_enough(rows, known):
    observations = np.arange(rows, dtype=np.float32)[:, None]
    assert len(neighbour_ratios(observations, np.arange(rows) == rows - 1)) == known


def source(lengths, rewards=None, terminated=True, **about):
    """Episodes of the given lengths in which nothing but the given is strange."""
    rows = sum(lengths)
    rewards = np.resize(np.asarray([0.0, 1.0] if rewards is None else rewards, np.float32), rows)
    bounds = np.cumsum([0, *lengths])
    those = [
        Episode(np.arange(n + 1, dtype=np.float32)[:, None], np.zeros((n, 1), np.float32), rewards[a:b], terminated)
        for n, a, b in zip(lengths, bounds, bounds[1:])
    ]
    return Source("a", about.pop("format", "NPZ"), from_episodes(those), about.pop("notes", ()), **about)


def test_rewards_that_never_change():
    assert doubts(source([3, 4])) == []  # 0 and 1
    assert doubts(source([3, 4], rewards=[2.5])) == [
        "rewards: every step earns 2.5, so no action is better than another."
    ]
    assert doubts(source([3, 4], rewards=[2.5], format=MADE)) == []


@pytest.mark.parametrize(
    ("lengths", "doubted"),
    [([2] * 5, True), ([3] * 6, True), ([2] * 4, False), ([1] * 5, False), ([2, 2, 2, 2, 3], False)],
)
def test_how_many_equal_endings_look_like_a_time_limit(lengths, doubted):
    said = (
        f"terminals: all {len(lengths)} episodes have {lengths[0]} steps, and all are marked as ended by the task."
    )
    assert [each.startswith(said) for each in doubts(source(lengths))] == [True] * doubted
    assert doubts(source(lengths, terminated=False)) == []


def test_the_order_is_doubted_only_where_nothing_tells_it():
    back_and_forth = source([60])
    back_and_forth.transitions.observations[:] = np.arange(60)[:, None] % 2
    assert doubts(back_and_forth) == []
    (said,) = doubts(Source(**vars(back_and_forth) | {"order_is_known": False}))
    assert said.startswith("observations: consecutive rows are no more similar")


def test_a_remark_about_several_clients_is_made_once():
    told = remarks({"a": source([3], notes=("x", "y")), "b": source([3], notes=("x",)), "c": source([3], [7.0])})
    assert told == ["a, b: x", "a: y", "c: rewards: every step earns 7, so no action is better than another."]


def test_sentinels_of_tables_are_not_named_again():
    strange = source([30])
    strange.transitions.observations[5, 0] = -999
    (said,) = doubts(strange)
    assert said.startswith("observations, column 0: holds -999 in 1 row, far from its other values (0 to 29).")
    assert doubts(Source(**vars(strange) | {"observation_columns": ("hr",)})) == []
    (said,) = doubts(source([30], rewards=[0.0, 1.0, 2.0, -999.0] + [1.0] * 26))
    assert said.startswith("rewards: holds -999 in 1 row")


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

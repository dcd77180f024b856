import numpy as np
import pytest
from hand_made import assert_same, episode, episodes
from hypothesis import given
from hypothesis import strategies as st

from fova.data.transitions import (
    Episode,
    Transitions,
    bounds_in_words,
    check,
    from_episodes,
    join,
    refuse_unbounded,
)
from fova.errors import FovaError
from fova.spaces import Box, Discrete


@pytest.fixture
def data() -> Transitions:
    return from_episodes(episodes())


def changed(data: Transitions, **values) -> Transitions:
    arrays = {name: getattr(data, name).copy() for name in data.__dataclass_fields__}
    return Transitions(**(arrays | values))


def with_value(data: Transitions, field: str, where, value) -> Transitions:
    array = getattr(data, field).copy()
    array[where] = value
    return changed(data, **{field: array})


# --- Laying out --------------------------------------------------------------------------------------------


def test_every_boundary_of_four_hand_made_episodes(data):
    # rows:                   |-- ends --|  |cut|  end cut
    assert data.terminals.tolist() == [0, 0, 1, 0, 0, 1, 0]
    assert data.episode_ends.tolist() == [False, False, True, False, True, True, True]
    assert data.has_next_action.tolist() == [1, 1, 0, 1, 0, 0, 0]
    assert data.rewards.tolist() == [0, 1, 2, 1, 2, 2, 3]
    assert data.observations[:, 0].tolist() == [0, 1, 2, 10, 11, 20, 30]
    assert data.next_observations[:, 0].tolist() == [1, 2, 3, 11, 12, 21, 31]
    np.testing.assert_allclose(data.actions[:, 0], [0, 0.1, 0.2, 0.01, 0.11, 0.02, 0.03], atol=1e-7)
    # a' is the following action within an episode, and zero (never the next episode's) at its end
    np.testing.assert_allclose(data.next_actions[:, 0], [0.1, 0.2, 0, 0.11, 0, 0, 0], atol=1e-7)
    np.testing.assert_allclose(data.next_actions[:, 1], [-0.5, -0.5, 0, -0.5, 0, 0, 0])


def test_everything_is_float32_but_the_marks_of_the_episodes(data):
    dtypes = {name: getattr(data, name).dtype for name in data.__dataclass_fields__}
    assert dtypes.pop("episode_ends") == np.dtype(bool)
    assert set(dtypes.values()) == {np.dtype(np.float32)}


def test_returns_and_lengths_by_hand(data):
    assert data.episode_returns().tolist() == [3, 3, 2, 3]
    assert data.episode_lengths().tolist() == [3, 2, 1, 1]


def test_returns_are_summed_in_double_precision():
    rewards = np.full(10_000, 0.1, np.float32)
    one = Episode(np.zeros((10_001, 1), np.float32), np.zeros((10_000, 1), np.float32), rewards, False)
    assert from_episodes([one]).episode_returns()[0] == pytest.approx(10_000 * float(np.float32(0.1)), rel=1e-12)


def test_episodes_without_steps_leave_no_trace(data):
    empty = Episode(np.zeros((1, 2), np.float32), np.zeros((0, 2), np.float32), np.zeros(0, np.float32), True)
    assert_same(from_episodes([empty, *episodes(), empty]), data)


def test_no_episode_is_an_error():
    with pytest.raises(FovaError, match="no episode"):
        from_episodes([])


@pytest.mark.parametrize(
    ("field", "shape"),
    [
        ("observations", (3, 2)),  # one row too few
        ("observations", (4, 3)),  # another width than the other episodes
        ("observations", (4,)),
        ("actions", (4, 2)),
        ("actions", (3, 1)),
        ("actions", (3, 2, 1)),
    ],
)
def test_a_misshapen_episode_is_named(field, shape):
    good = episode(0)
    arrays = {name: getattr(good, name) for name in ("observations", "actions", "rewards")}
    bad = Episode(**(arrays | {field: np.zeros(shape, np.float32)}), terminated=False)
    with pytest.raises(FovaError, match=f"{field}: episode 1 has shape"):
        from_episodes([good, bad])


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6))
def test_episodes_and_transitions_are_two_views_of_one_thing(plan):
    noise = np.random.default_rng(0)
    those = [
        Episode(
            noise.normal(size=(steps + 1, 2)).astype(np.float32),
            noise.normal(size=(steps, 3)).astype(np.float32),
            noise.normal(size=steps).astype(np.float32),
            ended,
        )
        for steps, ended in plan
    ]
    data = from_episodes(those)
    assert_same(from_episodes(data.episodes()), data)
    for one, again in zip(those, data.episodes(), strict=True):
        np.testing.assert_array_equal(one.observations, again.observations)
        assert one.terminated == again.terminated
    # by the definition, row by row
    row = 0
    for one in those:
        for t in range(len(one)):
            last = t == len(one) - 1
            assert data.terminals[row] == (last and one.terminated)
            assert data.has_next_action[row] == (not last)
            assert last or (data.next_actions[row] == one.actions[t + 1]).all()
            row += 1


# --- Pieces ------------------------------------------------------------------------------------------------


def test_a_piece_that_cuts_an_episode_ends_it_by_truncation_and_keeps_the_true_next_action(data):
    piece = data[1:4]
    assert piece.rewards.tolist() == [1, 2, 1]
    assert piece.terminals.tolist() == [0, 1, 0]
    assert piece.episode_ends.tolist() == [False, True, True]
    assert piece.has_next_action.tolist() == [1, 0, 1]
    assert piece.next_actions[2, 0] == np.float32(0.11)
    assert piece.episode_returns().tolist() == [3, 1]


def test_the_returns_of_whole_episodes_leave_out_one_that_is_cut_short(data):
    assert data.whole_episode_returns().tolist() == [3, 3, 2, 3]
    assert data[:4].whole_episode_returns().tolist() == [3]  # the second episode has one of its two steps
    assert data[3:7].whole_episode_returns().tolist() == [3, 2, 3]
    two_and_a_half = from_episodes([episode(2), episode(3), episode(0)])[:4]
    assert two_and_a_half.episode_returns().tolist() == [2, 3, 1]
    assert two_and_a_half.whole_episode_returns().tolist() == [2, 3]
    assert data[:2].whole_episode_returns().tolist() == [1]  # all there is
    assert data[:0].whole_episode_returns().tolist() == []


def test_cutting_a_piece_leaves_the_whole_untouched(data):
    piece = data[0:1]
    piece.rewards[0] = 99
    assert not data.episode_ends[0]
    assert data.rewards[0] == 0


def test_an_empty_piece_has_no_returns(data):
    assert len(data[3:3]) == 0
    assert data[3:3].episode_returns().tolist() == []
    assert data[3:3].episode_lengths().tolist() == []
    assert data[3:3].episodes() == []


@pytest.mark.parametrize("rows", [3, slice(None, None, 2), slice(None, None, -1), [0, 1]])
def test_only_contiguous_pieces_can_be_cut(data, rows):
    with pytest.raises(TypeError, match="contiguous"):
        data[rows]


def test_joining_the_pieces_at_episode_ends_gives_the_whole(data):
    assert_same(join([data[:3], data[3:5], data[5:]]), data)


def test_joining_nothing_or_two_tasks_is_an_error(data):
    with pytest.raises(FovaError, match="no piece"):
        join([])
    with pytest.raises(FovaError, match="actions: piece 1 has 1 columns, but piece 0 has 2"):
        join([data, changed(data, actions=data.actions[:, :1])])


# --- The checker -------------------------------------------------------------------------------------------


def test_good_data_passes(data):
    check(data, "ward-3", Box.of(2, -1.0, 1.0), observation_size=2)
    check(data, "ward-3", Box.of(2, [-0.1, -0.5], [0.2, 0.0]))


COMPLAINTS = [
    ("rewards", 3, np.nan, r"rewards: row 3 is NaN or infinite \(1 such rows\)\. Remove"),
    ("observations", (5, 1), -3e38, r"observations: row 5 is too large to train with in float32 \(beyond 1e\+30\)"),
    ("observations", (5, 1), np.inf, r"observations: row 5 is NaN or infinite"),
    ("next_observations", (slice(1, 3), 0), -np.inf, r"next_observations: row 1 is NaN .* \(2 such rows\)"),
    ("actions", (4, 0), np.nan, r"actions: row 4 is NaN or infinite"),
    ("actions", (2, 1), 1.5, r"actions: row 2 holds 1\.5, outside .* \[-1, 1\] \(1 such rows\)\. Declare"),
    ("next_actions", (0, 0), -3, r"next_actions: row 0 holds -3, outside"),
    ("terminals", 1, 0.5, r"terminals: row 1 holds 0\.5; only 0 and 1"),
    ("has_next_action", 6, 2, r"has_next_action: row 6 holds 2; only 0 and 1"),
    ("terminals", 3, 1, r"terminals: the task ends in row 3, but according to episode_ends .* Mark"),
    ("episode_ends", 6, False, r"episode_ends: the last row, 6, is not marked"),
]


@pytest.mark.parametrize(("field", "where", "value", "complaint"), COMPLAINTS)
def test_a_complaint_names_client_field_row_and_remedy(data, field, where, value, complaint):
    with pytest.raises(FovaError, match=complaint) as error:
        check(with_value(data, field, where, value), "ward-3")
    assert "'ward-3'" in str(error.value)
    assert len(str(error.value).splitlines()) == 2  # one heading, one problem


def test_a_next_action_that_does_not_exist_may_hold_anything(data):
    check(with_value(data, "next_actions", (2, 0), 7.0), "ward-3")


def test_an_action_out_of_bounds_is_told_once_and_not_again_as_a_next_action(data):
    outside = with_value(with_value(data, "actions", (1, 0), 3.0), "next_actions", (0, 0), 3.0)
    with pytest.raises(FovaError) as error:
        check(outside, "ward-3")
    assert "next_actions" not in str(error.value)


def test_bounds_are_told_column_by_column(data):
    with pytest.raises(FovaError, match=r"actions: row 2 holds 0\.2, outside the declared bounds \[-2, 0\.15\]"):
        check(data, "ward-3", Box.of(2, [-2, -1], [0.15, 5]))


def test_rounding_past_a_bound_is_forgiven(data):
    check(with_value(data, "actions", (0, 0), 1.00005), "ward-3")


def test_wrong_sizes_and_shapes_are_named(data):
    with pytest.raises(FovaError, match="observations: has 2 columns, but the task has 11"):
        check(data, "ward-3", observation_size=11)
    with pytest.raises(FovaError, match="actions: has 2 columns, but the task has 3"):
        check(data, "ward-3", Box.of(3, -1.0, 1.0))
    with pytest.raises(FovaError, match=r"actions: has shape \(7,\), but \(rows, columns\)"):
        check(changed(data, actions=data.rewards), "ward-3")
    with pytest.raises(FovaError, match="terminals: has 6 rows, but rewards has 7"):
        check(changed(data, terminals=data.terminals[1:]), "ward-3")
    with pytest.raises(FovaError, match="observations: holds object, not numbers"):
        check(changed(data, observations=data.observations.astype(object)), "ward-3")
    with pytest.raises(FovaError, match="actions: has no columns"):
        check(changed(data, actions=data.actions[:, :0]), "ward-3")


def test_too_little_data_is_named(data):
    with pytest.raises(FovaError, match="rewards: is empty"):
        check(data[:0], "ward-3")
    with pytest.raises(FovaError, match="rewards: has a single step"):
        check(data[:1], "ward-3")


def test_all_problems_come_in_one_error(data):
    bad = with_value(with_value(data, "rewards", 0, np.nan), "actions", (1, 0), 9.0)
    with pytest.raises(FovaError) as error:
        check(bad, "ward-3")
    assert "rewards: row 0" in str(error.value)
    assert "actions: row 1 holds 9" in str(error.value)


def coded(data: Transitions, *codes) -> Transitions:
    column = np.array([[code] for code in codes], np.float32)
    return changed(data, actions=column, next_actions=np.roll(column, -1))


def test_codes_of_discrete_actions_are_whole_numbers_below_the_number_of_actions(data):
    three = Discrete(("none", "low", "high"))
    check(coded(data, 0, 1, 2, 2, 1, 0, 0), "ward-3", three)
    for wrong in (3, -1, 0.5):
        with pytest.raises(FovaError, match=rf"actions: row 4 holds {wrong}, but discrete actions .* from 0 to 2"):
            check(coded(data, 0, 1, 2, 2, wrong, 0, 0), "ward-3", three)
    with pytest.raises(FovaError, match="actions: has 2 columns, but the task has 1"):
        check(data, "ward-3", three)


# --- Bounds of actions that nobody declared -------------------------------------------------------------------


def acting(data: Transitions, *actions) -> Transitions:
    return changed(data, actions=np.resize(np.array(actions, np.float32), (len(data), len(actions[0]))))


@pytest.mark.parametrize("actions", [[(1.0, -1.0)], [(1.00005, 0.0)], [(0.0, -1.00005)]])
def test_actions_between_minus_one_and_one_need_no_bounds(data, actions):
    refuse_unbounded([acting(data, *actions)])
    refuse_unbounded([])


def test_actions_beyond_one_need_declared_bounds_that_the_message_offers(data):
    first, second = acting(data, (2.0, 0.5), (0.0, -0.5)), acting(data, (-0.25, 3.0))
    with pytest.raises(FovaError, match=r"\n  --action-low -0\.25 -0\.5 --action-high 2 3\n"):
        refuse_unbounded([first, second])
    with pytest.raises(FovaError, match="not declared"):
        refuse_unbounded([acting(data, (0.0, -1.001))])
    with pytest.raises(FovaError, match="not declared"):
        refuse_unbounded([data, changed(data, actions=data.rewards), acting(data, (0.0, 1.001))])


def test_how_far_undeclared_actions_may_reach_can_be_chosen(data):
    refuse_unbounded([acting(data, (4.0, -4.0))], beyond=4.0)
    with pytest.raises(FovaError, match="not declared"):
        refuse_unbounded([acting(data, (4.001, 0.0))], beyond=4.0)


def test_actions_that_the_check_of_a_client_refuses_are_left_to_it(data):
    refuse_unbounded([acting(data, (9.0, np.nan))])
    refuse_unbounded([acting(data, (9.0, 0.0)), acting(data, (9.0,))])  # two widths
    refuse_unbounded([changed(data, actions=9 * data.rewards)])  # no columns
    refuse_unbounded([acting(data, (9.0, 0.0))[:0]])


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.12341, 0.12341, ("-0.1235", "0.1235")),
        (0.12349, -0.12349, ("0.1234", "-0.1234")),
        (-123.45, 12345.6, ("-123.5", "12350")),
        (0.0, 0.00123449, ("0", "0.001235")),
        ([-1.0, -0.5], [1.0, 2.25], ("-1 -0.5", "1 2.25")),
        (-np.inf, np.inf, ("-inf", "inf")),
        (-1.0000000002, 1.0000000002, ("-1", "1")),  # an error of rounding is no digit
        (-1.000001, 1.000001, ("-1.001", "1.001")),
    ],
)
def test_bounds_are_rounded_outwards_to_four_digits(low, high, words):
    assert bounds_in_words(low, high) == words

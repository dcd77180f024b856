"""Spaces against numbers worked out by hand."""

import numpy as np
import pytest

from fova.errors import FovaError
from fova.spaces import Box, Discrete, Space


def test_one_bound_serves_all_columns_and_several_serve_each_its_own():
    assert Box.of(2, 0.0, [4.0]) == Box((0.0, 0.0), (4.0, 4.0))
    assert Box.of(2, [0.0, -1.0], [4.0, 3.0]).size == 2


def test_actions_in_the_users_units_become_numbers_between_minus_one_and_one():
    box = Box.of(2, [0.0, -10.0], [4.0, 10.0])
    unit = box.to_unit(np.array([[0.0, 0.0], [4.0, 5.0], [3.0, 99.0], [-9.0, -99.0]], np.float32))
    np.testing.assert_allclose(unit, [[-1.0, 0.0], [1.0, 0.5], [0.5, 1.0], [-1.0, -1.0]])


def test_actions_of_a_network_in_the_users_units():
    box = Box.of(2, [0.0, -10.0], [4.0, 10.0])
    raw = box.from_unit(np.array([[-1.0, 0.0], [1.0, 0.5]], np.float32))
    np.testing.assert_allclose(raw, [[0.0, 0.0], [4.0, 5.0]])
    np.testing.assert_allclose(box.to_unit(raw), [[-1.0, 0.0], [1.0, 0.5]])


def test_nobody_changes_the_bounds_of_a_box():
    box = Box.of(2, 0.0, 1.0)
    with pytest.raises(ValueError, match="read-only"):
        box.bounds[0][0] = 7.0
    assert box == Box.of(2, 0.0, 1.0)
    assert hash(box) == hash(Box.of(2, 0.0, 1.0))


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        ([0, 0, 0], 1, "action_low has 3 numbers, but actions have 2"),
        (0, np.inf, "must be finite"),
        ([0, 1], [1, 1], "must be below action_high"),
    ],
)
def test_bounds_that_make_no_box_are_refused(low, high, words):
    with pytest.raises(FovaError, match=words):
        Box.of(2, low, high)


def test_a_space_survives_its_way_through_a_message():
    space = Space(5, Box.of(2, [0.25, -1.5], [7.5, 2.0]))
    assert Space.from_json(space.to_json()) == space


def test_the_smallest_space_has_one_column_of_each():
    space = Space(1, Box((0.0,), (1.0,)))
    assert Space.from_json(space.to_json()) == space


def test_a_space_in_units_of_the_networks():
    assert Space.unit(3, 2) == Space(3, Box((-1.0, -1.0), (1.0, 1.0)))


def test_a_space_in_words():
    assert Space.unit(1, 1).words() == "1 observation column and 1 action column"
    assert Space.unit(2, 3).words() == "2 observation columns and 3 action columns"


def test_discrete_actions_are_codes_with_names():
    action = Discrete(("none", "low", "high"))
    assert (action.kind, action.size, action.count) == ("discrete", 1, 3)
    assert action == Discrete(("none", "low", "high")) != Discrete(("none", "high", "low"))
    assert Discrete.numbered(3).names == ("0", "1", "2")
    codes = np.array([[0.0], [2.0]], np.float32)
    np.testing.assert_array_equal(action.to_unit(codes), codes)
    np.testing.assert_array_equal(action.from_unit(codes), codes)
    assert Space(1, action).words() == "1 observation column and 3 discrete actions"


def test_a_discrete_space_survives_its_way_through_a_message():
    space = Space(5, Discrete(("none", "low", "high")))
    assert Space.from_json(space.to_json()) == space
    assert hash(Space.from_json(space.to_json())) == hash(space)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("a",), "has 1 actions, but needs 2 to"),
        ((), "has 0 actions"),
        (("a", "b", "a"), "Two discrete actions are called 'a'"),
        (("a", ""), "not empty"),
        (("a", 1), "must be texts"),
        (["a", "b"], "must be texts"),
        (tuple(map(str, range(10_001))), "has 10001 actions"),
    ],
)
def test_names_that_make_no_space_are_refused(names, words):
    with pytest.raises(FovaError, match=words):
        Discrete(names)


def test_an_action_space_of_another_kind_is_refused_by_name():
    with pytest.raises(FovaError, match="'tree'"):
        Space.from_json({"observation": 1, "action": {"kind": "tree"}})


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        "box",
        {},
        {"observation": 3},
        {"observation": 3, "action": None},
        {"observation": 3, "action": {"kind": "box"}},
        {"observation": 3, "action": {"kind": "box", "low": 1, "high": 2}},
        {"observation": 3, "action": {"kind": "box", "low": [], "high": []}},
        {"observation": 3, "action": {"kind": "discrete"}},
        {"observation": 3, "action": {"kind": "discrete", "names": 2}},
        {"observation": 0, "action": {"kind": "discrete", "names": ["a", "b"]}},
        {"observation": 0, "action": {"kind": "box", "low": [0], "high": [1]}},
        {"observation": "3", "action": {"kind": "box", "low": [0], "high": [1]}},
    ],
)
def test_what_describes_no_space_is_refused(content):
    with pytest.raises(FovaError, match="does not describe a space"):
        Space.from_json(content)


@pytest.mark.parametrize(
    ("low", "high"),
    [(-3e38, 3e38), (-0.6e30, 0.6e30), (0.0, 1e-40), (0.0, 0.9e-30), ([0.0, -3e38], [1.0, 3e38])],
)
def test_bounds_whose_distance_single_precision_cannot_hold_are_refused(low, high):
    """Their width would be infinite or 0 in single precision, and every action the same."""
    with pytest.raises(FovaError, match=r"1e-30 to 1e\+30 apart"):
        Box.of(2, low, high)


def test_wide_and_narrow_bounds_keep_actions_apart():
    for scale in (1e-30, 1.0, 0.5e30):
        box = Box.of(1, 0.0, scale * 1.0001)
        units = box.to_unit(np.array([[0.25], [0.75]], np.float32) * np.float32(scale))
        np.testing.assert_allclose(units, [[-0.5], [0.5]], atol=1e-3)


def test_a_bound_beyond_single_precision_is_one_error(recwarn):
    with pytest.raises(FovaError, match="finite"):
        Box.of(1, -1.0, 1e39)
    assert not recwarn.list


@pytest.mark.parametrize("low", ["a", "0", ["0"], 1j, 10**400])
def test_a_bound_is_a_number_and_no_text(low):
    with pytest.raises(FovaError, match=r"An action bound is .* but must be numbers"):
        Space.from_json({"observation": 3, "action": {"kind": "box", "low": [low], "high": [1]}})

"""Spaces against numbers worked out by hand."""

import numpy as np
import pytest

from fova.errors import FovaError
from fova.spaces import Box, Space


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
        {"observation": 3, "action": {"kind": "box", "low": ["a"], "high": ["b"]}},
        {"observation": 3, "action": {"kind": "box", "low": [], "high": []}},
        {"observation": 0, "action": {"kind": "box", "low": [0], "high": [1]}},
        {"observation": "3", "action": {"kind": "box", "low": [0], "high": [1]}},
    ],
)
def test_what_describes_no_space_is_refused(content):
    with pytest.raises(FovaError, match="does not describe a space"):
        Space.from_json(content)

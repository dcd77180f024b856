"""Which rows each client gets, by hand: 18 rows, in episodes that start at rows 0, 3, 7 and 12."""

import numpy as np
import pytest

from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.federation.row_ranges import placed_rows
from tiny import make_transitions

DATA = make_transitions(0, episodes=4, steps=3)


def rows(*wanted, data=DATA):
    """The first row and the number of rows of clients that want (size, offset)."""
    specs = [ClientSpec("a", size, offset, f"client-{i}") for i, (size, offset) in enumerate(wanted)]
    return [(spec.offset, spec.size) for spec in placed_rows(specs, {"a": data})]


def test_the_data_is_as_described():
    assert np.flatnonzero(DATA.episode_ends).tolist() == [2, 6, 11, 17]


def test_a_client_starts_with_an_episode_where_there_is_enough_data():
    assert rows((4, None), (5, None)) == [(0, 4), (7, 5)]
    assert rows((3, None), (4, None)) == [(0, 3), (3, 4)], "the next episode starts where the first client ends"
    assert rows((4, None), (4, None), (6, None)) == [(0, 4), (7, 4), (12, 6)]
    assert rows((12, None), (6, None)) == [(0, 12), (12, 6)]


def test_a_client_starts_at_the_next_row_where_data_is_short():
    assert rows((9, None), (9, None)) == [(0, 9), (9, 9)]
    # from row 7 on the second and the third would want 12 of 11 rows
    assert rows((6, None), (6, None), (6, None)) == [(0, 6), (6, 6), (12, 6)]


def test_later_clients_with_a_row_of_their_own_want_nothing_of_the_rest():
    assert rows((6, None), (6, None), (6, 12)) == [(0, 6), (7, 6), (12, 6)]
    assert rows((2, 10), (5, None)) == [(10, 2), (12, 5)], "the next one follows it"


def test_clients_without_a_size_get_even_shares():
    assert rows((None, None), (None, None)) == [(0, 9), (9, 9)]
    assert rows((None, None), (None, None), (None, None), (None, None)) == [(0, 4), (4, 4), (8, 4), (12, 4)]
    assert rows((2, None), (None, None)) == [(0, 2), (3, 9)]


def test_every_source_has_rows_of_its_own():
    other = make_transitions(1, episodes=2, steps=3)  # 7 rows
    specs = [ClientSpec(data, 3, name=f"{data}-{i}") for i, data in enumerate("abab")]
    placed = placed_rows(specs, {"a": DATA, "b": other})
    assert [(spec.data, spec.offset) for spec in placed] == [("a", 0), ("b", 0), ("a", 3), ("b", 3)]


def test_rows_that_are_not_there_are_refused():
    assert rows((6, 12)) == [(12, 6)]
    with pytest.raises(FovaError, match=r"'client-0' wants rows 12 to 19 of a, which has 18"):
        rows((7, 12))


def test_a_client_needs_two_rows():
    few = make_transitions(0, episodes=1, steps=6)
    assert rows(*[(None, None)] * 3, data=few) == [(0, 2), (2, 2), (4, 2)]
    with pytest.raises(FovaError, match="a has 6 transitions, but each of its clients needs at least 2"):
        rows(*[(None, None)] * 4, data=few)
    assert rows(*[(2, 0)] * 4, data=few) == [(0, 2)] * 4, "a size that is given counts"

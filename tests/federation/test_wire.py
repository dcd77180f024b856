"""Trees of arrays by name, and what a plain envelope does: nothing."""

import jax
import numpy as np

from fova.algorithms.base import Submission
from fova.federation.wire import PLAIN, expected_arrays, from_named_arrays, named_arrays, payload_bytes

TREE = {
    "net": {"weight": np.arange(6, dtype="f").reshape(2, 3), "bias": np.zeros(3, np.int8)},
    "list": [np.float32(5.0)],
}


def test_arrays_have_the_names_of_their_places():
    named = named_arrays(TREE)
    assert set(named) == {"net/weight", "net/bias", "list/0"}
    np.testing.assert_array_equal(named["net/weight"], TREE["net"]["weight"])
    again = from_named_arrays(named, jax.eval_shape(lambda: TREE))
    jax.tree.map(np.testing.assert_array_equal, again, TREE)


def test_shapes_and_types_are_known_without_the_arrays():
    expected = {"net/weight": ((2, 3), np.float32), "net/bias": ((3,), np.int8), "list/0": ((), np.float32)}
    assert expected_arrays(TREE) == expected_arrays(jax.eval_shape(lambda: TREE)) == expected


def test_the_size_of_a_tree_in_bytes():
    assert payload_bytes(TREE) == 6 * 4 + 3 * 1 + 4
    assert payload_bytes({}) == 0


def test_a_plain_envelope_changes_nothing():
    submission = Submission(TREE, np.float32(0.0), {})
    assert PLAIN.encode(submission, TREE, None) is submission
    assert PLAIN.decode(submission, TREE) is submission

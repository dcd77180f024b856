import numpy as np
import pytest

from fova.data.normalise import Normaliser, client_sums, combine


def test_combined_sums_equal_the_pooled_statistics():
    rng = np.random.default_rng(0)
    clients = [rng.normal(loc, 3.0, (rows, 4)).astype(np.float32) for loc, rows in ((0, 10), (50, 400), (-7, 33))]
    normaliser = combine(client_sums(c) for c in clients)
    pooled = np.concatenate(clients).astype(np.float64)
    np.testing.assert_allclose(normaliser.mean, pooled.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(normaliser.std, pooled.std(axis=0), rtol=1e-5)


def test_by_hand():
    sums = client_sums(np.array([[1.0], [3.0]], np.float32))
    assert (sums.count, sums.total.tolist(), sums.squares.tolist()) == (2, [4.0], [10.0])
    normaliser = combine([sums])
    np.testing.assert_allclose(normaliser(np.array([[4.0]], np.float32)), [[2.0]], rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 3.0])  # in units of the scale
def test_columns_have_unit_variance_whatever_their_scale(scale, offset):
    values = (scale * np.random.default_rng(0).normal(offset, 1.0, (500, 1))).astype(np.float32)
    clients = np.split(values, [100])
    normalised = combine(client_sums(c) for c in clients)(values)
    np.testing.assert_allclose(normalised.mean(), 0.0, atol=1e-5)
    np.testing.assert_allclose(normalised.std(), 1.0, rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e3, -7e8, 1e-42])
def test_a_column_that_never_changes_is_only_shifted(value):
    normaliser = combine(client_sums(np.full((rows, 1), value, np.float32)) for rows in (5, 1000))
    assert normaliser.std == 1.0
    seen, other = np.float32([[value], [np.float32(value) + 2]])
    np.testing.assert_allclose(normaliser(seen), 0.0, atol=1e-6 * abs(value))
    np.testing.assert_allclose(normaliser(other), other - seen, atol=1e-6 * abs(value))


def test_identity_changes_nothing():
    values = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    np.testing.assert_array_equal(Normaliser.identity(2)(values), values)

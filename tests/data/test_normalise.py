import numpy as np

from fova.data.normalise import Normaliser, client_sums, combine


def test_combined_sums_equal_the_pooled_statistics():
    rng = np.random.default_rng(0)
    clients = [rng.normal(loc, 3.0, (rows, 4)).astype(np.float32) for loc, rows in ((0, 10), (50, 400), (-7, 33))]
    normaliser = combine(client_sums(c) for c in clients)
    pooled = np.concatenate(clients).astype(np.float64)
    np.testing.assert_allclose(normaliser.mean, pooled.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(normaliser.std, pooled.std(axis=0) + 1e-3, rtol=1e-5)


def test_by_hand():
    sums = client_sums(np.array([[1.0], [3.0]], np.float32))
    assert (sums.count, sums.total.tolist(), sums.squares.tolist()) == (2, [4.0], [10.0])
    normaliser = combine([sums])
    np.testing.assert_allclose(normaliser(np.array([[4.0]], np.float32)), [[2.0 / 1.001]], rtol=1e-6)


def test_a_column_that_never_changes_stays_finite():
    normaliser = combine([client_sums(np.full((5, 1), 1e3, np.float32))])
    assert np.isfinite(normaliser(np.full((1, 1), 1e3, np.float32))).all()


def test_identity_changes_nothing():
    values = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    np.testing.assert_array_equal(Normaliser.identity(2)(values), values)

import numpy as np
import pytest

from fova.data import normalise
from fova.data.normalise import Normaliser, Sums, client_sums, combine, scaled


def test_combined_sums_equal_the_pooled_statistics():
    rng = np.random.default_rng(0)
    clients = [rng.normal(loc, 3.0, (rows, 4)).astype(np.float32) for loc, rows in ((0, 10), (50, 400), (-7, 33))]
    normaliser = combine(client_sums(c) for c in clients)
    pooled = np.concatenate(clients).astype(np.float64)
    np.testing.assert_allclose(normaliser.mean, pooled.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(normaliser.std, pooled.std(axis=0), rtol=1e-5)


def test_sums_over_parts_of_a_large_client_are_those_of_the_whole(monkeypatch):
    whole = client_sums(values := np.arange(33, dtype=np.float32).reshape(11, 3))
    monkeypatch.setattr(normalise, "AT_ONCE", 4)
    parts = client_sums(values)
    assert parts.count == whole.count == 11
    assert parts.total.tolist() == whole.total.tolist() == [165.0, 176.0, 187.0]
    assert parts.squares.tolist() == whole.squares.tolist() == np.square(values).sum(axis=0).tolist()


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


def sums(mean, std, count=8):
    """What a client with this mean and spread would send."""
    return Sums(count, np.array([count * mean], float), np.array([count * (mean**2 + std**2)], float))


def test_clients_count_by_their_rows():
    # 3 rows of 1 and 1 row of 5: mean 8 / 4 = 2, mean square 28 / 4 = 7, variance 7 - 4 = 3.
    normaliser = combine([client_sums(np.ones((3, 1), np.float32)), client_sums(np.full((1, 1), 5, np.float32))])
    np.testing.assert_allclose(normaliser.mean, [2.0])
    np.testing.assert_allclose(normaliser.std, [3.0**0.5], rtol=1e-6)


def test_scaled_sums_are_those_of_rows_that_count_several_times():
    rows = np.array([[1.0, -2.0], [3.0, 5.0]], np.float32)
    thrice, counted = client_sums(np.tile(rows, (3, 1))), scaled(client_sums(rows), 3.0)
    assert counted.count == thrice.count == 6
    assert counted.total.tolist() == thrice.total.tolist() == [12.0, 9.0]
    assert counted.squares.tolist() == thrice.squares.tolist() == [30.0, 87.0]


@pytest.mark.parametrize(
    ("mean", "std", "kept"),
    [
        (1.0, 2e-6, True),  # a spread of two millionths of the size is kept,
        (1.0, 0.5e-6, False),  # one of half a millionth is rounding
        (-1.0, 2e-6, True),
        (-1.0, 0.5e-6, False),
        (100.0, 1e-3, True),  # the limit here is 1e-4: it grows with the size, not with its square
        (100.0, 0.5e-4, False),
    ],
)
def test_a_spread_below_a_millionth_of_the_size_is_rounding(mean, std, kept):
    np.testing.assert_allclose(combine([sums(mean, std)]).std, [std if kept else 1.0], rtol=1e-2)


@pytest.mark.parametrize(
    ("std", "expected"),
    [
        (2.0**-125, 2.0**-125),
        (2.0**-126, 1.0),  # the least normal number of float32: dividing by it, or by less, may overflow
        (1e-39, 1.0),
    ],
)
def test_a_spread_too_small_for_float32_is_none(std, expected):
    normaliser = combine([sums(0.0, std)])
    assert normaliser.std.tolist() == [expected]
    assert normaliser.std.dtype == normaliser.mean.dtype == np.float32


def test_each_column_is_judged_by_itself():
    column = np.array([0.0, 2.0, 4.0], np.float32)
    normaliser = combine([client_sums(np.stack([column, np.full(3, 7, np.float32), 10 * column], axis=1))])
    spread = (8 / 3) ** 0.5  # of 0, 2, 4
    np.testing.assert_allclose(normaliser.std, [spread, 1.0, 10 * spread], rtol=1e-6)
    np.testing.assert_allclose(normaliser.mean, [2.0, 7.0, 20.0])


def test_rounding_that_makes_the_variance_negative_is_none():
    with np.errstate(invalid="raise"):
        assert combine([Sums(1, np.array([3.0]), np.array([9.0 - 1e-12]))]).std == 1.0

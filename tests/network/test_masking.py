"""The arithmetic of secure aggregation, without a network."""

import numpy as np
import pytest

from fova.errors import FovaError
from fova.network.masking import FixedPoint, mask, masked, pair_seed, unmasked

A, B, C = (bytes([i]) * 32 for i in range(3))
PAIRS = {("x", "y"): b"p" * 32, ("x", "z"): b"q" * 32, ("y", "z"): b"r" * 32}
OWN = {"x": A, "y": B, "z": C}


def seeds_of(client, others=("x", "y", "z")):
    return {
        next(iter(set(pair) - {client})): seed
        for pair, seed in PAIRS.items()
        if client in pair and set(pair) <= set(others)
    }


def test_numbers_in_fixed_point_by_hand():
    quarters = FixedPoint(2)
    encoded = quarters.encode(np.array([0.75, -1.25, 0.3, -0.3]), clients=3)
    # 0.3 and -0.3 are nearest to one quarter; -5 and -1 are counted down from 2^64
    np.testing.assert_array_equal(encoded, np.array([3, 2**64 - 5, 1, 2**64 - 1], np.uint64))
    np.testing.assert_array_equal(quarters.decode(encoded), [0.75, -1.25, 0.25, -0.25])
    assert quarters.error(3) == 3 / 8


def test_a_sum_is_within_the_stated_error():
    point = FixedPoint(20)
    numbers = np.random.default_rng(0).normal(size=(5, 1000)) * 3
    total = np.sum([point.encode(row, 5) for row in numbers], axis=0, dtype=np.uint64)
    error = np.abs(point.decode(total) - numbers.sum(axis=0)).max()
    assert 0.2 * point.error(5) < error <= point.error(5)  # and the statement is no idle one


def test_a_number_that_would_turn_the_sum_around_is_refused():
    point = FixedPoint(36)
    largest = point.largest(4)
    assert 4 * largest * 2**36 == 2.0**62
    point.encode(np.array([largest]), 4)
    for number in (1.01 * largest, -1.01 * largest, np.nan, np.inf):
        with pytest.raises(FovaError, match=r"secure aggregation adds up numbers to 1\.68e\+07 only"):
            point.encode(np.array([number]), 4)


def test_a_mask_is_the_key_stream_of_chacha20():
    # RFC 8439, appendix A.1, test vector 1: key, nonce and counter of zeros
    expected = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28")
    assert mask(bytes(32), 2).astype("<u8").tobytes() == expected
    with pytest.raises(ValueError, match="32 bytes"):
        mask(b"short", 2)


def test_a_pair_has_another_mask_in_every_session():
    assert pair_seed(b"key", "one") == pair_seed(b"key", "one")
    assert len({pair_seed(b"key", "one"), pair_seed(b"key", "two"), pair_seed(b"yek", "one")}) == 3


def test_masks_cancel_in_the_sum_by_hand():
    numbers = {"x": 5, "y": 7, "z": 2**64 - 1}  # the last is -1
    sent = {n: masked(np.array([v], np.uint64), n, OWN[n], seeds_of(n)) for n, v in numbers.items()}
    p, q, r, a = (int(mask(seed, 1)[0]) for seed in (*PAIRS.values(), A))
    assert int(sent["x"][0]) == (5 + a + p + q) % 2**64  # x comes before y and z
    assert int(sent["y"][0]) == (7 + int(mask(B, 1)[0]) - p + r) % 2**64
    total = sent["x"] + sent["y"] + sent["z"]
    assert unmasked(total, OWN.values()).tolist() == [11]


def test_masks_that_were_shared_with_a_client_that_dropped_out_are_removed():
    sent = {n: masked(np.array([10, 20], np.uint64), n, OWN[n], seeds_of(n)) for n in OWN}
    total = sent["x"] + sent["z"]
    assert unmasked(total, [A, C]).tolist() != [20, 40]
    assert unmasked(total, [A, C], {"y": seeds_of("y")}).tolist() == [20, 40]

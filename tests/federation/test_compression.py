import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fova.algorithms.base import Submission
from fova.federation.compression import COMPRESSIONS, LEVELS, EightBits, HalfPrecision, quantise
from fova.federation.wire import payload_bytes

BROADCAST = {"w": np.array([1.0, -2.0, 3.0], "f"), "b": np.array([[10.0, 20.0]], "f")}
UPDATE = {"w": np.array([0.5, -0.25, 0.0], "f"), "b": np.array([[127.0, -1.0]], "f")}
SENT = Submission(
    jax.tree.map(np.add, BROADCAST, UPDATE), np.float32(-0.7), {"rows": np.float32(12.0), "value": np.float32(3.0)}
)


def through(envelope, submission=SENT, broadcast=BROADCAST, seed=0):
    return envelope.decode(envelope.encode(submission, broadcast, jax.random.key(seed)), broadcast)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_weight_and_metrics_travel_unchanged(name):
    opened = through(COMPRESSIONS[name])
    assert float(opened.log_weight) == float(SENT.log_weight)
    assert opened.metrics == SENT.metrics


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_parameters_come_back_in_the_broadcasts_shapes_and_kinds(name):
    opened = through(COMPRESSIONS[name]).parameters
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), opened)
    assert shapes == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), BROADCAST)


def test_bytes_by_hand():
    # five numbers, two arrays; a weight and two metrics are 12 bytes
    sizes = {
        name: payload_bytes(form.encode(SENT, BROADCAST, jax.random.key(0))) for name, form in COMPRESSIONS.items()
    }
    assert sizes == {"none": 5 * 4 + 12, "float16": 5 * 2 + 12, "int8": 5 * 1 + 2 * 4 + 12}


def test_numbers_that_half_precision_holds_arrive_exactly():
    opened = through(HalfPrecision())
    jax.tree.map(np.testing.assert_array_equal, opened.parameters, SENT.parameters)


def test_whole_levels_arrive_exactly():
    opened = through(EightBits()).parameters["b"]  # largest 127: one level is 1
    np.testing.assert_array_equal(opened, SENT.parameters["b"])


finite_arrays = arrays.arrays(np.float32, (2, 3), elements=st.floats(-100, 100, width=32))


@given(update=finite_arrays, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_errors_stay_within_their_bounds(update, seed):
    broadcast = jnp.zeros(update.shape)
    sent = Submission(jnp.asarray(update), jnp.zeros(()), {})
    half = np.asarray(through(HalfPrecision(), sent, broadcast).parameters)
    np.testing.assert_allclose(half, update, rtol=1 / 2048, atol=6e-8)
    level = np.abs(update).max() / LEVELS
    eight = np.asarray(through(EightBits(), sent, broadcast, seed).parameters)
    assert np.abs(eight - update).max() <= level * (1 + 1e-5) + 1e-30


def test_rounding_is_right_on_average_and_not_always_the_same():
    values, scale = jnp.array([0.1, 1.9, -0.75]), jnp.array(1.0)
    drawn = jax.vmap(lambda key: quantise(values, scale, key))(jax.random.split(jax.random.key(0), 20_000))
    assert set(np.unique(drawn[:, 0])) == {0, 1}
    np.testing.assert_allclose(np.asarray(drawn, float).mean(axis=0), values, atol=0.015)  # 4 standard errors


def test_nothing_is_divided_by_a_scale_of_zero():
    with jax.debug_nans(True):
        levels = quantise(jnp.zeros(3), jnp.zeros(()), jax.random.key(0))
    assert (levels.tolist(), levels.dtype) == ([0, 0, 0], jnp.int8)


def test_a_client_that_did_not_move_says_so():
    still = Submission(BROADCAST, jnp.zeros(()), {})
    for envelope in COMPRESSIONS.values():
        jax.tree.map(np.testing.assert_array_equal, through(envelope, still).parameters, BROADCAST)


@pytest.mark.parametrize("rubbish", [jnp.nan, jnp.inf, -jnp.inf])
@pytest.mark.parametrize("name", COMPRESSIONS)
def test_rubbish_is_still_seen_on_the_other_side(name, rubbish):
    broken = Submission(
        {**SENT.parameters, "w": jnp.asarray(SENT.parameters["w"]).at[1].set(rubbish)}, jnp.zeros(()), {}
    )
    assert not np.isfinite(np.asarray(through(COMPRESSIONS[name], broken).parameters["w"])).all()


def test_clients_are_coded_side_by_side_as_alone():
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), SENT)
    keys = jax.random.split(jax.random.key(0), 2)
    for envelope in COMPRESSIONS.values():
        coded = jax.vmap(envelope.encode, (0, None, 0))(stacked, BROADCAST, keys)
        both = jax.vmap(envelope.decode, (0, None))(coded, BROADCAST)
        sent = envelope.encode(jax.tree.map(lambda leaf: leaf[1], stacked), BROADCAST, keys[1])
        second = jax.tree.map(lambda leaf: leaf[1], both)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), second, envelope.decode(sent, BROADCAST)
        )

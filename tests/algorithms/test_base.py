from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova import algorithms
from fova.algorithms.base import Batch, Data, adam, descend, pack, unpack, weighted_mean
from fova.errors import FovaError
from fova.spaces import Space
from tiny import make_transitions

SPACE = Space.unit(3, 2)


def test_pack_and_unpack_are_inverse():
    data = make_transitions(0)
    batch = Batch(*(getattr(data, field) for field in Batch._fields))
    again = unpack(jnp.asarray(pack(batch)), SPACE)
    for before, after in zip(batch, again):
        np.testing.assert_array_equal(before, after)


def test_data_never_hands_out_padding():
    rows = jnp.concatenate([jnp.ones((7, 13)), jnp.full((93, 13), jnp.nan)])
    data = Data(rows, jnp.int32(7), SPACE)
    assert np.isfinite(data.sample(jax.random.key(0), 200).rewards).all()
    assert np.isfinite(data.spread(64).rewards).all()


def test_spread_covers_the_dataset_evenly():
    rows = jnp.tile(jnp.arange(8.0)[:, None], (1, 13))
    assert Data(rows, jnp.int32(8), SPACE).spread(4).rewards.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_weighted_mean_by_hand():
    stacked = {"w": jnp.array([[1.0, 2.0], [3.0, 6.0], [100.0, 100.0]])}
    plain = weighted_mean(stacked, jnp.zeros(3))
    np.testing.assert_allclose(plain["w"], [104 / 3, 36.0], rtol=1e-6)
    weighted = weighted_mean(stacked, jnp.log(jnp.array([1.0, 3.0, 0.0])))  # weights 1/4, 3/4, 0
    np.testing.assert_allclose(weighted["w"], [2.5, 5.0], rtol=1e-6)


def test_a_client_left_out_does_not_count_even_with_nan():
    mean = weighted_mean(jnp.array([1.0, jnp.nan]), jnp.array([0.0, -jnp.inf]))
    assert float(mean) == 1.0


def test_mean_of_group_means_is_the_mean_of_all():
    values, log_weights = jax.random.normal(jax.random.key(0), (7, 4)), jnp.array([0.0, 5, -3, 200, 201, 1, 0])
    groups = [slice(0, 3), slice(3, 7)]
    means = jnp.stack([weighted_mean(values[g], log_weights[g]) for g in groups])
    totals = jnp.stack([jax.nn.logsumexp(log_weights[g]) for g in groups])
    np.testing.assert_allclose(weighted_mean(means, totals), weighted_mean(values, log_weights), rtol=1e-5)


def test_adam_against_its_definition():
    parameters, moments = jnp.array([1.0, -2.0]), adam(0.1).init(jnp.array([1.0, -2.0]))
    m, v, expected = np.zeros(2), np.zeros(2), np.array([1.0, -2.0])
    for step, gradient in enumerate([np.array([0.5, -1.0]), np.array([-0.2, 3.0])], start=1):
        parameters, moments = descend(0.1, parameters, jnp.array(gradient), moments)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        expected -= 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        np.testing.assert_allclose(parameters, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: algorithms.configure("fovv"), "'fova'"),
        (lambda: algorithms.configure("fova", "printed"), "equations"),
        (lambda: algorithms.configure("fova", alhpa=1.0), "'alpha'"),
        (lambda: algorithms.configure("fova", alpha="high"), "a number"),
        (lambda: algorithms.configure("fova", hidden=("a",)), "a whole number"),
        (lambda: algorithms.configure("fova", conservative="cql"), "'logsumexp'"),
        (lambda: algorithms.get("nowhere.py"), "nowhere.py"),
    ],
)
def test_wrong_settings_name_what_would_be_right(call, words):
    with pytest.raises(FovaError, match=words):
        call()


def test_an_algorithm_of_the_users_own_is_found_by_its_path(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom fova import algorithms\n"
        "@dataclass(frozen=True)\nclass Mine(algorithms.get('fed-bc')):\n    name = 'mine'\n"
    )
    assert algorithms.get(str(file)).__name__ == "Mine"
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    with pytest.raises(FovaError, match="exactly one"):
        algorithms.get(str(empty))


def test_the_example_algorithm_is_short_and_trains(tmp_path):
    import fova

    example = Path(__file__).parents[2] / "examples" / "fed_awac.py"
    assert len(example.read_text().splitlines()) < 150
    federation = fova.Federation.of({name: make_transitions(i) for i, name in enumerate("ab")})
    settings = {"hidden": (8,), "batch_size": 8, "rounds": 2, "local_steps": 2, "temperature": 0.5}
    result = fova.train(clients=federation, algorithm=str(example), directory=tmp_path / "run", **settings)
    assert result.policy(np.zeros(3)).shape == (2,)

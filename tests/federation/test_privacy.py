import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova.algorithms.base import Submission
from fova.errors import FovaError
from fova.federation import accountant
from fova.federation.compression import EightBits
from fova.federation.privacy import Privacy, Private, publish, secret_key, shortened, with_noise
from fova.federation.wire import PLAIN

BROADCAST = {"w": np.array([1.0, 2.0], "f"), "b": np.array([0.0], "f")}
METRICS = {"rows": np.float32(7.0), "value": np.float32(3.0)}


def sent(w, b):
    return Submission({"w": jnp.array(w), "b": jnp.array([b])}, jnp.array(2.5), METRICS)


def privacy(**changes):
    usual = {"noise_at": "server", "clip": 1.0, "noise": 2.0, "delta": 1e-5, "clients": 10}
    return Privacy(**(usual | changes))


def norm(tree):
    return math.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(tree)))


# --- Clipping ---


def test_one_norm_over_all_arrays():
    # (3, 0) and (4): norm 5
    update = {"w": jnp.array([3.0, 0.0]), "b": jnp.array([4.0])}
    short = shortened(update, 1.0)
    np.testing.assert_allclose(short["w"], [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(short["b"], [0.8], rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, shortened(update, 5.5), update)


@pytest.mark.parametrize("rubbish", [jnp.nan, jnp.inf, 1e30])
def test_what_cannot_be_shortened_counts_for_nothing(rubbish):
    update = {"w": jnp.array([rubbish, 0.0]), "b": jnp.array([4.0])}
    assert norm(shortened(update, 1.0)) == 0.0


# --- What leaves a client ---


@pytest.mark.parametrize("noise_at", ["server", "client"])
@pytest.mark.parametrize("inner", [PLAIN, EightBits()])
def test_no_weight_and_no_metric_leaves(noise_at, inner):
    envelope = privacy(noise_at=noise_at).envelope(inner)
    message = envelope.encode(sent([4.0, 2.0], 4.0), BROADCAST, jax.random.key(0))
    assert message.metrics == {}
    assert float(message.log_weight) == 0.0


def test_with_a_trusted_server_a_client_sends_its_shortened_update():
    message = Private(clip=1.0).encode(sent([4.0, 2.0], 4.0), BROADCAST, jax.random.key(0))
    np.testing.assert_allclose(message.parameters["w"], [1.6, 2.0], rtol=1e-6)
    np.testing.assert_allclose(message.parameters["b"], [0.8], rtol=1e-6)


def test_the_server_shortens_what_a_client_did_not():
    opened = Private(clip=1.0).decode(sent([1e6, 2.0], 0.0), BROADCAST)
    np.testing.assert_allclose(opened.parameters["w"], [2.0, 2.0], rtol=1e-6)
    assert float(opened.log_weight) == 0.0


def test_rounding_on_the_way_cannot_lengthen_an_update():
    envelope = Private(1.0, inner=EightBits())
    for seed in range(20):
        message = envelope.encode(sent([4.0, 2.1], 4.0), BROADCAST, jax.random.key(seed))
        opened = envelope.decode(message, BROADCAST).parameters
        assert norm(jax.tree.map(jnp.subtract, opened, BROADCAST)) <= 1.0 + 1e-6


def test_without_a_trusted_server_every_client_sends_noise_of_the_declared_size():
    large = {"w": jnp.zeros(20_000), "b": jnp.zeros(1)}
    still = Submission(large, jnp.zeros(()), {})
    envelope = privacy(noise_at="client", clip=0.5, noise=3.0).envelope(PLAIN)
    message = envelope.encode(still, large, jax.random.key(0))
    drawn = np.asarray(message.parameters["w"])
    assert drawn.std() == pytest.approx(1.5, rel=0.03)  # clip x noise; 6 standard errors
    assert drawn.mean() == pytest.approx(0.0, abs=0.05)
    other = envelope.encode(still, large, jax.random.key(1))
    assert abs(np.corrcoef(drawn, other.parameters["w"])[0, 1]) < 0.05


# --- What the server publishes ---


def test_the_noisy_sum_is_divided_by_the_number_expected():
    # 10 clients drawn with probability 0.5: 5 expected. 4 came; their mean moved by (1, 0) and (0.5).
    mean = {"w": jnp.array([2.0, 2.0]), "b": jnp.array([0.5])}
    setting = privacy(participation=0.5, noise=0.1, clip=1e-6)  # next to no noise
    result = publish(setting, BROADCAST, mean, 4, jax.random.key(0))
    np.testing.assert_allclose(result["w"], [1.0 + 4 / 5, 2.0], atol=1e-5)
    np.testing.assert_allclose(result["b"], [4 * 0.5 / 5], atol=1e-5)


def test_the_published_noise_has_the_declared_size():
    broadcast = {"w": jnp.zeros(20_000)}
    result = publish(privacy(participation=0.5, noise=2.0, clip=3.0), broadcast, broadcast, 4, jax.random.key(0))
    assert np.asarray(result["w"]).std() == pytest.approx(2.0 * 3.0 / 5, rel=0.03)


def test_a_round_to_which_nobody_came_publishes_noise_alone():
    nothing = {"w": jnp.full(2, jnp.nan), "b": jnp.full(1, jnp.nan)}
    result = publish(privacy(clip=1e-6), BROADCAST, nothing, 0, jax.random.key(0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), result, BROADCAST)


def test_arrays_of_equal_shape_get_noise_of_their_own():
    noisy = with_noise({"a": jnp.zeros(5), "b": jnp.zeros(5)}, 1.0, jax.random.key(0))
    assert np.abs(np.asarray(noisy["a"] - noisy["b"])).min() > 0


def test_one_client_moves_what_is_published_by_no_more_than_the_accountant_assumes():
    """The same noise, with and without one client: the sum differs by at most the clipping norm."""
    setting = privacy(clip=0.7, clients=4)
    envelope = setting.envelope(PLAIN)
    clients = [sent([4.0, -2.0], 4.0), sent([1.0, 2.1], 0.0), sent([-50.0, 0.0], 9.0), sent([1.1, 2.0], 0.2)]
    opened = [
        envelope.decode(envelope.encode(c, BROADCAST, jax.random.key(0)), BROADCAST).parameters for c in clients
    ]

    def published(parts):
        mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *parts)
        return publish(setting, BROADCAST, mean, len(parts), jax.random.key(0))

    for left_out in range(4):
        rest = [part for i, part in enumerate(opened) if i != left_out]
        difference = norm(jax.tree.map(jnp.subtract, published(opened), published(rest)))
        assert 4 * difference <= 0.7 + 1e-5


# --- What is promised ---


def test_trusted_server_counts_drawn_clients_with_the_whole_noise():
    setting = privacy(participation=0.2)
    assert setting.epsilon(30) == accountant.epsilon(2.0, 0.2, 30, 1e-5)


def test_untrusted_server_counts_two_norms_and_no_luck_of_the_draw():
    setting = privacy(noise_at="client", participation=0.2)
    assert setting.epsilon(30) == accountant.epsilon(1.0, 1.0, 30, 1e-5)


@pytest.mark.parametrize("noise_at", ["server", "client"])
def test_the_noise_it_names_keeps_the_budget(noise_at):
    setting = privacy(noise_at=noise_at)
    enough = privacy(noise_at=noise_at, noise=setting.noise_for(4.0, rounds=30))
    assert 3.9 < enough.epsilon(30) <= 4.0


@pytest.mark.parametrize(
    ("nonsense", "words"),
    [
        ({"clip": 0.0}, "clipping norm is 0"),
        ({"clip": -1.0}, "clipping norm is -1"),
        ({"clip": math.inf}, "clipping norm is inf"),
        ({"noise": 0.0}, "noise multiplier is 0"),
        ({"delta": 1.0}, "delta is 1"),
        ({"delta": 0.1}, "below 1/10"),
        ({"clients": 1}, "there are 1"),
        ({"participation": 0.05}, "draws 0.5 of 10"),
    ],
)
def test_settings_that_promise_nothing_are_refused(nonsense, words):
    with pytest.raises(FovaError, match=words):
        privacy(**nonsense)


def test_the_smallest_settings_that_promise_something_are_taken():
    assert privacy(clients=2).expected_clients == 2
    assert privacy(participation=0.1).expected_clients == 1.0
    assert privacy(delta=0.0999).delta == 0.0999


def test_what_a_round_logs():
    setting = privacy(participation=0.2)
    assert setting.spent(30) == {"epsilon_round": setting.epsilon(1), "epsilon": setting.epsilon(30), "delta": 1e-5}


def test_noise_is_added_leaf_by_leaf():
    key = jax.random.key(3)
    tree = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
    one, other = jax.random.split(key, 2)
    noisy = with_noise(tree, 0.5, key)
    np.testing.assert_allclose(noisy["a"], tree["a"] + 0.5 * jax.random.normal(one, (2,)), rtol=1e-6)
    np.testing.assert_allclose(noisy["b"], 3.0 + 0.5 * jax.random.normal(other, ()), rtol=1e-6)


def test_what_a_client_with_noise_sends_arrives_as_it_is():
    """Clipping again would shorten the noise; the norm of what arrives is far above 1."""
    sent = Submission({"w": jnp.array([3.0, 4.0])}, jnp.array(2.0), {"rows": jnp.array(7.0)})
    arrived = Private(clip=1.0, deviation=2.0).decode(sent, {"w": jnp.zeros(2)})
    assert arrived.parameters["w"].tolist() == [3.0, 4.0]
    assert (float(arrived.log_weight), arrived.metrics) == (0.0, {})


@pytest.mark.parametrize(("count", "expected"), [(0.0, 0.0), (1.0, 0.25), (2.0, 0.5), (4.0, 1.0)])
def test_a_server_moves_by_the_sum_over_the_expected_number(count, expected):
    privacy = Privacy("server", clip=1e-9, noise=1.0, delta=1e-5, clients=8, participation=0.5)
    mean = {"w": jnp.array([1.0 if count else jnp.nan])}
    published = publish(privacy, {"w": jnp.zeros(1)}, mean, count, jax.random.key(0))
    np.testing.assert_allclose(published["w"], [expected], atol=1e-6)


def test_secret_keys_are_never_the_same():
    one, other = (jax.random.key_data(secret_key()).tolist() for _ in range(2))
    assert len(one) == len(other) == 2
    assert one != other

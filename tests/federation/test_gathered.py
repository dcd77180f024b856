"""The results of a round's cohorts, added and merged by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova.federation.gathered import Gathered
from fova.federation.privacy import Privacy
from fova.federation.rounds import alone


def submission(*numbers):
    return alone({"w": jnp.array(numbers)})


def test_nothing_is_gathered_at_first():
    nothing = Gathered()
    assert (nothing.members, nothing.verdicts, nothing.log_weights.tolist()) == ([], [], [])
    assert (nothing.submissions, nothing.log_total, nothing.metrics()) == (None, -np.inf, {})


def test_cohorts_are_added_without_their_padding():
    gathered = Gathered()
    gathered.add([4, 1], np.array([0, 1]), {"loss": [1.0, 2.0, 99.0]}, np.array([0.5, -np.inf, 7.0]))
    gathered.add([2], np.array([0]), {"loss": [3.0, 99.0, 99.0]}, np.array([0.25, 7.0, 7.0]))
    assert (gathered.members, gathered.verdicts) == ([4, 1, 2], [0, 1, 0])
    assert gathered.metrics()["loss"].tolist() == [1.0, 2.0, 3.0]
    assert gathered.log_weights.tolist() == [0.5, -np.inf, 0.25]


def test_clients_that_train_alone_have_no_weights():
    gathered = Gathered()
    gathered.add([0], np.array([0]), {"loss": [1.0]}, None)
    assert gathered.log_weights.tolist() == []


def test_means_are_merged_by_their_weights():
    gathered = Gathered()
    gathered.merge(submission(1.0, 2.0), np.log(3.0))
    assert gathered.submissions.parameters["w"].tolist() == [[1.0, 2.0]]
    gathered.merge(submission(5.0, 10.0), np.log(1.0))
    np.testing.assert_allclose(gathered.submissions.parameters["w"], [[2.0, 4.0]], rtol=1e-6)
    assert float(gathered.log_total) == pytest.approx(np.log(4.0))


def test_a_private_server_publishes_the_sum_over_the_expected_number():
    privacy = Privacy("server", clip=1e-6, noise=0.5, delta=1e-5, clients=5)  # next to no noise
    before = {"w": jnp.array([1.0, 1.0])}
    gathered = Gathered()
    still = gathered.published(privacy, before, jax.random.key(0))
    np.testing.assert_allclose(still.parameters["w"], [[1.0, 1.0]], atol=1e-5)
    gathered.merge(submission(2.0, 0.0), np.log(4.0))  # four of five came: 4 * (1, -1) / 5
    published = gathered.published(privacy, before, jax.random.key(0))
    np.testing.assert_allclose(published.parameters["w"], [[1.8, 0.2]], atol=1e-5)
    assert published.log_weight.tolist() == [0.0]

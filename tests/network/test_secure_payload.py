"""A submission as numbers that can be added up, and the mean that the sum gives: numbers worked out by hand."""

import numpy as np
import pytest

from fova.algorithms.base import Submission
from fova.errors import FovaError
from fova.network.secure_payload import LARGEST_METRIC, PRECISION, Payload

BROADCAST = {"b": np.array([[1.0, 2.0]], np.float32), "w": np.float32(4.0)}


def sent(b, w, rows, loss=0.5):
    parameters = {"b": np.array([b], np.float32), "w": np.float32(w)}
    return Submission(parameters, np.float32(0.0), {"rows": np.float32(rows), "loss": np.float32(loss)})


EAST, WEST = sent([1.5, 2.0], 3.0, rows=4), sent([1.0, 3.0], 5.0, rows=12, loss=1.5)


def test_a_client_adds_its_update_its_metrics_and_its_weight():
    uniform, by_size = Payload(EAST, "uniform"), Payload(EAST, "size")
    # The update is (0.5, 0) and -1; metrics in the order of their names: loss, rows.
    expected = [0.5, 0.0, -1.0, 0.5, 4.0, 1.0]
    assert uniform.numbers(EAST, BROADCAST).tolist() == expected
    assert by_size.numbers(EAST, BROADCAST).tolist() == [4 * number for number in expected]
    assert uniform.length == by_size.length == 6


@pytest.mark.parametrize(("loss", "counts"), [(3e7, 1e6), (-3e7, -1e6), (1e6, 1e6), (9e5, 9e5)])
def test_a_metric_counts_up_to_a_million(loss, counts):
    assert LARGEST_METRIC == 1e6
    assert Payload(EAST, "uniform").numbers(sent([1, 2], 4, 1, loss), BROADCAST)[3] == counts


@pytest.mark.parametrize(
    ("aggregation", "b", "w", "loss", "rows", "weight"),
    [
        ("uniform", [1.25, 2.5], 4.0, 1.0, 8.0, 2.0),
        ("size", [1.125, 2.75], 4.5, 1.25, 10.0, 16.0),  # weights 1/4 and 3/4
    ],
)
def test_the_mean_of_two_clients(aggregation, b, w, loss, rows, weight):
    payload = Payload(EAST, aggregation)
    total = payload.encode(EAST, BROADCAST, 2) + payload.encode(WEST, BROADCAST, 2)
    mean = payload.mean(total, BROADCAST, 2)
    np.testing.assert_allclose(mean.parameters["b"], [b], atol=payload.error(2, weight))
    np.testing.assert_allclose(mean.parameters["w"], w, atol=payload.error(2, weight))
    assert mean.parameters["b"].dtype == mean.parameters["w"].dtype == np.float32
    assert mean.metrics == pytest.approx({"loss": loss, "rows": rows}, abs=payload.error(2, weight))
    assert mean.weight == weight


def test_the_error_of_a_mean():
    assert Payload(EAST, "uniform").error(3, 3.0) == 2.0**-37
    assert Payload(EAST, "size").error(3, 3.0) == 2.0**-21
    assert Payload(EAST, "size").error(3, 300.0) == 2.0**-21 / 100
    assert {name: point.bits for name, point in PRECISION.items()} == {"uniform": 36, "size": 20}


def test_a_weight_that_honest_clients_cannot_have_is_refused():
    for aggregation, clients in (("uniform", 1), ("uniform", 3), ("size", 17)):
        payload = Payload(EAST, aggregation)
        total = payload.encode(EAST, BROADCAST, 2) + payload.encode(WEST, BROADCAST, 2)
        weight = 2 if aggregation == "uniform" else 16
        with pytest.raises(FovaError, match=f"The {clients} clients of this round weigh {weight} together"):
            payload.mean(total, BROADCAST, clients)
    by_size = Payload(EAST, "size")
    single_rows = by_size.encode(sent([1, 2], 4, rows=1), BROADCAST, 1)
    assert by_size.mean(single_rows, BROADCAST, 1).weight == 1.0

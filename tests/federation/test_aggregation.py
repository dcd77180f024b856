import jax.numpy as jnp
import numpy as np
import pytest

from fova.algorithms import configure
from fova.algorithms.base import Broadcast, Submission, weighted_mean
from fova.errors import FovaError
from fova.federation.aggregation import AGGREGATIONS, for_algorithm, get, krum, median, trimmed_mean, weigh

# Five clients, two coordinates. The fourth is far off and the fifth sent rubbish and was rejected.
VALUES = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [100.0, -100.0], [np.nan, np.inf]], "f")
LOG_WEIGHT = np.array([0.0, 0.0, 0.0, 0.0, -np.inf], "f")
METRICS = {"rows": np.array([1.0, 1.0, 2.0, 4.0, 50.0], "f"), "value": np.array([0.0, 10.0, 0.0, 0.0, 99.0], "f")}
BY_RETURNS = np.log(np.array([3.0, 1.0, 1.0, 1.0, 9.0], "f"))
SENT = Submission({"w": VALUES}, LOG_WEIGHT, METRICS)


def everything(parameters):
    """All parameters are networks."""
    return parameters


def combined(name, sent=SENT):
    weighed = weigh(get(name), sent, BY_RETURNS[: len(sent.log_weight)])
    combine = get(name).combine
    if combine is None:
        return np.asarray(weighted_mean(weighed.parameters, weighed.log_weight)["w"])
    return np.asarray(combine(weighed, everything)["w"])


def test_weightings_by_hand():
    np.testing.assert_allclose(combined("uniform"), [106 / 4, -40 / 4], rtol=1e-6)
    np.testing.assert_allclose(combined("size"), [(1 + 2 + 6 + 400) / 8, (10 + 20 + 60 - 400) / 8], rtol=1e-6)
    shares = np.exp([0.0, 1.0, 0.0, 0.0])
    expected = (shares / shares.sum()) @ np.asarray(VALUES[:4])
    np.testing.assert_allclose(combined("value"), expected, rtol=1e-5)


def test_weights_by_the_returns_in_the_data_by_hand():
    expected = [(3 * 1 + 2 + 3 + 100) / 6, (3 * 10 + 20 + 30 - 100) / 6]
    np.testing.assert_allclose(combined("returns"), expected, rtol=1e-6)


def test_an_algorithm_may_ask_for_weights_by_returns():
    assert for_algorithm("algorithm", configure("fova")) == AGGREGATIONS["returns"]
    assert for_algorithm("algorithm", configure("fova", preset="equations")) == AGGREGATIONS["algorithm"]
    assert for_algorithm("uniform", configure("fova")) == AGGREGATIONS["uniform"]
    assert for_algorithm("returns", configure("fed-bc")) == AGGREGATIONS["returns"]


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "krum"])
def test_leaves_of_every_rank_are_combined(name):
    scalars = jnp.array([1.0, 2.0, 3.0, 2.0, jnp.nan])
    tree = {"scalar": scalars, "matrix": scalars[:, None, None] * jnp.ones((2, 3))}
    sent = weigh(get(name), Submission(tree, LOG_WEIGHT, METRICS), BY_RETURNS)
    combined = get(name).combine(sent, everything)
    assert float(combined["scalar"]) == 2.0
    np.testing.assert_array_equal(combined["matrix"], np.full((2, 3), 2.0))


def test_median_and_trimmed_mean_by_hand():
    np.testing.assert_allclose(combined("median"), [2.5, 15.0], rtol=1e-6)
    np.testing.assert_allclose(combined("trimmed-mean"), [2.5, 15.0], rtol=1e-6)  # one cut at each end of four


def test_trimmed_mean_of_two_clients_cuts_nobody():
    two = Submission({"w": VALUES[:2]}, jnp.zeros(2), {})
    np.testing.assert_allclose(trimmed_mean(two, everything)["w"], [1.5, 15.0])


def trimmed(values, **options):
    sent = Submission({"w": jnp.array(values, float)}, jnp.zeros(len(values)), {})
    return float(trimmed_mean(sent, everything, **options)["w"])


def test_a_fifth_is_cut_at_each_end_if_something_is_left():
    squares = [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]
    assert trimmed(squares) == pytest.approx((4 + 9 + 16 + 25 + 36 + 49) / 6)  # 2 of 10 at each end
    assert trimmed([0.0, 1.0, 100.0]) == 1.0
    assert trimmed([0.0, 1.0, 2.0, 9.0], share=0.5) == 3.0, "two at each end would leave nobody, so all count"


def test_the_number_of_krums_neighbours_by_hand():
    """Six clients: 6 - 2 - 2 = 2 neighbours. By one the pair at 0 would win, by three the client at 11."""
    crowd = [0.0, 0.1, 10.0, 10.5, 11.0, 12.0]  # 10.5: 0.25 + 0.25, and 2.25 more; 11: 0.25 + 1 + 1
    sent = Submission({"w": jnp.array(crowd)}, jnp.zeros(6), {})
    assert float(krum(sent, everything)["w"]) == 10.5
    assert float(krum(sent, everything, attackers=0.1)["w"]) == 11.0
    assert float(krum(sent, everything, attackers=0.4)["w"]) == 0.0


def test_a_rejected_client_is_nobodys_neighbour_in_krum():
    """One neighbour each. The lone client at 0 is where a rejected submission is put."""
    values = jnp.array([0.0, 10.0, 10.5, 20.0, jnp.nan])
    assert float(krum(Submission({"w": values}, LOG_WEIGHT, {}), everything)["w"]) == 10.0


def test_aggregations_that_compare_clients_need_whole_rounds():
    whole = {name for name, aggregation in AGGREGATIONS.items() if aggregation.whole_rounds}
    assert whole == {"median", "trimmed-mean", "krum"}


def test_krum_takes_a_submission_from_the_crowd():
    # squared distances between the first three: 101, 101, 404; to the fourth over 20,000
    # with four clients each looks at its one nearest neighbour: 101, 101, 101; the first of equals wins
    np.testing.assert_allclose(krum(SENT, everything)["w"], [1.0, 10.0])
    crowd = jnp.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [0.1, 0.1], [50.0, 50.0]])
    chosen = krum(Submission({"w": crowd}, jnp.zeros(5), {}), everything)["w"]
    assert float(jnp.abs(chosen).max()) < 1.0


def test_krum_compares_networks_and_not_what_is_federated_beside_them():
    """The first four differ by any amount in what follows their data; the fifth's networks are far off."""
    networks = jnp.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [0.1, 0.1], [50.0, 50.0]])
    beside = jnp.array([-900.0, 0.0, 900.0, 1800.0, 0.0])
    chosen = krum(Submission(Broadcast(networks, networks, beside), jnp.zeros(5), {}), configure("fova").networks)
    assert float(jnp.abs(chosen.actor).max()) < 1.0


def test_krum_with_one_client_left_takes_it_and_not_the_rejected_one():
    two = Submission({"w": jnp.array([[jnp.nan, jnp.nan], [1.0, 2.0]])}, jnp.array([-jnp.inf, 0.0]), {})
    np.testing.assert_allclose(krum(two, everything)["w"], [1.0, 2.0])


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_rejected_rubbish_never_counts(name):
    assert np.isfinite(combined(name)).all()


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "krum"])
def test_one_client_that_lies_cannot_move_robust_aggregations_far(name):
    honest = jnp.array([[1.0], [1.1], [0.9], [1.05], [0.95]])
    poisoned = honest.at[2].set(1e6)
    sent = Submission({"w": poisoned}, jnp.zeros(5).at[2].set(100.0), {})
    assert 0.9 <= float(combined(name, sent)[0]) <= 1.1
    assert float(combined("uniform", sent)[0]) > 1e5


def test_nothing_is_finite_when_everybody_is_rejected():
    nobody = Submission({"w": VALUES}, jnp.full(5, -jnp.inf), METRICS)
    assert not np.isfinite(
        np.asarray(median(nobody, everything)["w"])
    ).any()  # the engine refuses such a round: see simulation


def test_an_unknown_aggregation_is_named():
    with pytest.raises(FovaError, match="'median'"):
        get("medain")


def test_weighing_by_value_needs_critics():
    with pytest.raises(FovaError, match="needs an estimate of each policy"):
        weigh(get("value"), Submission({"w": VALUES}, LOG_WEIGHT, {"rows": METRICS["rows"]}), BY_RETURNS)

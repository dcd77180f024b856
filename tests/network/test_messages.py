"""Messages as the other side reads them: what comes back, and what is refused. No network here."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fova.algorithms import configure
from fova.algorithms.base import Submission
from fova.data.normalise import Normaliser, Sums
from fova.errors import FovaError
from fova.federation.statistics import ClientStatistics, Statistics
from fova.network import messages
from fova.network.messages import Refused
from fova.network.plan import Plan
from fova.run.config import RunConfig
from fova.spaces import Space

SUMS = Sums(8, np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 9.0]))
BROADCAST = {"w": np.array([1.0, 2.0], np.float32)}
FRAME = Statistics(Normaliser(np.zeros(3, np.float32), np.ones(3, np.float32)), 2.5)
SENT = Submission(BROADCAST, np.float32(0.5), {"rows": np.float32(8)})


def plan(**run):
    algorithm = configure("fed-bc", hidden=(4,), batch_size=4)
    return Plan("0" * 32, "fed-bc", algorithm, RunConfig(rounds=1, local_steps=2, **run), Space.unit(3, 2), 2)


def statistics(**changes):
    usual = {"rows": 8, "episodes": 3, "terminals": 2, "reward_sum": 1.5, "reward_squares": 9.0}
    usual |= {"reward_deviations": 3.0, "behaviour_return": 0.5, "observations": SUMS}
    return ClientStatistics(**usual | changes)


def hello_answer(**changes):
    return messages.hello_answer(plan(), "east", statistics(**changes))


def question():
    return messages.round_question(plan(), 4, 3, BROADCAST, FRAME)


def arrays(**values):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in values.items()})


def without(content, *names):
    return RecordDict({name: record for name, record in content.items() if name not in names})


def saying(content, **facts):
    content["about"] = ConfigRecord({**content["about"], **facts})
    return content


# --- Statistics ---


def test_statistics_come_back_as_they_were_sent():
    read = messages.read_statistics(hello_answer(), plan())
    assert {name: getattr(read, name) for name in messages.NUMBERS} == {
        name: getattr(statistics(), name) for name in messages.NUMBERS
    }
    assert [type(getattr(read, name)) for name in messages.COUNTS] == [int, int, int]
    assert read.observations.count == 8
    assert read.observations.total.tolist() == SUMS.total.tolist()
    assert read.observations.squares.tolist() == SUMS.squares.tolist()


def test_without_normalisation_no_sums_of_observations_travel():
    raw = plan(normalise=False)
    content = messages.hello_answer(raw, "east", statistics(observations=None))
    assert messages.read_statistics(content, raw).observations is None
    with pytest.raises(Refused, match="its statistics are not rows, episodes"):
        messages.read_statistics(content, plan())
    with pytest.raises(Refused, match="its statistics are not rows, episodes"):
        messages.read_statistics(hello_answer(), raw)


@pytest.mark.parametrize(
    ("rows", "episodes", "terminals"), [(1, 1, 1), (1, 1, 0), (8, 8, 8), (8, 1, 0), (8, 0, 0), (8, 3, 3)]
)
def test_counts_that_data_can_have_are_taken(rows, episodes, terminals):
    content = hello_answer(rows=rows, episodes=episodes, terminals=terminals)
    read = messages.read_statistics(content, plan())
    assert (read.rows, read.episodes, read.terminals) == (rows, episodes, terminals)
    assert read.observations.count == rows


@pytest.mark.parametrize(
    ("rows", "episodes", "terminals"), [(0, 0, 0), (-1, 0, 0), (8, 9, 2), (8, 3, 4), (8, 3, -1)]
)
def test_counts_that_no_data_has_are_refused(rows, episodes, terminals):
    content = hello_answer(rows=rows, episodes=episodes, terminals=terminals)
    words = (
        "rows, episodes or ends that are not" if min(rows, terminals) < 0 else "more episodes than rows, or more"
    )
    with pytest.raises(Refused, match=f"its statistics count {words}"):
        messages.read_statistics(content, plan())


@pytest.mark.parametrize("changes", [{"reward_sum": np.nan}, {"behaviour_return": np.inf}])
def test_statistics_that_are_no_numbers_are_refused(changes):
    with pytest.raises(Refused, match="its statistics are not finite"):
        messages.read_statistics(hello_answer(**changes), plan())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward_squares": 1.7e308}, "reward_squares of 1.7e.308, which no data has"),
        ({"reward_sum": 1.7e308}, "reward_sum of 1.7e.308, which no data has"),
        ({"behaviour_return": -1.7e308}, "behaviour_return of 1.7e.308, which no data has"),
        (
            {"observations": Sums(8, np.array([1.0, 2.0, 3.0]), np.full(3, 1e300))},
            "squares of 1e.300, which no data",
        ),
        ({"reward_sum": 9.0}, "a reward_sum that their reward_squares rule out"),  # at most sqrt(8 * 9)
        ({"reward_deviations": 9.0}, "a reward_deviations that their reward_squares rule out"),
        ({"reward_deviations": -1.0}, "negative reward_deviations"),
        ({"observations": Sums(8, np.full(3, 9.0), np.full(3, 9.0))}, "a total that their squares rule out"),
        ({"rows": 10**12}, "not between 0 and 1,000,000,000"),
        ({"episodes": 2.5}, "not between 0 and 1,000,000,000"),
    ],
)
def test_statistics_that_no_data_has_are_refused(changes, words):
    with pytest.raises(Refused, match=words):
        messages.read_statistics(hello_answer(**changes), plan())


def test_statistics_are_there_exactly_if_they_were_asked_for():
    with pytest.raises(Refused, match="holds about, but about, statistics are expected"):
        messages.read_statistics(messages.hello_answer(plan(), "east", None), plan())
    private = plan(privacy="client", privacy_clip=1.0, privacy_noise=2.0, aggregation="uniform", normalise=False)
    assert messages.read_statistics(messages.hello_answer(private, "east", None), private) is None
    with pytest.raises(Refused, match="holds about, statistics, but about are expected"):
        messages.read_statistics(hello_answer(), private)


# --- A round ---


def test_a_question_comes_back_as_it_was_sent():
    number, counted, broadcast, frame = messages.read_round_question(question(), plan(), BROADCAST)
    assert (number, counted) == (4, 3)
    np.testing.assert_array_equal(broadcast["w"], BROADCAST["w"])
    assert frame.to_json() == FRAME.to_json()
    assert messages.read_plan(question()) == messages.read_plan(messages.hello(plan())) == plan()


@pytest.mark.parametrize("name", ["about", "broadcast", "frame"])
def test_a_question_without_one_of_its_records_is_refused(name):
    words = "does not say what it is about" if name == "about" else f"has no {name}"
    with pytest.raises(Refused, match=words):
        messages.read_round_question(without(question(), name), plan(), BROADCAST)


@pytest.mark.parametrize("unit", [0.0, -1.0, np.nan, np.inf])
def test_a_unit_of_reward_must_be_above_0(unit):
    content = question()
    content["frame"] = arrays(mean=np.zeros(3, "f"), std=np.ones(3, "f"), reward_unit=unit)
    with pytest.raises(Refused, match="must be a number above 0"):
        messages.read_round_question(content, plan(), BROADCAST)


def test_a_unit_of_reward_may_be_small():
    content = question()
    content["frame"] = arrays(mean=np.zeros(3, "f"), std=np.ones(3, "f"), reward_unit=0.25)
    assert messages.read_round_question(content, plan(), BROADCAST)[-1].reward_unit == 0.25


def test_a_normaliser_of_other_columns_is_refused():
    content = question()
    content["frame"] = arrays(mean=np.zeros(3, "f"), std=np.ones(2, "f"), reward_unit=1.0)
    with pytest.raises(Refused, match="does not fit observations of 3 numbers"):
        messages.read_round_question(content, plan(), BROADCAST)


def test_a_plan_of_another_version_or_fingerprint_is_refused():
    with pytest.raises(Refused, match=r"The server runs fova 0\.0\.1"):
        messages.read_plan(saying(question(), version="0.0.1"))
    with pytest.raises(Refused, match="does not match its fingerprint"):
        messages.read_plan(saying(question(), fingerprint="?"))


def test_an_answer_comes_back_as_it_was_sent():
    content = messages.round_answer(plan(), 4, "east", SENT)
    assert messages.read_client(content, plan()) == "east"
    read = messages.read_round_answer(content, plan(), 4, SENT)
    np.testing.assert_array_equal(read.parameters["w"], BROADCAST["w"])
    assert float(read.log_weight) == 0.5
    assert {name: float(value) for name, value in read.metrics.items()} == {"rows": 8.0}


@pytest.mark.parametrize("name", ["parameters", "metrics"])
def test_an_answer_without_one_of_its_records_is_refused(name):
    content = without(messages.round_answer(plan(), 4, "east", SENT), name)
    with pytest.raises(Refused, match="but about, metrics, parameters are expected"):
        messages.read_round_answer(content, plan(), 4, SENT)


def test_an_answer_that_says_nothing_about_itself_is_refused():
    content = without(messages.round_answer(plan(), 4, "east", SENT), "about")
    with pytest.raises(Refused, match="does not say what it is about"):
        messages.read_client(content, plan())
    with pytest.raises(Refused, match="does not say what it is about"):
        messages.read_round_answer(content, plan(), 4, SENT)


def test_an_answer_with_a_metric_too_few_is_refused():
    content = messages.round_answer(plan(), 4, "east", SENT)
    content["metrics"] = MetricRecord({messages.WEIGHT: 0.5})
    with pytest.raises(Refused, match="its metrics are 1 and not the 2 asked for; on one side only: rows"):
        messages.read_round_answer(content, plan(), 4, SENT)


@pytest.mark.parametrize(
    ("facts", "words"), [({"round": 3}, "answers round 3, not 4"), ({"fingerprint": "?"}, "another plan")]
)
def test_an_answer_to_something_else_is_refused(facts, words):
    content = saying(messages.round_answer(plan(), 4, "east", SENT), **facts)
    with pytest.raises(Refused, match=words):
        messages.read_round_answer(content, plan(), 4, SENT)


@pytest.mark.parametrize(
    ("facts", "words"),
    [({"version": "0.0.1"}, r"it runs fova 0\.0\.1"), ({"run": "1" * 32}, "stale: it answers run 1")],
)
def test_an_answer_of_another_version_or_run_is_refused(facts, words):
    with pytest.raises(Refused, match=words):
        messages.read_client(saying(hello_answer(), **facts), plan())


def test_a_refusal_is_passed_on_with_its_reason():
    content = messages.refusal(plan().run_id, "east", "no data")
    with pytest.raises(FovaError, match="refused: no data"):
        messages.read_client(content, plan())

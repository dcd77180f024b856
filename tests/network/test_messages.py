"""Messages as the other side reads them: what comes back, and what is refused. No network here."""

from dataclasses import asdict, replace

import jax
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fova.algorithms import configure
from fova.algorithms.base import Submission
from fova.data.normalise import Normaliser, Sums
from fova.data.tables.columns import Columns
from fova.data.tables.survey import Survey, Told
from fova.errors import FovaError
from fova.evaluation.judging.verdict import Figures
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
    assert [type(getattr(read, name)) for name in messages.COUNTS] == [int, int]
    assert read.counted_rows is None
    assert read.observations.count == 8
    assert read.observations.total.tolist() == SUMS.total.tolist()
    assert read.observations.squares.tolist() == SUMS.squares.tolist()


def weighted_answer(**changes):
    return messages.hello_answer(
        plan(sampling="returns"), "east", statistics(**{"counted_rows": 5.5, "low_of_all": -2.5} | changes)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"terminals": 1.5},
        {"counted_rows": 8.0},  # every row counts once
        {"counted_rows": 8 * np.exp(-4.0), "terminals": 0.01, "reward_sum": 0.1, "reward_deviations": 0.1},
        {"counted_rows": 4.0, "reward_sum": 6.0},  # sqrt(4 * 9)
    ],
)
def test_statistics_of_weighted_rows_come_back_as_they_were_sent(changes):
    read = messages.read_statistics(weighted_answer(**changes), plan(sampling="returns"))
    assert read.counted_rows == changes.get("counted_rows", 5.5)
    assert read.terminals == changes.get("terminals", 2)
    assert read.low_of_all == -2.5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"counted_rows": 8.1}, "its rows count for 8.1, but it has 8 rows and 2 ends"),
        ({"counted_rows": 1.9}, "its rows count for 1.9, but it has 8 rows and 2 ends"),
        ({"counted_rows": 0.14, "terminals": 0.0}, "its 8 rows count for 0.14, less than the least weight allows"),
        ({"counted_rows": np.nan}, "not finite"),
        ({"counted_rows": 4.0, "reward_sum": 6.001}, "a reward_sum that their reward_squares rule out"),
        ({"terminals": 3.5}, "more ends than episodes"),
        ({"low_of_all": -7.1e30}, "a low reward of -7.1e.30, which no data has"),
        ({"rows": 8.5}, "not between 0 and 1,000,000,000"),
    ],
)
def test_weighted_rows_that_no_data_has_are_refused(changes, words):
    with pytest.raises(Refused, match=words):
        messages.read_statistics(weighted_answer(**changes), plan(sampling="returns"))


def test_weights_of_rows_travel_only_where_rows_are_weighted():
    with pytest.raises(Refused, match="its statistics are not rows, episodes"):
        messages.read_statistics(hello_answer(), plan(sampling="returns"))
    with pytest.raises(Refused, match="its statistics are not rows, episodes"):
        messages.read_statistics(weighted_answer(), plan())
    with pytest.raises(Refused, match="not between 0"):
        messages.read_statistics(hello_answer(terminals=1.5), plan())


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


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 4, "reward_sum": 6.0},  # sqrt(4 * 9)
        {"rows": 4, "reward_sum": -6.0},
        {"rows": 4, "reward_sum": 6.000005},  # rounding
        {"reward_sum": 0.0, "reward_squares": 0.0, "reward_deviations": 0.0},
        {"behaviour_return": 1e39},  # a billion rows of the largest reward
        {"reward_squares": 1e60},
        {"observations": Sums(8, np.zeros(3), np.full(3, 1e69))},
        {"rows": 1_000_000_000},
    ],
)
def test_statistics_at_the_limits_of_what_data_can_have_are_taken(changes):
    assert messages.read_statistics(hello_answer(**changes), plan()) is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": 4, "reward_sum": 6.0001}, "a reward_sum that their reward_squares rule out"),
        ({"rows": 4, "reward_sum": -6.0001}, "a reward_sum that their reward_squares rule out"),
        ({"reward_squares": -1e-9, "reward_sum": 0.0, "reward_deviations": 0.0}, "a reward_sum that their"),
        ({"behaviour_return": 1.1e39}, "behaviour_return of 1.1e.39, which no data has"),
        ({"reward_squares": 1.1e69}, "reward_squares of 1.1e.69, which no data has"),
        ({"observations": Sums(8, np.array([0.0, 6.0, 0.0]), np.array([9.0, 4.0, 9.0]))}, "a total that their"),
        ({"rows": 1_000_000_001}, "not between 0 and 1,000,000,000"),
    ],
)
def test_statistics_just_beyond_the_limits_are_refused(changes, words):
    with pytest.raises(Refused, match=words):
        messages.read_statistics(hello_answer(**changes), plan())


JUDGED = replace(plan(), judge="a policy")  # only whether there is one counts here


@pytest.mark.parametrize("ends", [(-4.0, 8.0), (2.0, 2.0), (-1e30, 1e30)])
def test_where_a_policy_is_judged_the_range_of_rewards_comes_back(ends):
    content = messages.hello_answer(JUDGED, "east", statistics(reward_range=ends))
    assert messages.read_statistics(content, JUDGED).reward_range == ends
    with pytest.raises(Refused, match="on one side only: reward_range"):
        messages.read_statistics(content, plan())
    with pytest.raises(Refused, match="on one side only: reward_range"):
        messages.read_statistics(hello_answer(), JUDGED)


@pytest.mark.parametrize("ends", [(8.0, -4.0), (-1.1e30, 0.0), (0.0, 1.1e30)])
def test_a_range_that_no_rewards_have_is_refused(ends):
    content = messages.hello_answer(JUDGED, "east", statistics(reward_range=ends))
    with pytest.raises(Refused, match="which no data has"):
        messages.read_statistics(content, JUDGED)


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
    content["frame"] = arrays(mean=np.zeros(3, "f"), std=np.ones(3, "f"), reward_unit=unit, reward_zero=0.0)
    with pytest.raises(Refused, match="must be a number above 0"):
        messages.read_round_question(content, plan(), BROADCAST)


def test_a_unit_of_reward_may_be_small():
    content = question()
    content["frame"] = arrays(mean=np.zeros(3, "f"), std=np.ones(3, "f"), reward_unit=0.25, reward_zero=-3.5)
    statistics = messages.read_round_question(content, plan(), BROADCAST)[-1]
    assert (statistics.reward_unit, statistics.reward_zero) == (0.25, -3.5)


@pytest.mark.parametrize("zero", [0.5, np.nan, -np.inf])
def test_a_zero_of_reward_must_not_be_above_0(zero):
    content = question()
    content["frame"] = arrays(mean=np.zeros(3, "f"), std=np.ones(3, "f"), reward_unit=1.0, reward_zero=zero)
    with pytest.raises(Refused, match="must be 0 or a number below it"):
        messages.read_round_question(content, plan(), BROADCAST)


def test_a_normaliser_of_other_columns_is_refused():
    content = question()
    content["frame"] = arrays(mean=np.zeros(3, "f"), std=np.ones(2, "f"), reward_unit=1.0, reward_zero=0.0)
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


# --- Tables ---


COLUMNS = Columns.of(
    {
        "episode": "who",
        "time": "hour",
        "observations": ["hr"],
        "action": "dose",
        "reward": "pay",
        "terminal": "died",
    }
)
SURVEY = Survey({"hr": Told("number", (), 3, 240.5)}, {"dose": Told("category", ("high", "low"))})


def test_a_survey_comes_back_as_it_was_sent():
    for columns in (COLUMNS, replace(COLUMNS, terminal="last:Outcome=died, at home")):
        assert messages.read_survey_question(messages.survey_question("0" * 32, columns)) == columns
    assert messages.read_survey_question(messages.hello(plan())) is None
    answer = messages.survey_answer("0" * 32, "east", SURVEY)
    assert messages.read_survey_answer(answer, "0" * 32) == ("east", SURVEY)


def test_a_survey_of_another_version_or_run_or_with_more_is_refused():
    with pytest.raises(Refused, match=r"The server runs fova 0\.0\.1"):
        messages.read_survey_question(saying(messages.survey_question("0" * 32, COLUMNS), version="0.0.1"))
    answer = messages.survey_answer("0" * 32, "east", SURVEY)
    with pytest.raises(Refused, match="stale: it answers run 0"):
        messages.read_survey_answer(answer, "1" * 32)
    with pytest.raises(Refused, match=r"it runs fova 0\.0\.1"):
        messages.read_survey_answer(saying(answer, version="0.0.1"), "0" * 32)
    answer = messages.survey_answer("0" * 32, "east", SURVEY)
    answer["rows"] = arrays(hr=[80.0])
    with pytest.raises(Refused, match="holds about, rows, but about are expected"):
        messages.read_survey_answer(answer, "0" * 32)


def test_a_survey_has_a_greatest_length(monkeypatch):
    answer = messages.survey_answer("0" * 32, "east", SURVEY)
    length = len(answer["about"]["survey"])
    monkeypatch.setattr(messages, "LONGEST_SURVEY", length)
    assert messages.read_survey_answer(answer, "0" * 32)[0] == "east"
    monkeypatch.setattr(messages, "LONGEST_SURVEY", length - 1)
    with pytest.raises(Refused, match=f"its survey has {length} characters, but at most {length - 1}"):
        messages.read_survey_answer(answer, "0" * 32)


# --- Figures ---


FIGURES = Figures(
    episodes=3, rows=8, data_value=5.0, data_return=9.0, value=7.0, low=6.0, high=8.0, difference=2.0,
    difference_low=1.0, difference_high=3.0, bellman_error=0.1, bias=0.2, episode_error=0.3, fit_error=0.1,
    difference_error=0.3, inside=0.95,
)  # fmt: skip


def figures(**changes):
    return messages.figures_answer(plan(), "east", replace(FIGURES, **changes))


def test_figures_come_back_as_they_were_sent():
    assert messages.read_figures(figures(), plan(), statistics()) == FIGURES
    assert set(figures()["figures"]) == set(asdict(FIGURES)) - {
        *("effective_episodes", "importance_sampling", "importance_low", "importance_high"),
        *("doubly_robust", "doubly_robust_low", "doubly_robust_high"),
    }


def test_figures_that_are_unknown_or_not_finite_come_back_as_such():
    read = messages.read_figures(figures(low=np.nan, high=np.inf, inside=None), plan(), statistics())
    assert np.isnan([read.low, read.high]).all()
    assert read.inside is None
    assert read.value == 7.0


def test_figures_of_other_data_or_plans_or_with_more_are_refused():
    for changes in ({"rows": 9}, {"episodes": 2}):
        with pytest.raises(Refused, match="about other data than it told of"):
            messages.read_figures(figures(**changes), plan(), statistics())
    with pytest.raises(Refused, match="another plan"):
        messages.read_figures(saying(figures(), fingerprint="?"), plan(), statistics())
    more = figures()
    more["figures"] = MetricRecord({**more["figures"], "row_7": 1.0})
    with pytest.raises(Refused, match="its figures hold row_7, which was not asked for"):
        messages.read_figures(more, plan(), statistics())
    with pytest.raises(Refused, match="holds about, but about, figures are expected"):
        messages.read_figures(without(figures(), "figures"), plan(), statistics())


def test_a_client_that_keeps_its_figures_says_only_who_it_is():
    content = messages.no_figures_answer(plan(), "east")
    assert messages.read_no_figures(content, plan()) is None
    assert messages.read_client(content, plan()) == "east"
    with pytest.raises(Refused, match="another plan"):
        messages.read_no_figures(saying(content, fingerprint="?"), plan())
    with pytest.raises(Refused, match="holds about, figures, but about are expected"):
        messages.read_no_figures(figures(), plan())


def test_critics_to_be_judged_come_back_as_they_were_sent():
    with_critics = replace(
        plan(), algorithm_name="fed-td3bc", algorithm=configure("fed-td3bc", hidden=(4,), batch_size=4)
    )
    sent = jax.tree.map(lambda leaf: np.asarray(leaf) + 1, with_critics.start()[1].broadcast)
    content = messages.figures_question(with_critics, sent)
    assert messages.read_plan(content) == with_critics
    found = messages.read_critics(content, with_critics)
    assert jax.tree.leaves(found)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(sent.critic), strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_strange_records_are_named_up_to_three_more_than_expected():
    content = messages.hello_answer(plan(), "east", None)
    for name in "bcdefgh":
        content[name] = ConfigRecord({})
    with pytest.raises(Refused, match="the message holds about, b, c, d, e, but about, statistics are expected"):
        messages.read_statistics(content, plan())

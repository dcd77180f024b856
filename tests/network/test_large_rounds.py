"""Rounds of more clients than a group holds: answers wait on disk, and means of groups are merged."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from in_process import InProcessGrid

from fova.algorithms import configure
from fova.algorithms.base import Submission
from fova.federation.engine import State
from fova.network import engine as engines
from fova.network.basket import Basket
from fova.network.engine import Answers, FlowerEngine
from fova.network.server_config import ServerConfig, make_plan
from fova.progress import Quiet
from fova.run.config import Config, RunConfig

CLIENTS, GROUP = 23, 8


def made(folder, cohort, algorithm="fed-bc", **settings):
    run = RunConfig(rounds=1, cohort=cohort, **settings)
    config = Config(None, (), configure(algorithm, hidden=(4,), batch_size=4), algorithm, run)
    network = ServerConfig(observation=3, action=2)
    plan = make_plan(config, network, "0" * 32)
    return FlowerEngine(InProcessGrid({}), plan, network, Quiet(), folder=folder)


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(engines, "SMALLEST_GROUP", 1)


def submission(engine, broadcast, seed, scale=0.01):
    """What an honest client could send: the broadcast moved by a little, and metrics."""
    rng = np.random.default_rng(seed)

    def moved(leaf):
        return (np.asarray(leaf) + scale * rng.standard_normal(leaf.shape)).astype(leaf.dtype)

    metrics = {name: np.float32(10 * seed + 10) for name in engine.like.metrics}
    return Submission(jax.tree.map(moved, broadcast), np.float32(0.0), metrics)


def judged(engine, liar=None):
    state = State(0, engine.plan.start()[1])
    answers = Answers(engine._basket(CLIENTS))
    for i in range(CLIENTS):
        scale = 100.0 if i == liar else 0.01
        answers.sent.put(f"client-{i:02d}", submission(engine, state.broadcast, i, scale))
    on_disk = answers.sent.folder is not None
    server, metrics = engine._judge(state, answers)
    return server, metrics, answers, on_disk


def assert_near(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("aggregation", ["uniform", "size"])
def test_groups_give_the_same_mean_and_metrics_as_the_whole_round(small_groups, tmp_path, aggregation):
    whole, of_all, _, on_disk = judged(made(tmp_path / "answers", 64, aggregation=aggregation))
    assert not on_disk
    merged, of_groups, _, on_disk = judged(made(tmp_path / "answers", GROUP, aggregation=aggregation))
    assert on_disk
    assert not (tmp_path / "answers").exists(), "nothing is left when the round is judged"
    assert_near(merged, whole)
    assert list(of_groups) == list(of_all) == [f"client-{i:02d}" for i in range(CLIENTS)]
    for name, metrics in of_all.items():
        assert of_groups[name] == pytest.approx(metrics, rel=1e-5)
    assert sum(metrics["server_weight"] for metrics in of_groups.values()) == pytest.approx(1.0)


def test_the_mean_of_groups_is_the_mean_of_all(small_groups, tmp_path):
    engine = made(tmp_path / "answers", GROUP, aggregation="uniform", largest_share=1.0)
    state = State(0, engine.plan.start()[1])
    merged, *_ = judged(engine)
    sent = [submission(engine, state.broadcast, i).parameters for i in range(CLIENTS)]
    expected = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *sent)
    assert_near(merged.broadcast, expected)


@pytest.mark.parametrize("liar", [0, 11, CLIENTS - 1])
def test_a_huge_update_is_rejected_in_whatever_group_it_is(small_groups, tmp_path, liar):
    engine = made(tmp_path / "answers", GROUP)
    _, metrics, answers, _ = judged(engine, liar)
    assert list(answers.rejected) == [f"client-{liar:02d}"]
    assert "10 times as long" in answers.rejected[f"client-{liar:02d}"]
    assert len(metrics) == CLIENTS - 1
    assert engine.record.offences == {f"client-{liar:02d}": 1}


def test_groups_are_dealt_anew_in_every_round_and_about_equal(small_groups):
    engine = made(None, GROUP)
    names = [f"client-{i:02d}" for i in range(17)]
    first, again, second = (engine._groups(number, names) for number in (0, 0, 1))
    assert first == again, "the same seed gives the same groups"
    assert first != second
    assert sorted(map(len, first)) == [5, 6, 6], "nobody is left in a group of one, where nothing is compared"
    assert sorted(name for group in first for name in group) == names
    assert len(made(None, 64)._groups(0, names)) == 1


def test_a_client_that_told_nothing_about_its_data_counts_like_any_other():
    assert made(None, 64)._log_weights(["east", "north"]).tolist() == [0.0, 0.0]


def test_groups_are_not_so_small_that_nobody_is_compared():
    assert made(None, 2).group == engines.SMALLEST_GROUP


class Notes(Quiet):
    def __init__(self):
        self.said = []

    def status(self, text):
        self.said.append(text)


@pytest.mark.parametrize("aggregation", ["median", "trimmed-mean", "krum"])
def test_aggregations_that_compare_all_clients_hold_the_round_in_memory_and_say_so(
    small_groups, tmp_path, aggregation
):
    engine = made(tmp_path / "answers", GROUP, aggregation=aggregation)
    engine.progress = Notes()
    server, _, _, on_disk = judged(engine)
    assert not on_disk
    assert engine.progress.said == ["all 23 answers are compared with one another: 0 MB of memory"]
    assert_near(server, judged(made(None, 64, aggregation=aggregation))[0])


def test_a_basket_gives_back_the_very_bytes(tmp_path):
    engine = made(None, GROUP)
    broadcast = engine.plan.start()[1].broadcast
    baskets = [Basket(), Basket(tmp_path / "answers")]
    for basket in baskets:
        basket.put("b", submission(engine, broadcast, 1))
        basket.put("a", submission(engine, broadcast, 2))
    assert [basket.names() for basket in baskets] == [["a", "b"]] * 2
    memory, disk = (jax.tree.leaves(basket.stacked(["a", "b"])) for basket in baskets)
    for one, other in zip(memory, disk, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert len(Basket(tmp_path / "answers")) == 0, "a new attempt starts with none"
    assert list((tmp_path / "answers").iterdir()) == []


def test_a_round_in_which_all_are_rejected_leaves_the_server_as_it_was(small_groups, tmp_path):
    engine = made(tmp_path / "answers", GROUP)
    state = State(0, engine.plan.start()[1])
    answers = Answers(engine._basket(CLIENTS))
    for i in range(CLIENTS):
        sent = submission(engine, state.broadcast, i)
        answers.sent.put(
            f"client-{i:02d}", replace(sent, parameters=jax.tree.map(lambda leaf: leaf * np.nan, sent.parameters))
        )
    server, metrics = engine._judge(state, answers)
    assert server is state.server
    assert metrics == {}
    assert len(answers.rejected) == CLIENTS


def test_questions_of_a_round_share_their_arrays(small_groups):
    engine = made(None, GROUP)
    state = State(0, engine.plan.start()[1])
    from fova.data.normalise import Normaliser
    from fova.federation.statistics import Statistics

    ask = engines.messages.round_questions(engine.plan, 0, state.broadcast, Statistics(Normaliser.identity(3), 1.0))
    one, other = ask(0), ask(3)
    assert one["broadcast"] is other["broadcast"]
    assert (one["about"]["counted"], other["about"]["counted"]) == (0, 3)

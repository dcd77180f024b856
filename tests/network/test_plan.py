"""A plan: what is refused before anybody is asked, what follows from it, and its way to a client."""

import json
import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from fova.algorithms import configure
from fova.data.normalise import Normaliser
from fova.data.tables.columns import Columns
from fova.data.tables.survey import stated
from fova.errors import FovaError
from fova.evaluation.judging.client import Scale
from fova.evaluation.judging.judge import JudgeSettings, Promise, normaliser_of
from fova.federation.compression import EightBits
from fova.federation.privacy import Privacy, Private
from fova.federation.rounds import client_key
from fova.federation.wire import PLAIN
from fova.network.judging import Judging, run_settings, settings_for
from fova.network.plan import Plan, client_work
from fova.policy import from_actor
from fova.run.config import RunConfig
from fova.settings import LARGEST
from fova.spaces import Space
from tiny import make_transitions

SPACE = Space.unit(3, 2)
PRIVATE = {
    "privacy": "client",
    "privacy_clip": 0.5,
    "privacy_noise": 4.0,
    "aggregation": "uniform",
    "normalise": False,
    "reward_unit": 2.0,
}
SUMS = {"aggregation": "uniform", "normalise": False, "reward_unit": 2.0}
TABLE = Columns.of(
    {
        "episode": "p",
        "time": "h",
        "observations": "a,b,ward",
        "action": "d",
        "reward": "r",
        "terminal": "t",
        "categories": {"ward": ["A", "B"]},
    }
)


def plan(run=(), **fields):
    settings = RunConfig(**{"rounds": 3, "local_steps": 2, "seed": 7} | dict(run))
    usual = {"run_id": "0" * 32, "algorithm_name": "fed-bc", "space": SPACE, "clients": 3, "run": settings}
    return Plan(**usual | {"algorithm": configure("fed-bc", hidden=(4,), batch_size=4)} | fields)


@pytest.fixture(scope="module")
def policy():
    _, server = plan().start()
    frame = Normaliser(np.array([1.0, 2.0, 3.0], np.float32), np.array([1.0, 0.5, 2.0], np.float32))
    return from_actor(plan().algorithm.policy(server.broadcast), frame, SPACE)


def judging(policy, **changes):
    scale = Scale(normaliser_of(policy), 0.9, unit=2.0, level=0.25, lowest=-4.0, highest=8.0)
    settings = JudgeSettings(rounds=4, steps=5, critics=2, hidden=(4,), batch_size=4, seed=11)
    return Judging(**{"policy": policy, "discount": 0.9, "settings": settings, "scale": scale} | changes)


# --- What is refused ---


@pytest.mark.parametrize("run_id", ["", "0" * 31, "0" * 33, "A" * 32, "../" + "0" * 29, "0" * 32 + "\n"])
def test_a_run_is_called_by_32_hexadecimal_digits(run_id):
    with pytest.raises(FovaError, match="32 hexadecimal digits are expected"):
        plan(run_id=run_id)


@pytest.mark.parametrize(
    ("run", "fields", "words"),
    [
        ({}, {"algorithm_name": "own.py"}, "a client does not run code that somebody sends it"),
        (PRIVATE | {"privacy": "server", "participation": 0.5}, {}, "Leave --participation out"),
        ({"data_sequence": ("a.npz",)}, {}, "clients of a real federation hold the data they have"),
        ({"select": "judge", "hold_out": 0.1, "evaluate_every": 1}, {}, "select is 'judge'"),
        ({}, {"secure": True}, "Add --aggregation uniform or --aggregation size"),
        (SUMS, {"secure": True, "clients": 2}, "min_clients is 2, but secure aggregation needs 3"),
        (PRIVATE, {"clients": 1}, "Privacy hides one client among others, and there are 1"),
        ({"local_steps": 3}, {"algorithm": configure("fedora")}, "multiple of 2"),
    ],
)
def test_what_makes_no_sense_over_a_network_is_refused(run, fields, words):
    with pytest.raises(FovaError, match=words):
        plan(run, **fields)


@pytest.mark.parametrize(
    ("run", "fields"),
    [({"participation": 0.5}, {}), (PRIVATE | {"privacy": "server"}, {}), (SUMS, {"secure": True})],
)
def test_what_makes_sense_is_taken(run, fields):
    plan(run, **fields)


# --- What follows from it ---


@pytest.mark.parametrize(
    ("run", "secure", "told"),
    [({}, False, True), (SUMS, True, False), (PRIVATE, False, False), (PRIVATE, True, False)],
)
def test_clients_tell_about_their_data_only_where_nothing_is_to_be_hidden(run, secure, told):
    assert plan(run, secure=secure).gathers_statistics is told


def test_submissions_travel_plain_small_or_with_noise():
    assert plan().envelope == PLAIN
    assert plan({"compress": "int8"}).envelope == EightBits()
    assert plan(PRIVATE).envelope == Private(clip=0.5, deviation=2.0, inner=PLAIN)
    assert (plan().privacy, plan(PRIVATE).privacy) == (None, Privacy("client", 0.5, 4.0, 1e-5, 3))


def test_the_seed_is_that_of_the_run_or_of_the_judge(policy):
    key = jax.random.key_data
    assert key(plan().root_key).tolist() == key(jax.random.key(7)).tolist()
    judged = plan(judge=judging(policy))
    assert key(judged.root_key).tolist() == key(jax.random.key(11)).tolist()


def trained(own, broadcast_of=lambda broadcast: broadcast):
    """One client's part of a round: the learner before and after, what it sends, and whether it is sound."""
    learner, server = own.start()
    data = own.data_of(make_transitions(0))
    key = client_key(own.root_key, 0, 0)
    broadcast = broadcast_of(server.broadcast)
    return learner, *client_work(
        own.algorithm, own.envelope, own.run.local_steps, learner, broadcast, data, key, key
    )


def test_what_a_client_sends_has_the_shapes_that_the_server_expects():
    own = plan()
    _, _, sent, sound = trained(own)
    assert bool(sound)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), sent) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), own.submission_like()
    )


def test_a_client_notices_that_its_numbers_are_not_finite():
    _, _, _, sound = trained(plan(), lambda broadcast: jax.tree.map(lambda leaf: leaf * np.nan, broadcast))
    assert not bool(sound)


def test_a_clients_data_has_the_plans_discount():
    """The return after a row is the next reward plus the discounted rest of its episode."""
    data = make_transitions(0, episodes=1, steps=3)
    own = plan()
    own = replace(own, algorithm=replace(own.algorithm, discount=0.5))
    rewards = data.rewards.astype(np.float64)
    expected = [rewards[1] + 0.5 * rewards[2], rewards[2], 0.0]
    found = own.data_of(data).batch(np.arange(3)).next_returns
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# --- Its way to a client ---


def test_a_plan_with_everything_comes_back_as_it_was_sent(policy):
    agreed = stated(TABLE)
    sent = plan(PRIVATE, columns=TABLE, agreed=agreed, judge=judging(policy), secure=True)
    again = Plan.from_json(sent.to_json())
    assert (again.run, again.algorithm, again.space, again.clients) == (sent.run, sent.algorithm, SPACE, 3)
    assert (again.columns, again.agreed, again.secure) == (TABLE, agreed, True)
    assert (again.judge.scale.unit, again.judge.scale.level, again.judge.scale.bounds) == (2.0, 0.25, (-2.25, 3.75))
    assert again.to_json() == sent.to_json()
    assert again.fingerprint() == sent.fingerprint()
    plain = Plan.from_json(plan().to_json())
    assert (plain.columns, plain.agreed, plain.judge, plain.secure) == (None, None, None, False)


def test_only_plans_of_one_computation_have_one_fingerprint():
    assert plan().fingerprint() == plan().fingerprint()
    assert re.fullmatch("[0-9a-f]{32}", plan().fingerprint())
    others = [plan({"seed": 8}), plan({"rounds": 4}), plan(run_id="1" * 32), plan(clients=4)]
    assert len({plan().fingerprint(), *(other.fingerprint() for other in others)}) == 5
    assert plan({"rounds": 4}).training_fingerprint() == plan().training_fingerprint(), "a run may become longer"
    assert plan({"seed": 8}).training_fingerprint() != plan().training_fingerprint()


def test_equal_mappings_have_one_fingerprint_in_whatever_order_they_were_written():
    named = {"ward": ["A", "B"], "a": ["0", "1"]}
    one, other = (
        plan(columns=Columns.of(TABLE.to_table() | {"categories": dict(pairs)}))
        for pairs in (named.items(), reversed(named.items()))
    )
    assert one == other
    assert one.fingerprint() == other.fingerprint()


def test_a_plan_of_another_version_is_refused_before_it_is_read():
    with pytest.raises(FovaError, match=r"The server runs fova 9\.9"):
        Plan.from_json(json.dumps({"version": "9.9"}))


# --- The fit of a policy's value, as part of a plan ---


def test_critics_see_the_scale_or_what_is_known_before_it(policy):
    fitted = judging(policy).algorithm()
    assert (fitted.discount, fitted.lowest, fitted.highest) == (0.9, -2.25, 3.75)  # -4/2 - 0.25 and 8/2 - 0.25
    before = judging(policy, scale=None).algorithm()
    assert (before.discount, before.lowest, before.highest) == (0.9, -LARGEST, LARGEST)


@pytest.mark.parametrize("unit", [0.0, -1.0, float("nan")])
def test_a_scale_without_a_unit_is_refused(policy, unit):
    sent = judging(policy).to_json()
    sent["scale"]["unit"] = unit
    with pytest.raises(FovaError, match="unit of reward is"):
        Judging.from_json(sent, SPACE)
    sent["scale"]["unit"] = 1e-3
    assert Judging.from_json(sent, SPACE).scale.unit == 1e-3


def test_a_fit_combines_clients_as_the_training_did_or_as_it_was_promised():
    settings = JudgeSettings()
    assert settings_for(RunConfig(aggregation="median"), settings, None).aggregation == "median"
    assert settings_for(RunConfig(), settings, None).aggregation == "algorithm"
    assert settings_for(RunConfig(**SUMS | {"aggregation": "size"}), settings, Promise(2.0)).aggregation == "size"
    promise = Promise(2.0, Privacy("client", 0.5, 4.0, 1e-5, 3))
    assert settings_for(RunConfig(**PRIVATE), settings, promise).aggregation == "uniform"


def test_the_rounds_of_a_fit_keep_the_data_and_the_promise():
    trained_with = RunConfig(**PRIVATE | {"hold_out": 0.2, "seed": 5, "rounds": 50, "local_steps": 9})
    settings = JudgeSettings(rounds=4, steps=5, critics=2, aggregation="uniform")
    plain = run_settings(trained_with, settings)
    assert (plain.rounds, plain.local_steps, plain.aggregation, plain.normalise) == (4, 10, "uniform", False)
    assert (plain.hold_out, plain.seed, plain.privacy, plain.reward_unit) == (0.2, 5, "off", "algorithm")
    promised = run_settings(trained_with, settings, Promise(2.0, Privacy("client", 0.5, 4.0, 1e-5, 3)))
    assert (promised.privacy, promised.privacy_clip, promised.privacy_noise) == ("client", 0.5, 4.0)
    assert (promised.reward_unit, promised.normalise) == (2.0, False)

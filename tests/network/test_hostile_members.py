"""A member that sends rubbish at any stage of a round is named, and the round goes on without it."""

import hashlib
import json
import random

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stand_ins import LIAR, LIARS_NODE, NAMES, Hall, hostile
from test_rounds import Notes, assert_close
from test_rounds import settings as run_settings

from fova.errors import FovaError
from fova.network import server as flower_server
from fova.network.engine import FlowerEngine
from fova.network.journal import Journal
from fova.network.members import Door, Record
from fova.network.secure_engine import SecureEngine
from fova.network.secure_session import ClientSession, Shared, threshold
from fova.network.server_config import ServerConfig, create_run, make_plan, read_server
from fova.run.config import load_config

STAGES = (("plain", "hello"), ("plain", "round"), *(("secure", s) for s in ("keys", "shares", "round", "unmask")))
SUMS = {"aggregation": "uniform", "normalise": False, "reward_unit": 1.0}
OTHERS = [name for name in NAMES if name != LIAR]


def network(secure):
    return ServerConfig(min_clients=3, observation=3, action=2, eject_after=0, secure_aggregation=secure)


def configured(secure, rounds=1):
    return run_settings("fed-bc", rounds=rounds, **SUMS if secure else {"normalise": False})


@pytest.fixture(scope="module")
def engines():
    """A plain and a secure engine; both serve many examples."""
    found = {}
    for kind, engine in (("plain", FlowerEngine), ("secure", SecureEngine)):
        plan = make_plan(configured(kind == "secure"), network(kind == "secure"), "0" * 32)
        found[kind] = engine(Hall(plan), plan, network(kind == "secure"), Notes(), lambda s: None, lambda s: None)
        found[kind].prepare(None)
    return found


def one_round(engine, lie):
    """A round in which the liar lies; the state after it, the report, and what the server said."""
    engine.grid.lie, engine.progress = lie, Notes()
    engine.asking.progress = engine.progress
    engine.record, engine.door, engine.skipped = Record(0), Door(), 0
    state, report = engine.round(engine.start())
    said = [f"{name}: {why}" for name, why in report.rejected.items()] + engine.progress.said
    return state, report, [line for line in said if LIAR in line]


def only_at(stage, change):
    return lambda number, found, content: change(content) if found == stage else content


# --- Generated messages ---


@settings(deadline=None, max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(STAGES), st.randoms(use_true_random=False))
def test_whatever_a_member_sends_is_refused_by_name_and_the_round_goes_on(engines, stage, chance):
    kind, where = stage
    engine = engines[kind]
    if where == "hello":
        engine.members.clear()
    state, report, said = one_round(engine, only_at(where, lambda content: hostile(where, content, chance)))
    assert said, "the log does not name the member"
    assert all(line.isprintable() for line in said)
    assert set(OTHERS) <= set(report.clients) or report.clients == {}
    if kind == "plain" or report.clients:
        assert (LIAR in report.clients) == (where == "unmask")
    else:  # its shares turned out not to fit when the sum was to be unmasked
        assert list(report.rejected) == [LIAR]
    assert state.round == 1


def told_and_named(folder, secure, rounds):
    """How many hostile messages a member sent in a run, at most one a round, and how many the log names."""
    stages = [stage for kind, stage in STAGES if (kind == "secure") == secure and stage != "hello"]
    chance, told = random.Random(7), []

    def lie(number, stage, content):
        if stage != stages[number % len(stages)]:
            return content
        told.append(number)
        return hostile(stage, content, chance)

    folder.mkdir()
    directory = create_run(folder / "run", configured(secure, rounds), network(secure))
    plan = make_plan(load_config(directory.path / "config.toml"), network(secure), read_server(directory)[0])
    journal = Journal(directory.path / "journal.jsonl")
    state = flower_server.train(Hall(plan, lie), directory, journal, lambda seconds: None).state
    assert state.round == rounds
    assert len(set(told)) == len(told)
    log = [json.loads(line).get("text", "") for line in journal.path.read_text().splitlines()]
    starts = (f"{LIAR} was not counted: ", f"{LIAR} counts, but does not help to unmask the sum: ")
    return len(told), sum(line.startswith(starts) for line in log)


@pytest.mark.parametrize("secure", [False, True])
def test_every_hostile_message_of_a_run_is_named_in_its_log(tmp_path, secure):
    told, named = told_and_named(tmp_path / "run", secure, 12)
    assert told == named >= 6


@pytest.mark.slow
def test_a_thousand_hostile_messages_leave_the_server_running_and_every_one_is_named(tmp_path):
    plain, secure = told_and_named(tmp_path / "plain", False, 500), told_and_named(tmp_path / "secure", True, 700)
    assert plain == (500, 500)
    assert secure[0] == secure[1] >= 500


# --- Messages of the right form that lie ---


def dealing(engine, monkeypatch, share):
    """Let the liar deal out its shares in another way."""
    member = engine.grid.members[LIARS_NODE]
    original = member._secure

    def secure(content, step):
        if step == "shares":
            monkeypatch.setattr(member.session, "share", share.__get__(member.session), raising=False)
        return original(content, step)

    monkeypatch.setattr(member, "_secure", secure)


@pytest.mark.parametrize("kind", ["cannot be opened", "wrong", "of a short seed"])
def test_false_shares_cost_a_round_and_put_their_maker_on_the_bench(engines, monkeypatch, kind):
    engine = engines["secure"]

    def share(self, peers):
        honest = ClientSession.share(self, peers)
        if kind == "cannot be opened":
            return Shared(dict.fromkeys(honest.sealed, b"rubbish"), honest.commitment)
        names, count = list(self.peers), len(self.peers)
        secret = b"short" if kind == "of a short seed" else self.own_seed
        dealt = create_shares(secret, threshold(count), count)
        if kind == "wrong":
            dealt = [share[:4] + bytes(len(share) - 4) for share in dealt]
        sealed = {
            name: encrypt(
                self._channel(name),
                share_keys_plaintext_concat(
                    names.index(self.client), names.index(name), dealt[names.index(name)], b""
                ),
            )
            for name in honest.sealed
        }
        self.own_shares = dealt[names.index(self.client)], b""
        return Shared(sealed, hashlib.sha256(secret).digest())

    dealing(engine, monkeypatch, share)
    state, report, said = one_round(engine, lambda number, stage, content: content)
    assert report.clients == {}
    assert report.rejected == {LIAR: "its masks cannot be undone: the shares of its secret do not fit"}
    assert f"round 1 is skipped: the masks of {LIAR} cannot be undone: shares do not fit" in said
    assert engine.record.offences == {LIAR: 1}
    assert state.round == 1
    # It sits out the next round, which counts.
    before = state.broadcast
    state, report = engine.round(state)
    assert sorted(report.clients) == OTHERS
    assert_close(state.broadcast, before, atol=1e-6)


def test_shares_that_one_client_cannot_open_cost_nothing(engines):
    """The others have enough of them."""

    def spoil(content):
        sealed = list(content["shares"]["sealed"])
        content["shares"]["sealed"] = [b"rubbish", *sealed[1:]]
        return content

    _, report, _ = one_round(engines["secure"], only_at("shares", spoil))
    assert sorted(report.clients) == list(NAMES)
    assert report.rejected == {}


def test_false_shares_at_the_end_cost_nothing(engines):
    def forge(content):
        revealed = content["shares"]["revealed"]
        content["shares"]["revealed"] = [share[:4] + bytes(len(share) - 4) for share in revealed]
        return content

    state, report, _ = one_round(engines["secure"], only_at("unmask", forge))
    assert sorted(report.clients) == list(NAMES)
    assert_close(state.broadcast, engines["secure"].start().broadcast, atol=1e-6)


def test_rubbish_under_the_masks_skips_rounds_and_ends_the_run_with_the_names_of_the_sum(engines):
    """Nobody can say who it was: the page says so."""
    engine = engines["secure"]

    state, report, _ = one_round(engine, only_at("round", spoiled))
    assert report.clients == {}
    assert state.round == 1
    assert "round 1 is skipped" in engine.progress
    state, _ = engine.round(state)
    with pytest.raises(FovaError, match="One of east, north, south, west does not follow the protocol"):
        engine.round(state)


def test_blame_is_certain_only_if_a_third_of_liars_could_not_have_made_it_up(engines, monkeypatch):
    """One client reveals nothing: then the three others might be one liar that reveals a false share."""
    engine = engines["secure"]

    def share(self, peers):
        return Shared(dict.fromkeys(ClientSession.share(self, peers).sealed, b"rubbish"), bytes(32))

    dealing(engine, monkeypatch, share)
    engine.grid.tamper[100] = lambda reply: [] if "revealed" in reply.content.get("shares", {}) else reply
    try:
        _, report, _ = one_round(engine, lambda number, stage, content: content)
    finally:
        engine.grid.tamper.clear()
    assert list(report.rejected) == [LIAR]
    assert engine.record.offences == {}


# --- What a secure round remembers ---


def made_secure(min_clients=3, grid=Hall):
    config = ServerConfig(min_clients=min_clients, observation=3, action=2, eject_after=0, secure_aggregation=True)
    plan = make_plan(configured(True), config, "0" * 32)
    engine = SecureEngine(grid(plan), plan, config, Notes(), lambda s: None, lambda s: None)
    engine.prepare(None)
    return engine


def test_a_round_that_rubbish_keeps_from_starting_is_tried_three_times():
    engine, asked = made_secure(min_clients=4), []

    def lie(content):
        asked.append(1)
        del content["keys"]
        return content

    engine.grid.lie = only_at("keys", lie)
    with pytest.raises(FovaError, match=f"Round 1 failed 3 times\\.\n  - {LIAR}: the message"):
        engine.round(engine.start())
    assert len(asked) == 3


def test_a_client_goes_on_from_the_round_in_which_it_last_counted():
    class Counting(Hall):
        counted = ()

        def _run(self, question, context):
            if "counted" in question.content["about"]:
                self.counted = (*self.counted, question.content["about"]["counted"])
            return super()._run(question, context)

    engine = made_secure(grid=Counting)
    state, _ = engine.round(engine.start())
    assert engine.grid.counted == (0, 0, 0, 0)
    assert state.memo["counted"] == dict.fromkeys(NAMES, 1)
    engine.grid.lie = only_at("round", spoiled)
    state, report = engine.round(state)
    assert (state.round, report.clients) == (2, {}), "a round that cannot be added up counts for nobody"
    assert state.memo["counted"] == dict.fromkeys(NAMES, 1)
    engine.grid.counted = ()
    engine.grid.lie = lambda number, stage, content: content
    state, report = engine.round(state)
    assert engine.grid.counted == (1, 1, 1, 1)
    assert state.memo["counted"] == dict.fromkeys(NAMES, 3)


def spoiled(content):
    numbers = content["masked"]["numbers"].numpy()
    content["masked"] = ArrayRecord({"numbers": Array(numbers + np.uint64(12345))})
    return content


def test_who_falls_silent_before_the_sum_is_missing_and_who_does_so_later_is_not():
    engine = made_secure()
    node = next(node for node, member in engine.grid.members.items() if member.name == "north")
    engine.grid.tamper[node] = lambda reply: [] if "masked" in reply.content else reply
    state, report = engine.round(engine.start())
    assert (report.missing, sorted(report.clients)) == (("north",), ["east", "south", "west"])
    assert engine.record.benched == {"north": 2}
    engine = made_secure()
    engine.grid.tamper[node] = lambda reply: [] if "revealed" in reply.content.get("shares", {}) else reply
    state, report = engine.round(engine.start())
    assert (report.missing, sorted(report.clients)) == ((), list(NAMES))
    assert engine.record.benched == {}
    assert state.round == 1


def test_only_keys_that_somebody_registered_say_who_a_member_is():
    engine = made_secure()
    assert engine._identities() == engine.grid.public_keys
    engine.grid.registered = {}
    assert engine._identities() == {}


# --- Keys in other clients' names ---


def test_a_member_cannot_announce_keys_that_it_did_not_sign(engines):
    engine = engines["secure"]
    other = ec.generate_private_key(ec.SECP384R1())
    member = engine.grid.members[LIARS_NODE]
    own, member.key = member.key, other
    try:
        _, report, _ = one_round(engine, lambda number, stage, content: content)
    finally:
        member.key = own
    assert report.rejected == {LIAR: "its keys are not signed with the key that it joined with"}
    assert sorted(report.clients) == OTHERS

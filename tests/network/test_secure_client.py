"""A client's side of secure aggregation: its secrets, and questions that it does not answer."""

import json
import os
import stat

import jax
import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict
from test_rounds import settings

from fova.algorithms.base import Submission
from fova.data.normalise import Normaliser
from fova.errors import FovaError
from fova.federation.statistics import Statistics
from fova.network import secure_messages
from fova.network.intake import Refused
from fova.network.secure_client import REVEALED, SECRETS, SecureClient
from fova.network.secure_messages import Reader
from fova.network.secure_payload import Payload
from fova.network.secure_session import ClientSession, ServerSession
from fova.network.server_config import ServerConfig, make_plan


def plan(secure=True):
    config = settings("fed-bc", aggregation="uniform", normalise=False, reward_unit=1.0)
    network = ServerConfig(min_clients=3, observation=3, action=2, secure_aggregation=secure)
    return make_plan(config, network, "0" * 32)


@pytest.fixture
def client(tmp_path):
    return SecureClient(plan(), "east", tmp_path / "clients" / "state")


def keys(client, session="s1", number=4):
    answer = client.answer(secure_messages.keys_question(client.plan, number, session))
    return Reader(client.plan, session, "east").keys(answer, number, b"", set())


def test_the_same_question_gets_the_same_keys_and_another_attempt_new_ones(client):
    first = keys(client)
    assert keys(client) == first, "also in another process: they are on disk"
    assert first.signature == b"", "without a key nothing is signed"
    assert set(keys(client, "s2").pair).isdisjoint(first.pair)


def test_secrets_are_for_their_owner(client):
    before = os.umask(0o022)
    try:
        keys(client)
        assert os.umask(0o022) == 0o022, "the mask is as it was"
    finally:
        os.umask(before)
    assert stat.S_IMODE((client.folder / SECRETS).stat().st_mode) == 0o600


def test_three_clients_add_up_what_they_send(tmp_path):
    """Updates of 1, 2 and 4 on every parameter: their mean is 7/3."""
    names, number, session = ("east", "north", "south"), 4, ServerSession("s1")
    clients = {name: SecureClient(plan(), name, tmp_path / name) for name in names}
    own = plan()
    payload, like = Payload(own.submission_like(), "uniform"), own.submission_like()
    broadcast = own.start()[1].broadcast

    def answers(question, read):
        return {name: read(Reader(own, "s1", name), clients[name].answer(question)) for name in names}

    def sent(by):
        moved = jax.tree.map(lambda leaf: np.asarray(leaf) + np.float32(by), broadcast)
        return Submission(moved, np.float32(0.0), dict.fromkeys(like.metrics, np.float32(by)))

    session.keys = answers(
        secure_messages.keys_question(own, number, "s1"),
        lambda reader, reply: reader.keys(reply, number, b"", set()),
    )
    session.shared = answers(
        secure_messages.shares_question(own, number, "s1", session.keys),
        lambda reader, reply: reader.shared(reply, names),
    )
    frame = Statistics(Normaliser.identity(3), 1.0)
    for name, by in zip(names, (1.0, 2.0, 4.0)):
        question = secure_messages.masked_question(own, number, 0, broadcast, frame, "s1", session.sealed_for(name))
        reply = clients[name].masked(question, sent(by), broadcast)
        session.add(name, Reader(own, "s1", name).masked(reply, payload.length))
    session.revealed = answers(
        secure_messages.unmask_question(own, number, "s1", session.arrived),
        lambda reader, reply: reader.revealed(reply, names),
    )
    mean = payload.mean(session.unmask(), broadcast, 3)
    for was, now in zip(jax.tree.leaves(broadcast), jax.tree.leaves(mean.parameters), strict=True):
        np.testing.assert_allclose(now - np.asarray(was), 7 / 3, rtol=1e-5)
    assert list(mean.metrics.values()) == pytest.approx([7 / 3] * len(like.metrics))


def test_a_plan_without_secure_aggregation_is_not_answered(tmp_path):
    client = SecureClient(plan(secure=False), "east", tmp_path)
    with pytest.raises(Refused, match="the plan of this run has no secure aggregation"):
        keys(client)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("known", [False, True])
def test_an_attempt_that_the_client_does_not_know_is_not_answered(client, known):
    if known:
        keys(client, "s1")
    question = secure_messages.unmask_question(client.plan, 4, "s2", ["east"])
    with pytest.raises(Refused, match="it does not know this attempt"):
        client.answer(question)


def test_a_step_that_the_client_does_not_know_is_not_answered(client):
    keys(client)
    about = ConfigRecord({"session": "s1", "round": 4, "step": "dance"})
    with pytest.raises(Refused, match="a step that this client does not know"):
        client.answer(RecordDict({"about": about}))


def test_a_question_names_at_most_ten_thousand_clients(client):
    keys(client)
    names = [f"c{i}" for i in range(10_001)]
    with pytest.raises(Refused, match="no list of at most 10000"):
        client.answer(secure_messages.unmask_question(client.plan, 4, "s1", names))
    with pytest.raises(Refused, match=r"^(?!.*no list)"):  # refused for another reason: nothing is masked yet
        client.answer(secure_messages.unmask_question(client.plan, 4, "s1", names[:-1]))


def test_a_round_is_unmasked_for_one_set_of_clients(client):
    def unmasked(number, *survivors):
        secrets = ClientSession.start("s1", number, "east")
        secrets.survivors = list(survivors)
        client._insist_on_the_same_sum(secrets)

    unmasked(4, "east", "north", "south")
    unmasked(4, "east", "north", "south")
    with pytest.raises(Refused, match="round 5 was unmasked for east, north, south before"):
        unmasked(4, "east", "north")
    unmasked(5, "east", "north")
    assert json.loads((client.folder / REVEALED).read_text()) == {"round": 5, "survivors": ["east", "north"]}


@pytest.mark.parametrize("content", ["", "nothing", "3", "[1, 2]", "{}", '{"peers": [], "shares": 3}'])
def test_files_that_cannot_be_read_are_named(client, content):
    keys(client)
    secrets = ClientSession.start("s1", 4, "east")
    (client.folder / REVEALED).write_text(content)
    with pytest.raises(FovaError, match=r"secure-revealed\.json cannot be read: .* Delete it"):
        client._insist_on_the_same_sum(secrets)
    (client.folder / SECRETS).write_text(content)
    with pytest.raises(FovaError, match=r"secure-round\.json cannot be read: .* Delete it"):
        keys(client)
